"""Decisions as data: recorded, applied again, and counted.

    with record_decisions() as decisions:
        optimize(text)
    with replay_decisions(decisions), limit_fuel(3):
        optimize(text)  # the first three decisions again, and no other

A decision names graph ops, not kernels: the kernels of these ops become one, ops are computed again for others, or something is
chosen about one. `text` says how ops are called; nothing of it depends on ids or time. A recording or a replay is of one program;
those of different threads or tasks are apart. Where nothing is asked for, a pass pays for one look at a context variable.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from xdsl.ir import Block, Operation

from fuse_opt.passes.decisions.neighbourhoods import Neighbourhoods
from fuse_opt.passes.decisions.numbering import Numbering
from fuse_opt.passes.decisions.text import Decision


@dataclass
class Fuel:
    """How many decisions may still be made."""

    limit: int
    left: int


class Recorder:
    """Who takes notes."""

    def __init__(self, refused: list[tuple[Decision, str]] | None = None, *, near: bool = False) -> None:
        """`near` asks for what is near the ops of each decision."""
        self.decisions: list[Decision] = []
        self.refused = refused
        """What was possible and not made, with the reason's code, where anybody asks for it."""
        self.numbering = Numbering()
        self.near = Neighbourhoods() if near else None

    def enter(self, pass_name: str, module: Operation) -> int:
        """Notes the ops there are before a pass, and gives the number of its run."""
        if self.near is not None:
            self.near.clear()
        return self.numbering.enter(pass_name, module)

    def moved(self, ops: Mapping[Operation, Operation]) -> Recorder:
        """Who takes further notes of a copy of a module, by each of the ops its copy; these here stay as they are."""
        found = Recorder()
        found.decisions, found.numbering = list(self.decisions), self.numbering.moved(ops)
        return found


class _Script:
    """Decisions that wait for the pass they belong to."""

    def __init__(self, decisions: Sequence[Decision], only: Collection[str] | None = None) -> None:
        self.numbering = Numbering()
        self._only = only
        self.waiting: dict[tuple[str, int], list[Decision]] = {}
        for number, decision in enumerate(decisions, 1):
            placed = decision if decision.line else replace(decision, line=number)
            self.waiting.setdefault((decision.pass_name, decision.run), []).append(placed)

    def steps(self, pass_name: str, run: int) -> dict[Block, list[Step]] | None:
        """By block, the decisions for one run of a pass; None where rules decide. Raises DecisionError."""
        if self._only is not None and pass_name not in self._only:
            return None
        found: dict[Block, list[Step]] = {}
        for decision in self.waiting.pop((pass_name, run), []):
            ops = tuple(self.numbering.resolve(decision, ref) for ref in decision.ops)
            readers = tuple(self.numbering.resolve(decision, ref) for ref in decision.readers)
            blocks = list(dict.fromkeys(self.numbering.places[op][1] for op in (*ops, *readers)))
            if len(blocks) > 1:
                raise decision.error("its ops are in different blocks")
            found.setdefault(blocks[0], []).append(Step(decision, ops, readers, blocks[0]))
        return found

    def finish(self) -> None:
        """Raises DecisionError for the first decision whose pass never ran."""
        left = [decision for decisions in self.waiting.values() for decision in decisions]
        if left:
            first = min(left, key=lambda decision: decision.line)
            runs = self.numbering.runs[first.pass_name]
            if not runs:
                raise first.error(f"no pass '{first.pass_name}' that takes decisions is in the pipeline")
            raise first.error(f"pass '{first.pass_name}' has no run #{first.run}: it runs {runs} times, from #0")


@dataclass(frozen=True, eq=False)
class Step:
    """A decision to apply, and the ops it names."""

    decision: Decision
    ops: tuple[Operation, ...]
    readers: tuple[Operation, ...]
    block: Block
    """Of the function."""


