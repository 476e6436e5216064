"""How far a search is: a line that changes on a terminal, where `rich` is there to draw it, else a line every ten seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import exp
from typing import Any, Protocol, TextIO

from fuse_opt.tools.tuning.search.study import Limit, Outcome

LIBRARY = "rich"
EVERY_SECONDS = 10.0


class Progress(Protocol):
    """What is told of a run."""

    def say(self, line: str) -> None:
        """A line that stays."""
        ...

    def update(self, outcome: Outcome, limit: Limit) -> None:
        """How far the search for a kernel is."""
        ...


def described(outcome: Outcome, limit: Limit) -> str:
    """Trials, the best by its pairs so far, how noisy pairs are, and what is left."""
    parts = [f"{outcome.trials} trials", f"best {exp(outcome.best):.3f}x"]
    parts += [f"sd of pairs {outcome.spread:.3f}"] if outcome.spread else []
    if (left := limit.left()) is not None:
        parts.append(f"{left:.0f} s left")
    return ", ".join(parts)


class Lines:
    """Plain lines."""

    def __init__(self, prefix: str, out: TextIO, clock: Callable[[], float]) -> None:
        self._prefix, self._out, self._clock = prefix, out, clock
        self._last = clock()

    def say(self, line: str) -> None:
        """At once."""
        print(f"{self._prefix}{line}", file=self._out, flush=True)

    def update(self, outcome: Outcome, limit: Limit) -> None:
        """A line where the last one is long ago."""
        if (now := self._clock()) - self._last >= EVERY_SECONDS:
            self._last = now
            self.say(f"{outcome.site.name}: {described(outcome, limit)}")


class Bar:
    """A bar of what is spent, with a line beside it, below the lines that stay."""

    def __init__(self, drawn: Any, prefix: str) -> None:
        self._drawn, self._prefix = drawn, prefix
        self._tasks: dict[str, Any] = {}

    def say(self, line: str) -> None:
        """Above the bar."""
        self._drawn.console.print(f"{self._prefix}{line}", markup=False, highlight=False, soft_wrap=True)

    def update(self, outcome: Outcome, limit: Limit) -> None:
        """One bar for each kernel that is searched now."""
        name, shown, share = outcome.site.name, described(outcome, limit), min(limit.share(), 1.0)
        if name not in self._tasks:
            self._tasks[name] = self._drawn.add_task(name, total=1.0, shown=shown)
        self._drawn.update(self._tasks[name], completed=share, shown=shown)


@contextmanager
def progress(prefix: str, clock: Callable[[], float], stream: TextIO | None = None) -> Generator[Progress]:
    """What a run tells, on standard error."""
    out = stream or sys.stderr
    if not out.isatty() or find_spec(LIBRARY) is None:
        yield Lines(prefix, out, clock)
        return
    rich, console = import_module(f"{LIBRARY}.progress"), import_module(f"{LIBRARY}.console").Console(file=out)
    columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TextColumn("{task.fields[shown]}")]
    with rich.Progress(*columns, console=console, transient=True) as drawn:
        yield Bar(drawn, prefix)
