"""A reducer of failures: the smallest program and list of passes it can reach that still fail in the same way.

Delta debugging by complements (Zeller and Hildebrandt 2002) over one kind of item after another, until none of them can be
left out: passes, functions, results, ops, kernels, arguments, attributes; then extents are made smaller.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from multiprocessing.connection import Connection

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.reduce.edits import EDITS, Edit, droppable, extents, with_extent
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import OpVerifyError, verify

TRIALS = 2000
"""Programs that are tried unless the caller says otherwise."""

Fails = Callable[[str, Sequence[str]], str | None]
"""The kind of failure of a module's text under some passes; None when all is well."""


@dataclass(frozen=True)
class Reduction:
    """A failing pair from which nothing more could be left out within the trials."""

    text: str
    passes: tuple[str, ...]
    kind: str
    """What `fails` said of the pair that was given, and says of this one."""
    ops: int
    trials: int
    exhausted: bool
    """Whether the trials ran out first, so that more could perhaps be left out."""


def reduce_failure(text: str, passes: Sequence[str], fails: Fails, trials: int = TRIALS) -> Reduction | None:
    """
    The smallest pair found that fails as the given one does; None when that does not fail.

    Every program that `fails` is asked about verifies. The same input gives the same result, after at most so many
    trials. Raises InputError or OpVerifyError for a text that is no verified module.
    """
    context = make_context()
    module = parse_module(text, "<reduction>", context)
    verify(module)
    kind = fails(text, passes)
    return None if kind is None else _Search(text, tuple(passes), kind, fails, trials, context).run()


class _Search:
    """The smallest failing pair so far, and the trials that led to it."""

    def __init__(
        self, text: str, passes: tuple[str, ...], kind: str, fails: Fails, limit: int, context: Context
    ) -> None:
        self.text, self.passes, self.kind = text, passes, kind
        self.fails, self.limit, self.context = fails, limit, context
        self.trials = 0
        self.tried: set[tuple[str, tuple[str, ...]]] = {(text, passes)}

    def run(self) -> Reduction:
        while self._round() and not self.exhausted:
            pass
        ops = len(droppable(self._parsed()))
        return Reduction(self.text, self.passes, self.kind, ops, self.trials, self.exhausted)

    @property
    def exhausted(self) -> bool:
        return self.trials >= self.limit

    def _round(self) -> bool:
        """Every way to make the pair smaller once; whether one did."""
        progress = self._drop_passes()
        progress |= self._drop_options()
        for edit in EDITS:
            progress |= self._apply(edit)
        return self._shrink() or progress

    def _drop_passes(self) -> bool:
        base = self.passes

        def attempt(gone: Sequence[int]) -> bool:
            return self._try(self.text, tuple(name for k, name in enumerate(base) if k not in gone))

        return self._minimize(len(base), attempt)

    def _drop_options(self) -> bool:
        """Passes without the options in braces."""
        progress = False
        for number, name in enumerate(self.passes):
            bare = name.partition("{")[0]
            progress |= self._try(self.text, (*self.passes[:number], bare, *self.passes[number + 1 :]))
        return progress

    def _apply(self, edit: Edit) -> bool:
        base = self._parsed()

        def attempt(gone: Sequence[int]) -> bool:
            copy = base.clone()
            edit.drop(copy, gone)
            return self._verifies(copy) and self._try(module_text(copy), self.passes)

        return self._minimize(edit.count(base), attempt)

    def _minimize(self, count: int, attempt: Callable[[Sequence[int]], bool]) -> bool:
        """Drops as many of `count` items as it can, in ever smaller chunks, until no single one can go."""
        kept, size = list(range(count)), count
        gone: list[int] = []
        while size and kept and not self.exhausted:
            found, end = False, len(kept)
            while end > 0 and not self.exhausted:
                chunk = kept[max(0, end - size) : end]
                if attempt(sorted([*gone, *chunk])):
                    gone += chunk
                    del kept[max(0, end - size) : end]
                    found = True
                end -= size
            if size > 1 or not found:
                size //= 2
        return bool(gone)

    def _shrink(self) -> bool:
        """Smaller extents, in types alone or in lists of integers, too."""
        progress = False
        for old in extents(self.text):
            for new in dict.fromkeys((1, 2, old // 2)):
                candidates = (with_extent(self.text, old, new, lists) for lists in (False, True))
                if new < old and any(self._try(text, self.passes) for text in candidates if self._is_program(text)):
                    progress = True
                    break
        return progress

    def _is_program(self, text: str) -> bool:
        try:
            return self._verifies(parse_module(text, "<reduction>", self.context))
        except InputError:
            return False

    def _verifies(self, module: ModuleOp) -> bool:
        try:
            verify(module)
        except OpVerifyError:
            return False
        return True

    def _try(self, text: str, passes: tuple[str, ...]) -> bool:
        """Goes on with this pair if it fails in the same way."""
        if self.exhausted or (text, passes) in self.tried:
            return False
        self.tried.add((text, passes))
        self.trials += 1
        if self.fails(text, passes) != self.kind:
            return False
        self.text, self.passes = text, passes
        return True

    def _parsed(self) -> ModuleOp:
        return parse_module(self.text, "<reduction>", self.context)


def module_text(module: ModuleOp) -> str:
    """What parses back to the module."""
    output = StringIO()
    Printer(output).print_op(module)
    return f"{output.getvalue()}\n"


def isolated(check: Callable[[], str | None], seconds: float) -> str | None:
    """What `check` says, in a process of its own, whose death or silence is a failure, too."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, check))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else f"no answer in {seconds:g} seconds"
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return f"the process ended by {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"
    finally:
        process.kill()
        process.join()


def _send(sender: Connection, check: Callable[[], str | None]) -> None:
    sender.send(check())
