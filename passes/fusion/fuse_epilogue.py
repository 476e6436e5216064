"""Fuse an opaque op with the pointwise ops behind it, or before it, where its implementation offers to run them, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.analysis.contractions.product_copies import Computed
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.chains import ChainOffer, trace_chain
from fuse_opt.dialects.implementation.offers import Offer, PointwiseOffer
from fuse_opt.dialects.implementation.queries import fusing_offer, opaque_op, wanted_implementation
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, shape
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types.extents import estimate, may_exceed
from fuse_opt.passes.fusion.engine.cost_model import moves_nothing
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal, Rule
from fuse_opt.passes.fusion.engine.groups import kind_of
from fuse_opt.passes.fusion.engine.traced_groups import TracedGroups
from fuse_opt.passes.fusion.engine.worklist import FusionPass


@dataclass
class EpilogueRule:
    """One side holds an opaque op, the other is pointwise; together they are what the op's implementation offers."""

    traced: TracedGroups = field(default_factory=TracedGroups)

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        members = [producer, consumer]
        before, behind = map(_sole_opaque, members)
        if (
            (op := before or behind) is None
            or (before and behind)
            or not _is_pointwise(producer if behind else consumer)
        ):
            return None
        if behind is None and (refusal := _refuse_further_results(graph, producer, consumer)) is not None:
            return refusal
        return _Fused(graph, members, op, self.traced).refuse() or members


def _refuse_further_results(graph: GroupGraph, producer: Group, consumer: Group) -> Refusal | None:
    """Refuses to store more than the producer does alone, where that is a view of it, or read by what may compute it."""
    if len(graph.results([producer, consumer])) <= len(graph.results([producer])):
        return None
    if moves_nothing(consumer):
        return Refusal("alias", "it is a view of what is stored for others anyway", flip="nothing to gain")
    if any(reader.kind == FusionKind.REDUCTION for reader in consumer.consumers):
        message = "a further result would be stored, which a reduction that reads it can compute"
        return Refusal("further-result", message, flip="no reader of what is stored already, or no reduction")
    return None


@dataclass(frozen=True)
class FuseEpiloguePass(FusionPass):
    """An opaque op and the pointwise ops that read its result become one kernel, where its implementation offers that.

    ```mlir
    %0 = fused.kernel(...) -> (tensor<8x4xf32>) attributes {implementation = "mylib.matmul"} { ... graph.matmul ... }
    %1 = graph.add %0, %bias : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
    %2 = graph.relu %1 : (tensor<8x4xf32>) -> tensor<8x4xf32>
    ```
    becomes one `fused.kernel` of that implementation with matmul, add and relu, which yields `%2`. So do pointwise ops
    that nothing but the opaque op reads, for an implementation that offers a prologue.

    Refused: what the offer excludes (kinds of ops, their number, other operands), results of another size than the op's,
    and an opaque op whose result is read elsewhere, too. Requires: nothing; see select-implementation for another
    implementation than the default. Ensures: as every fusion; a kernel that names its implementation keeps the name.
    """

    name = "fuse-epilogue"

    def rule(self) -> Rule:
        return EpilogueRule()

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        named = [
            (found, kernel.implementation)
            for kernel in op.walk()
            if isinstance(kernel, KernelOp) and kernel.implementation is not None
            if (found := opaque_op(kernel)) is not None
        ]
        super().rewrite(ctx, op)
        for inner, name in named:
            if isinstance(kernel := inner.parent_op(), KernelOp):
                kernel.implementation = name


def _sole_opaque(group: Group) -> OpaqueOp | None:
    """The group's opaque op, when it has one, of one result, beside nothing but ops with a scalar meaning."""
    if group.kind < FusionKind.OPAQUE:
        return None
    ops = member_ops(group.ops)
    found = [op for op in ops if isinstance(op, OpaqueOp)]
    if len(found) != 1 or len(found[0].results) != 1 or not all(_is_movable(op) for op in group.ops):
        return None
    return found[0] if all(op is found[0] or isinstance(op, StructuredOp) for op in ops) else None


def _is_movable(op: Operation) -> bool:
    """Whether no decision is lost with the op's kernel: not to run it as it is, or by something that runs all of it."""
    if not isinstance(op, KernelOp):
        return True
    return op.schedule_kind() != "reference" and (op.implementation is None or opaque_op(op) is not None)


def _is_pointwise(group: Group) -> bool:
    if group.kind > FusionKind.INJECTIVE or not all(map(_is_movable, group.ops)):
        return False
    ops = member_ops(group.ops)
    return all(isinstance(op, StructuredOp) and op.stored_value() is None for op in ops)