@dataclass(frozen=True)
class Steering:
    """What steers one run of a pass: its fuel, who takes notes, and the decisions to apply instead of asking rules."""

    pass_name: str
    run: int
    fuel: tuple[Fuel, ...]
    recorder: Recorder | None
    steps: dict[Block, list[Step]] | None

    def exhausted(self) -> int | None:
        """The limit that is used up; None while there is fuel."""
        return next((fuel.limit for fuel in self.fuel if fuel.left <= 0), None)

    def describe(
        self, ops: Sequence[Operation], readers: Sequence[Operation] = (), choice: str = "", word: str = "for"
    ) -> Decision | None:
        """The decision about these ops, before it is made; None when nobody takes notes."""
        if self.recorder is None:
            return None
        numbering, near = self.recorder.numbering, self.recorder.near
        refs, read_by = (tuple(map(numbering.reference, each)) for each in (ops, readers))
        known = () if near is None else tuple(map(near.of, (*ops, *readers)))
        return Decision(self.pass_name, self.run, numbering.places[ops[0]][0], refs, read_by, choice, word, near=known)

    @property
    def notes_refusals(self) -> bool:
        """Whether anybody asks for what is not decided."""
        return self.recorder is not None and self.recorder.refused is not None

    def refuse(self, decision: Decision | None, code: str) -> None:
        """Notes what is possible and not made, for a reason of that code."""
        if decision is not None and self.recorder is not None and self.recorder.refused is not None:
            self.recorder.refused.append((decision, code))

    def made(self, decision: Decision | None) -> None:
        """Counts a decision, and notes it."""
        for fuel in self.fuel:
            fuel.left -= 1
        if self.recorder is not None and decision is not None:
            self.recorder.decisions.append(decision)


@dataclass(frozen=True)
class _Asked:
    """What the callers around a pass asked for."""

    recorder: Recorder | None = None
    script: _Script | None = None
    fuel: Fuel | None = None


_ASKED: ContextVar[_Asked | None] = ContextVar("fuse_opt_decisions", default=None)


def steer(pass_name: str, module: Operation, fuel: int | None) -> Steering | None:
    """How this run of a pass is steered, `fuel` being its own; None when nobody asked. Raises DecisionError."""
    asked = _ASKED.get()
    if asked is None:
        return None if fuel is None else Steering(pass_name, 0, (Fuel(fuel, fuel),), None, None)
    steps, run = None, 0
    if asked.recorder is not None:
        run = asked.recorder.enter(pass_name, module)
    if asked.script is not None:
        steps = asked.script.steps(pass_name, asked.script.numbering.enter(pass_name, module))
    own = () if fuel is None else (Fuel(fuel, fuel),)
    shared = () if asked.fuel is None else (asked.fuel,)
    return Steering(pass_name, run, (*own, *shared), asked.recorder, steps)


@contextmanager
def record_decisions(
    refused: list[tuple[Decision, str]] | None = None, recorder: Recorder | None = None
) -> Generator[list[Decision]]:
    """
    Gathers the decisions made in its body, in order; an inner recording takes precedence. Merges that rules refused are added
    to `refused`, each with the code of the reason. A `recorder` goes on with its notes.
    """
    recorder = recorder or Recorder(refused)
    with _asking(replace(_ASKED.get() or _Asked(), recorder=recorder)):
        yield recorder.decisions


@contextmanager
def replay_decisions(decisions: Sequence[Decision], only: Collection[str] | None = None) -> Generator[None]:
    """
    Has the passes of its body make exactly these decisions; with `only` the passes of these names, and others go by their
    rules. The passes raise DecisionError for one that does not apply, and the end of the body for one whose pass did not run.
    """
    script = _Script(decisions, only)
    with _asking(replace(_ASKED.get() or _Asked(), script=script)):
        yield
    script.finish()


def is_replaying() -> bool:
    """Whether decisions are given, so that not all passes go by their rules."""
    return (asked := _ASKED.get()) is not None and asked.script is not None


@contextmanager
def limit_fuel(fuel: int) -> Generator[Fuel]:
    """Lets the passes of its body make so many decisions in all; gives what is left."""
    shared = Fuel(fuel, fuel)
    with _asking(replace(_ASKED.get() or _Asked(), fuel=shared)):
        yield shared


@contextmanager
def _asking(asked: _Asked) -> Generator[None]:
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)
