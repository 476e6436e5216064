"""Decisions as data: recorded, applied again, and counted.

    with record_decisions() as decisions:
        optimize(text)
    with replay_decisions(decisions), limit_fuel(3):
        optimize(text)  # the first three decisions again, and no other

A decision names graph ops, not kernels: the kernels of these ops become one, or ops are computed again.
`replay_text` says how ops are called; nothing of it depends on ids or time. A recording or a replay is of one program; those
of different threads or tasks are apart. Where nothing is asked for, a pass pays for one look at a context variable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph
from fuse_opt.passes.fusion.engine.groups import bare_source, is_creation
from fuse_opt.passes.fusion.engine.outline import sweep_functions
from fuse_opt.passes.fusion.engine.replay_text import Decision, OpRef

_NAMED = 8
"""Ops that a message lists."""


@dataclass
class Fuel:
    """How many decisions may still be made."""

    limit: int
    left: int


@dataclass
class _Numbering:
    """Which run of a pass it is, and how the ops of its functions are called."""

    runs: Counter[str] = field(default_factory=Counter[str])
    numbers: dict[Operation, int] = field(default_factory=dict[Operation, int])
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    places: dict[Operation, tuple[str, Block]] = field(default_factory=dict[Operation, tuple[str, Block]])
    named: dict[Operation, list[GraphOp]] = field(default_factory=dict[Operation, list[GraphOp]])
    """By op of a block, the ops that decisions may name."""
    sources: dict[Operation, list[Operation]] = field(default_factory=dict[Operation, list[Operation]])
    called: dict[tuple[str, str], list[Operation]] = field(default_factory=dict[tuple[str, str], list[Operation]])
    """By function and reference, in all forms: the ops that it may mean."""

    def enter(self, pass_name: str, module: Operation) -> int:
        """Notes the ops there are, and gives the number of this run of the pass."""
        for noted in (self.places, self.named, self.sources, self.called):
            noted.clear()
        for block in sweep_functions(module):
            function = _function_name(block)
            self.called.setdefault((function, ""), [])
            for outer in block.ops:
                self.named[outer] = _named_ops(outer)
                for op in self.named[outer]:
                    self.places[op] = function, block
                    if op not in self.numbers:
                        self.numbers[op] = self.counts[function, op.name]
                        self.counts[function, op.name] += 1
                    self._enter_names(function, op)
        self.runs[pass_name] += 1
        return self.runs[pass_name] - 1

    def _enter_names(self, function: str, op: Operation) -> None:
        whole = self.reference(op)
        for ref in dict.fromkeys((whole, replace(whole, name=None), replace(whole, number=None), OpRef(op.name))):
            self.called.setdefault((function, str(ref)), []).append(op)

    def reference(self, op: Operation) -> OpRef:
        return OpRef(op.name, self.numbers[op], _result_name(op))

    def neighbours(self, graph: GroupGraph, members: Sequence[Group]) -> list[Operation]:
        """
        One op of each group; where groups read each other, ops that do: these belong together whatever else is fused.
        """
        chosen: dict[Group, Operation] = {}
        for reader in (*members[1:], members[0]):  # producers come first, and may be large
            for op in (named for outer in reader.ops for named in self.named[outer]):
                for source in self._sources(op):
                    group = graph.group_of.get(graph.top(source))
                    if group is not None and group is not reader and group in members:
                        chosen.setdefault(group, source)
                        chosen.setdefault(reader, op)
                if len(chosen) == len(members):
                    return [chosen[member] for member in members]
        return [chosen.get(group) or next(op for outer in group.ops for op in self.named[outer]) for group in members]

    def _sources(self, op: Operation) -> list[Operation]:
        if op not in self.sources:
            self.sources[op] = [source for value in op.operands if (source := _origin(value)) is not None]
        return self.sources[op]

    def resolve(self, decision: Decision, ref: OpRef) -> Operation:
        """The op that is meant. Raises DecisionError."""
        function = decision.function
        if (function, "") not in self.called:
            raise decision.error(f"there is no function {function}")
        found = self.called.get((function, str(ref)), [])
        if not found and ref.name is not None:
            found = self.called.get((function, str(replace(ref, number=None))), [])
        if len(found) == 1:
            return found[0]
        same = found or self.called.get((function, ref.op), [])
        there_is = ", ".join(str(self.reference(op)) for op in same[:_NAMED]) or "no op of that name"
        more = f" and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
        problem = f"'{ref}' is ambiguous" if found else f"there is no '{ref}'"
        raise decision.error(f"{problem} in {function} at this pass: there is {there_is}{more}", ref)


class _Recorder:
    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.numbering = _Numbering()


class _Script:
    """Decisions that wait for the pass they belong to."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.numbering = _Numbering()
        self.waiting: dict[tuple[str, int], list[Decision]] = {}
        for number, decision in enumerate(decisions, 1):
            placed = decision if decision.line else replace(decision, line=number)
            self.waiting.setdefault((decision.pass_name, decision.run), []).append(placed)

    def steps(self, pass_name: str, run: int) -> dict[Block, list[Step]]:
        """By block, the decisions for one run of a pass. Raises DecisionError."""
        found: dict[Block, list[Step]] = {}
        for decision in self.waiting.pop((pass_name, run), []):
            ops = tuple(self.numbering.resolve(decision, ref) for ref in decision.ops)
            readers = tuple(self.numbering.resolve(decision, ref) for ref in decision.readers)
            blocks = list(dict.fromkeys(self.numbering.places[op][1] for op in (*ops, *readers)))
            if len(blocks) > 1:
                raise decision.error("its ops are in different blocks")
            found.setdefault(blocks[0], []).append(Step(decision, ops, readers))
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


