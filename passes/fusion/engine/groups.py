"""Groups of ops that are, or become, one kernel: what is known of one by itself, and the order in which ops are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.dialects.fused import RECOMPUTED, STOP_FUSION, KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp


@dataclass(eq=False)
class Group:
    """Ops that are, or become, one kernel; `rank` orders groups topologically."""

    ops: list[Operation]
    rank: int
    kind: FusionKind
    """The least fusible kind among the ops."""
    count: int
    """Graph ops, those in kernels counted one by one."""
    fuse_group: str | None
    """The name that a directive gives, if any."""
    no_fuse: bool
    """Whether a directive keeps it alone."""
    inputs: dict[SSAValue, None]
    """Values that the ops read from outside, but those of ops without operands, in order of first use."""
    outputs: list[OpResult]
    """Results that are read outside of it; at least one where none is."""
    stops: list[OpResult]
    """Values that no op of the same kernel may read."""
    producers: dict[Group, None] = field(default_factory=dict["Group", None])
    """The groups that it reads, as the keys."""
    consumers: dict[Group, None] = field(default_factory=dict["Group", None])
    """The groups that read it, as the keys."""
    merged: bool = False
    moves_nothing: bool | None = None
    """Whether all ops, those of kernels too, are aliases; None when nobody has asked yet."""
    products: int | None = None
    """How many products there are among the ops; None when nobody has asked yet."""
    recomputed: Attribute | None = None
    """The readers for which all its ops compute again what others do."""

    @property
    def is_directed(self) -> bool:
        """Whether a person said with what the ops may be merged."""
        return self.no_fuse or self.fuse_group is not None or bool(self.stops)

    @property
    def first(self) -> Operation:
        """The first op."""
        return self.ops[0]


def single(op: Operation, position: int, alive: bool) -> Group:
    """The group of one op; one that nothing needs is left for dce."""
    ops = member_ops([op])
    read = [result for result in op.results if result.uses]
    fusable = bool(ops) and alive and isinstance(op, GraphOp | KernelOp)
    kind = max((kind_of(inner) for inner in ops), default=FusionKind.OPAQUE) if fusable else FusionKind.OPAQUE
    directed = [inner.attributes for inner in (op, *ops) if inner.attributes]
    names = [attributes.get("fuse_group") for attributes in directed]
    name = next((value.data for value in names if isinstance(value, StringAttr)), None)
    no_fuse = any("no_fuse" in attributes for attributes in directed)
    inputs = dict.fromkeys(value for value in op.operands if not is_creation(value.owner))
    outputs = read or list(op.results)
    group = Group([op], position, kind, max(len(ops), 1), name, no_fuse, inputs, outputs, _stops(op))
    group.recomputed = _recomputed(ops) if directed else None
    return group


def _recomputed(ops: Sequence[Operation]) -> Attribute | None:
    stages = {op.attributes.get(RECOMPUTED) for op in ops if not is_creation(op)}
    return stages.pop() if len(stages) == 1 else None


def _stops(op: Operation) -> list[OpResult]:
    if isinstance(op, KernelOp):
        made = zip(op.results, op.yielded(), strict=True)
        return [result for result, value in made if _is_stop(value.owner)]
    return list(op.results) if STOP_FUSION in op.attributes else []


def _is_stop(op: Operation | Block) -> bool:
    return isinstance(op, Operation) and STOP_FUSION in op.attributes


def kind_of(op: GraphOp) -> FusionKind:
    """An op's fusion kind; opaque when it has no scalar meaning."""
    return op.fusion_kind() if isinstance(op, StructuredOp) else FusionKind.OPAQUE


def used_values(op: Operation) -> Iterable[SSAValue]:
    """The values that an op or the ops nested in it use."""
    if not op.regions or isinstance(op, KernelOp):
        return op.operands
    return [value for inner in op.walk() for value in inner.operands]


def is_library(group: Group) -> bool:
    """Whether the group holds an op that only an implementation can run."""
    return any(isinstance(op, OpaqueOp) for op in member_ops(group.ops))


def canonical_order(block: Block) -> tuple[list[Operation], int]:
    """
    Every op of the block after those it uses, however independent ops are listed: by depth-first search from the ops
    that are not of tensors (the return among them), operands in order. Ops that none of these needs come last, in the
    order of the block; with it, how many others there are.
    """
    order: list[Operation] = []
    seen: set[Operation] = set()
    for root in block.ops:
        if not isinstance(root, GraphOp | KernelOp):
            _visit(root, block, seen, order)
    alive = len(order)
    for root in block.ops:
        _visit(root, block, seen, order)
    return order, alive


def _visit(root: Operation, block: Block, seen: set[Operation], order: list[Operation]) -> None:
    if root in seen:
        return
    seen.add(root)
    stack = [(root, _makers(root, block))]
    while stack:
        op, makers = stack[-1]
        following = next((maker for maker in makers if maker not in seen), None)
        if following is None:
            order.append(op)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, _makers(following, block)))


def _makers(op: Operation, block: Block) -> Iterator[Operation]:
    return (v.op for v in used_values(op) if isinstance(v, OpResult) and v.op.parent is block)
