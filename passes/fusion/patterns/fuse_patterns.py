"""Fuse what patterns of a person's own say: patterns in a PDL file, or a rule in a file of Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import prod
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException, VerifyException

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.analysis.loop_body import Unschedulable, member_ops, trace
from fuse_opt.dialects.fused import FUSED
from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import is_static, shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.peak_limit import PeakLimit
from fuse_opt.passes.fusion.engine.worklist import FusionPass, Selection, merge_named_groups
from fuse_opt.passes.fusion.patterns.pdl import BlockView, Pattern, parse_patterns
from fuse_opt.passes.fusion.patterns.rule_files import is_fusable, load_rule, refused_at
from fuse_opt.passes.remarks import remark

_NAME = "fuse-patterns"


@dataclass(frozen=True)
class FusePatternsPass(FusionPass):
    """The ops that a pattern matches become one kernel; or pairs of groups are merged as a rule in Python says.

    ```mlir
    pdl.pattern @gate : benefit(2) {
      %x = pdl.operand
      %t = pdl.type
      %0 = pdl.operation "graph.sigmoid"(%x : !pdl.value) -> (%t : !pdl.type)
      %1 = pdl.result 0 of %0
      %2 = pdl.operation "graph.multiply"(%x, %1 : !pdl.value, !pdl.value) -> (%t : !pdl.type)
      pdl.rewrite %2 with "fuse"
    }
    ```
    makes one `fused.kernel` of every `x * sigmoid(x)`. Patterns are tried by benefit, then in the order of the file; of
    matches that share an op the first wins, but one that holds all of a kernel takes it in. Kernels made before are looked
    through. What matches is not asked whether it pays, only whether it is legal and one pass over elements or rows.

    Ensures: as every fusion. Without a file nothing happens.
    """

    name = "fuse-patterns"

    file: str | None = None
    """A .mlir file of pdl.pattern, or a .py file that names its rule `rule`."""
    enable_patterns: tuple[str, ...] = ()
    """Names of patterns: no others are used. Empty for all."""
    disable_patterns: tuple[str, ...] = ()
    """Names of patterns that are not used."""

    def rule(self) -> Rule:
        if self.file is None:
            return PatternRule((), Selection())
        path = Path(self.file)
        try:
            source = path.read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise PassFailedException(f"'{self.name}' option 'file': cannot read '{self.file}': {reason}") from None
        if path.suffix == ".py":
            rule = load_rule(source, self.file)
            return rule if self._selected([rule.name]) else PatternRule((), Selection())
        if path.suffix != ".mlir":
            expected = "expected a .mlir file of pdl.pattern or a .py file with a rule"
            raise PassFailedException(f"'{self.name}' option 'file': {expected}, got '{self.file}'")
        patterns = parse_patterns(_decoded(source, self.file), self.file, _context())
        names = self._selected([pattern.name for pattern in patterns])
        chosen = [pattern for pattern in patterns if pattern.name in names]
        return PatternRule(chosen, Selection(self.only, self.except_), self.peak_limit)

    def _selected(self, names: Sequence[str]) -> set[str]:
        """The names that the options leave. Raises PassFailedException for one that the file does not have."""
        options = {"enable-patterns": self.enable_patterns, "disable-patterns": self.disable_patterns}
        for option, name in ((option, name) for option, given in options.items() for name in given):
            if name not in names:
                close = get_close_matches(name, names, 1)
                hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(names)}"
                raise PassFailedException(f"'{self.name}' option '{option}': no '{name}' in '{self.file}'; {hint}")
        return set(self.enable_patterns or names) - set(self.disable_patterns)


def _decoded(source: bytes, file: str) -> str:
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise refused_at(file, line, 1, f"expected UTF-8 text, got byte 0x{source[error.start]:02x}") from None


def _context() -> Context:
    """Knows xDSL's dialects and ours, for the attributes in patterns and the names of ops."""
    ctx = Context()
    ours = {"graph": lambda: GRAPH, "fused": lambda: FUSED}
    for name, factory in {**get_all_dialects(), **ours}.items():
        ctx.register_dialect(name, factory)
    return ctx


@dataclass
class _Match:
    """Ops that are to be one kernel, the root first."""

    pattern: Pattern
    ops: list[Operation]

    def members(self, graph: GroupGraph) -> list[Group]:
        """The groups that hold the ops now, in canonical order."""
        named = (op for op in self.ops if not is_creation(op))
        groups = dict.fromkeys(graph.group_of[graph.top(op)] for op in named)
        return sorted(groups, key=lambda group: graph.position[group.first])