class _Fused:
    """The kernel that members would be: its ops before the opaque one and behind it."""

    def __init__(self, graph: GroupGraph, members: Sequence[Group], op: OpaqueOp, traced: TracedGroups) -> None:
        self.graph, self.members, self.traced = graph, members, traced
        self.op = op
        self.joins_before = _sole_opaque(members[-1]) is op
        self.outer = dict.fromkeys(outer for group in members for outer in group.ops)
        self.ops = [inner for inner in member_ops(self.outer) if not is_creation(inner)]
        self.results = [self._inside(value) for value in graph.results(members)]
        self.read = {inner: [self._inside(value) for value in inner.operands] for inner in self.ops}
        self.before = self._needed_by_op()
        self.behind = [inner for inner in self.ops if inner is not op and inner not in self.before]

    def _inside(self, value: SSAValue) -> SSAValue:
        """The value through the boundaries of kernels among the members: what an op makes, or one from outside."""
        while True:
            if isinstance(value, OpResult) and isinstance(value.op, KernelOp) and value.op in self.outer:
                value = value.op.yielded()[value.index]
                continue
            kernel = value.block.parent_op() if isinstance(value, BlockArgument) else None
            if not isinstance(value, BlockArgument) or not isinstance(kernel, KernelOp):
                return value
            value = kernel.operands[value.index]

    def _needed_by_op(self) -> set[Operation | Block]:
        found: set[Operation | Block] = set()
        stack = list(self.read[self.op])
        while stack:
            maker = stack.pop().owner
            if isinstance(maker, GraphOp) and maker in self.read and maker not in found:
                found.add(maker)
                stack.extend(self.read[maker])
        return found

    def refuse(self) -> Refusal | None:
        """Why the implementation does not run them as one kernel."""
        offer = self._offer()
        values = [*self.op.operands, *(value for inner in self.ops for value in inner.results)]
        if not all(map(is_sized, values)):
            return Refusal("dynamic-shape", "it has unknown shapes", flip="run infer-shapes")
        if (marked := self._must_inplace()) is not None:
            message = f"'{marked.name}' carries must_inplace, and nothing is written in place with other ops"
            return Refusal("must-inplace", message, flip="remove must_inplace")
        refusal = self._refuse_reads() or self._refuse_epilogue(offer) or self._refuse_prologue(offer)
        if refusal is not None or offer is None or offer.trace is None:
            return refusal
        computes = offer.computes if self.joins_before else None
        found = self.traced.computed(offer.trace, computes, self.results, self.outer)
        return found if isinstance(found, Refusal) else self._refuse_computed(found)

    def _refuse_computed(self, operands: Sequence[Computed]) -> Refusal | None:
        """Refuses where computing operands in copies takes longer than storing and reading them once."""
        for operand in operands:
            if (prologue := _Prologue(self.graph, operand, self._has_row_before())).seconds < 0:
                message = (
                    f"the operand would be computed {operand.times} times, with {operand.work} operations for an element, "
                    f"which takes {-prologue.seconds * 1e6:.3g} us longer than storing it and reading it"
                )
                numbers: dict[str, float] = {"times": operand.times, "work": operand.work, "bytes": prologue.stored}
                return Refusal("recompute", message, numbers, "fewer columns or rows of the product")
        return None

    def _has_row_before(self) -> bool:
        """Whether what is before the op reads what a pass over rows gives, which may compute and store it as well."""
        producers = (
            group for member in self.members if member.kind <= FusionKind.INJECTIVE for group in member.producers
        )
        return any(group.kind == FusionKind.REDUCTION for group in producers)

    def _offer(self) -> Offer | None:
        kernel = self.op.parent_op()
        name = kernel.implementation if isinstance(kernel, KernelOp) else None
        return fusing_offer(self.op, wanted_implementation(self.op) if name is None else name.data)

    def _must_inplace(self) -> Operation | None:
        return next((op for op in (*self.outer, *self.ops) if "must_inplace" in op.attributes), None)

    def _refuse_reads(self) -> Refusal | None:
        """Values before the op are for it alone, its result is for those behind it."""
        inner = {value for op in self.before if isinstance(op, Operation) for value in op.results}
        shared = [*self.results, *(value for op in self.behind for value in self.read[op])]
        if any(value in inner for value in shared):
            return Refusal("multi-use", f"what '{self.op.name}' reads is read elsewhere, too", flip="no other reader")
        if self.behind and self.op.results[0] in self.results:
            message = f"the result of '{self.op.name}' is read elsewhere, so it is stored anyway"
            return Refusal("multi-use", message, flip="no other reader")
        return None

    def _refuse_epilogue(self, offer: Offer | None) -> Refusal | None:
        if not self.behind:
            return None
        raw = self.op.results[0]
        if any(prod(shape(value)) != prod(shape(raw)) for value in self.results):
            return Refusal("unequal-results", f"the result has not as many elements as that of '{self.op.name}'")
        # A call writes its result where one of the kernel's goes. Sums of integers are no library's: code of the program has them
        # on its stack, and mostly becomes other elements, as of dequantisation.
        is_called = offer is None or not offer.kind or dtype(raw).is_float
        if is_called and all(dtype(value) is not dtype(raw) for value in self.results):
            message = f"no result has the element type of '{self.op.name}', whose result is written there first"
            return Refusal("element-type", message, flip="a conversion in a kernel of its own")
        return self._refuse_pointwise("epilogue", offer and offer.epilogue, self.behind, raw)

    def _refuse_prologue(self, offer: Offer | None) -> Refusal | None:
        if not self.before:
            return None
        ops = [op for op in self.ops if op in self.before]
        made = list(dict.fromkeys(value for value in self.read[self.op] if value.owner in self.before))
        if (refusal := self._refuse_pointwise("prologue", offer and offer.prologue, ops, made[0])) is not None:
            return refusal
        if offer is not None and offer.trace is not None:
            return None  # which says more
        if len(made) > 1:
            return Refusal("several-operands", f"several operands of '{self.op.name}' are computed before it")
        if any(may_exceed(prod(shape(op.results[0])), prod(shape(made[0]))) for op in ops):
            return Refusal("unequal-results", f"it has not as many elements as the operand of '{self.op.name}'")
        return None

    def _refuse_pointwise(
        self, side: str, offer: PointwiseOffer | ChainOffer | None, ops: Sequence[GraphOp], value: SSAValue
    ) -> Refusal | None:
        if isinstance(offer, ChainOffer):
            return self._refuse_chain(offer, ops, value)
        if offer is None:
            message = f"the implementation of '{self.op.name}' offers no {side}"
            return Refusal("not-offered", message, flip="select-implementation of one that does")
        if (count := len(ops)) > offer.max_ops:
            numbers: dict[str, float] = {"ops": count, "limit": offer.max_ops}
            return Refusal("max-ops", f"{count} ops exceed the {offer.max_ops} of the {side} offered", numbers)
        kind = max(map(kind_of, ops))
        if kind > offer.kind:
            message = f"the {side} offered takes {offer.kind.name.lower()} ops, not {kind.name.lower()} ones"
            return Refusal("kind", message)
        members = {*ops, self.op}
        for other in (v for op in ops for v in self.read[op] if v.owner not in members and not is_creation(v.owner)):
            if offer.operands == "none" or (offer.operands == "bias" and not _is_bias(other, value)):
                wanted = "no other operand" if offer.operands == "none" else "vectors along the last axis"
                return Refusal("operands", f"the {side} offered reads {wanted}, not '{other.type}'")
        return None

    def _refuse_chain(self, offer: ChainOffer, ops: Sequence[GraphOp], raw: SSAValue) -> Refusal | None:
        """Why they are no steps that the implementation takes in its own code."""
        traced = trace_chain(raw, ops, self.read.__getitem__, self.results)
        reason = traced if isinstance(traced, str) else offer.refusal(traced[0])
        if reason is None:
            return None
        return Refusal(
            reason, f"the implementation of '{self.op.name}' takes {offer.says} behind it, and not these ops"
        )