@dataclass(frozen=True)
class Step:
    """A decision to apply, and the ops it names."""

    decision: Decision
    ops: tuple[Operation, ...]
    readers: tuple[Operation, ...]


@dataclass(frozen=True)
class Steering:
    """What steers one run of a pass: its fuel, who takes notes, and the decisions to apply instead of asking rules."""

    pass_name: str
    run: int
    fuel: tuple[Fuel, ...]
    recorder: _Recorder | None
    steps: dict[Block, list[Step]] | None

    def exhausted(self) -> int | None:
        """The limit that is used up; None while there is fuel."""
        return next((fuel.limit for fuel in self.fuel if fuel.left <= 0), None)

    def describe(self, graph: GroupGraph, members: Sequence[Group]) -> Decision | None:
        """The decision to merge the groups, before it is made; None when nobody takes notes."""
        if self.recorder is None:
            return None
        numbering = self.recorder.numbering
        return self.describe_ops(numbering.neighbours(graph, list(dict.fromkeys(members))))

    def describe_ops(self, ops: Sequence[Operation], readers: Sequence[Operation] = ()) -> Decision | None:
        """The decision about these ops, before it is made; None when nobody takes notes."""
        if self.recorder is None:
            return None
        numbering = self.recorder.numbering
        refs, read_by = (tuple(map(numbering.reference, each)) for each in (ops, readers))
        return Decision(self.pass_name, self.run, numbering.places[ops[0]][0], refs, read_by)

    def made(self, decision: Decision | None) -> None:
        """Counts a decision, and notes it."""
        for fuel in self.fuel:
            fuel.left -= 1
        if self.recorder is not None and decision is not None:
            self.recorder.decisions.append(decision)


@dataclass(frozen=True)
class _Asked:
    """What the callers around a pass asked for."""

    recorder: _Recorder | None = None
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
        run = asked.recorder.numbering.enter(pass_name, module)
    if asked.script is not None:
        steps = asked.script.steps(pass_name, asked.script.numbering.enter(pass_name, module))
    own = () if fuel is None else (Fuel(fuel, fuel),)
    shared = () if asked.fuel is None else (asked.fuel,)
    return Steering(pass_name, run, (*own, *shared), asked.recorder, steps)


@contextmanager
def record_decisions() -> Generator[list[Decision]]:
    """Gathers the decisions made in its body, in order; an inner recording takes precedence."""
    recorder = _Recorder()
    with _asking(replace(_ASKED.get() or _Asked(), recorder=recorder)):
        yield recorder.decisions


@contextmanager
def replay_decisions(decisions: Sequence[Decision]) -> Generator[None]:
    """
    Has the passes of its body make exactly these decisions. The passes raise DecisionError for one that does not
    apply, and the end of the body for one whose pass did not run.
    """
    script = _Script(decisions)
    with _asking(replace(_ASKED.get() or _Asked(), script=script)):
        yield
    script.finish()


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


def _named_ops(op: Operation) -> list[GraphOp]:
    """The graph ops that decisions may name: without the constants that every kernel copies, unless it holds only such."""
    ops = member_ops([op])
    named = [inner for inner in ops if not is_creation(inner)]
    return named or (ops if isinstance(op, KernelOp) else [])


def _origin(value: SSAValue) -> Operation | None:
    """The bare op that makes the value, in a kernel or outside; None for an argument of the function."""
    owner = bare_source(value).owner
    return owner if isinstance(owner, Operation) else None


def _function_name(block: Block) -> str:
    """`@main`, or `@module::@main` in a named module."""
    names: list[str] = []
    op = block.parent_op()
    while op is not None:
        name = op.get_attr_or_prop("sym_name")
        if isinstance(name, StringAttr):
            names.append("@" + (name.data if re.fullmatch(r"[\w$.-]+", name.data) else json.dumps(name.data)))
        op = op.parent_op()
    return "::".join(reversed(names))


def _result_name(op: Operation) -> str | None:
    return next((result.name_hint for result in op.results if result.name_hint is not None), None)