@dataclass
class PatternRule:
    """
    Merges what matches. Which matches win is settled for the whole block beforehand, on groups of its own: the order in
    which pairs are offered is another than that of priority.
    """

    patterns: Sequence[Pattern]
    selection: Selection
    peak_limit: int | None = None
    _graph: GroupGraph | None = None
    _chosen: dict[Group, list[_Match]] = field(default_factory=dict[Group, list[_Match]])

    def partners(self, graph: GroupGraph, group: Group) -> list[Group]:
        if self._graph is not graph:
            self._graph, self._chosen = graph, {}
            for match in self._choose(graph) if self.patterns else ():
                self._chosen.setdefault(graph.group_of[graph.top(match.ops[0])], []).append(match)
        sets = [match.members(graph) for match in self._chosen.get(group, ())]
        return [next(m for m in members if m is not group) for members in sets if group in members and len(members) > 1]

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        for match in self._chosen.get(consumer, ()):
            members = match.members(graph)
            if producer in members and consumer in members:
                known = [match for member in members for match in self._chosen.get(member, ())]
                self._chosen.update(
                    {member: list({id(match): match for match in known}.values()) for member in members}
                )
                return members
        return None

    def _choose(self, graph: GroupGraph) -> list[_Match]:
        """The matches that win, by priority; all of them together are legal. The others are remarks."""
        trial = GroupGraph(graph.block, graph.limits, graph.device)
        merge_named_groups(trial)
        if self.peak_limit is not None:
            trial.guards.append(PeakLimit(trial, self.peak_limit))
        view = BlockView(trial.position)
        makers: dict[Group, str] = {}
        chosen: list[_Match] = []
        for pattern in self.patterns:
            for op in view.candidates(pattern):
                ops = pattern.match(op, view)
                if ops is None or len(members := (match := _Match(pattern, ops)).members(trial)) < 2:
                    continue
                others = ", ".join(f"'{group.first.name}'" for group in members if trial.top(op) not in group.ops)
                refusal = self._refuse(trial, match, members, makers) or trial.merge(members)
                if refusal is None:
                    chosen.append(match)
                    makers[trial.group_of[trial.top(op)]] = pattern.name
                    remark(_NAME, op, "match", f"is the root of a match of '{pattern.name}', with {others}")
                else:
                    message = f"not fused with {others} by pattern '{pattern.name}': {refusal.message}"
                    remark(_NAME, op, refusal.code, message, flip=refusal.flip, numbers=refusal.numbers)
        return chosen

    def _refuse(
        self, graph: GroupGraph, match: _Match, members: list[Group], makers: dict[Group, str]
    ) -> Refusal | None:
        return (
            next(
                (no for group in members if (no := _refuse_overlap(group, match, makers.get(group))) is not None), None
            )
            or self.selection.refuse(members)
            or graph.refuse_by_limits(members)
            or _refuse_schedule(graph, members)
        )


def _refuse_overlap(group: Group, match: _Match, maker: str | None) -> Refusal | None:
    """Refuses to tear a kernel apart, and ops that no kernel may hold."""
    if not is_fusable(group):
        return Refusal("unused", f"nobody reads a result of '{group.first.name}'", flip="--dce")
    inside = set(match.ops)
    for op in (inner for outer in group.ops for inner in member_ops([outer])):
        if op not in inside and not is_creation(op):
            if maker is None:
                message, flip = f"it would take in '{op.name}' of a kernel made before", "--unfuse before"
            else:
                message = f"pattern '{maker}' came first, with '{op.name}'"
                flip = f"a benefit above that of '{maker}'"
            return Refusal("overlap", message, flip=flip)
    return None


def _refuse_schedule(graph: GroupGraph, members: list[Group]) -> Refusal | None:
    """Refuses what could only run op by op, which is slower than kernels of its parts. Composite ops are open yet."""
    ops = member_ops([op for group in members for op in group.ops])
    if (library := next((op for op in ops if isinstance(op, OpaqueOp)), None)) is not None:
        return Refusal("opaque", f"'{library.name}' is run as a whole by a library", flip="--fuse-epilogue")
    values = [value for op in ops for value in (*op.operands, *op.results)]
    if any(isinstance(op, CompositeOp) for op in ops) or not all(map(is_static, values)):
        return None
    results = graph.results(members)
    if max(group.kind for group in members) <= FusionKind.BROADCAST and len({prod(shape(v)) for v in results}) == 1:
        return None
    try:
        trace(results, dict.fromkeys(op for group in members for op in group.ops))
    except Unschedulable as reason:
        return Refusal(reason.code, str(reason), flip='fuse_group = "name" on the ops')
    except VerifyException as error:
        return Refusal("no-scalar", str(error), flip='fuse_group = "name" on the ops')
    return None