COPY_WORK = 8
"""Simple operations that a copied element takes: it is stored to a second cache, and loaded."""


@dataclass(frozen=True)
class _Prologue:
    """An operand that is computed where it is copied, next to a pass of its own that stores it."""

    graph: GroupGraph
    operand: Computed
    has_row_before: bool

    @property
    def stored(self) -> int:
        """Bytes of the operand."""
        return self.graph.nbytes(self.operand.value)

    @property
    def seconds(self) -> float:
        """
        What is saved: a pass, whose work is done while it waits for memory, and the difference of what the product reads; less
        the work and the copies, which it waits for.
        """
        device, operand = self.graph.device, self.operand
        count, store = estimate(prod(shape(operand.value))), device.move_seconds(self.stored)
        reads = sum(device.move_seconds(self.graph.nbytes(value)) for value in operand.reads)
        saved = store
        if not self.has_row_before:  # which is there anyway
            saved = device.launch + max(store + reads, device.work_seconds(operand.work * count))
        saved += operand.times * max(store - reads, 0.0)
        return saved - device.work_seconds(operand.times * operand.work * count + COPY_WORK * operand.copied)


def _is_bias(value: SSAValue, along: SSAValue) -> bool:
    extents, count = shape(value), prod(shape(value))
    return count == 1 or (bool(shape(along)) and bool(extents) and count == extents[-1] == shape(along)[-1])
