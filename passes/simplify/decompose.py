"""Replace composite ops (softmax, layer_norm, ...) by the primitive ops that define them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.kernel_access import library_op
from fuse_opt.dialects.analysis.storage import forget_plan, functions_of
from fuse_opt.dialects.fused import STOP_FUSION, KernelOp, directives, walk_open
from fuse_opt.dialects.graph.materialize import laid_out
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.shapes import is_sized
from fuse_opt.dialects.interfaces.transformed_weight import TransformedWeight
from fuse_opt.dialects.types.encodings import encoding_of
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

_OF_RESULTS = (STOP_FUSION, "keep_live", "must_inplace")
"""Directives about the results of an op, and not about the ops that make them."""


@dataclass(frozen=True)
class DecomposePass(RewritePass):
    """A composite becomes its decomposition, in place, inside kernels too, until none is left.

    A composite of which extents are unknown stays: definitions divide by counts and give shapes. `infer-shapes` may help. So does
    one whose kernel names the implementation that runs it (see select-composites), and a weight whose
    transforms a kernel reads that names one.
    Directives of the composite go to each op of the decomposition, so that a group asked for stays one.

    Ensures: no other `CompositeOp` of static operands remains.
    """

    name = "decompose"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions_of(op):
            if any(map(_is_sized, _open_composites(function))):
                forget_plan(function)  # an op that had memory of its own may become a view
        for composite in _open_composites(op)[::-1]:
            decomposed(composite)


def decomposed(op: CompositeOp) -> None:
    """Replaces a composite, and the composites that it is made of, where extents are known."""
    waiting = [op]
    while waiting:
        composite = waiting.pop()
        if _is_sized(composite):
            waiting.extend(_expand(composite))
        else:
            message = "is not decomposed: extents of its operands are unknown"
            remark(DecomposePass.name, composite, "dynamic-shape", message)


def _open_composites(root: Operation) -> list[CompositeOp]:
    """The composites that no implementation runs as they are."""
    found = [inner for inner in walk_open(root) if isinstance(inner, CompositeOp)]
    return [op for op in found if not _is_run(op)]


def _is_run(op: CompositeOp) -> bool:
    """Whether what the kernel names runs it, leaves it beside that, or reads in place of its result what it is made from."""
    kernel = op.parent_op()
    if not isinstance(kernel, KernelOp):
        return False
    if library_op(kernel) is op or op in kernel.saved_ops():
        return True
    return kernel.implementation is not None and isinstance(op, TransformedWeight)


def _is_sized(op: CompositeOp) -> bool:
    return all(map(is_sized, op.operands))


def _expand(op: CompositeOp) -> list[CompositeOp]:
    """Puts copies of the decomposition's ops before `op` and erases it; returns the composites among them."""
    parent = op.parent
    assert parent is not None
    expansion = op.expansion()
    given = zip(expansion.block.args, op.operands, strict=True)
    copies: dict[SSAValue, SSAValue] = {argument: _converted(value, argument.type, op) for argument, value in given}
    inner: list[CompositeOp] = []
    kept = directives(op)
    inside = {name: value for name, value in kept.items() if name not in _OF_RESULTS}
    makers = {value.owner for value in expansion.results}
    for source in expansion.block.ops:
        copy = source.clone(copies)
        copy.location = op.location
        copy.attributes.update(kept if source in makers else inside)
        parent.insert_op_before(copy, op)
        if isinstance(copy, CompositeOp):
            inner.append(copy)
    for result, value in zip(op.results, expansion.results, strict=True):
        new = _converted(copies[value], result.type, op)
        new.name_hint = result.name_hint or new.name_hint
        result.replace_all_uses_with(new)
    Rewriter.erase_op(op)
    if isinstance(kernel := parent.parent_op(), KernelOp):
        kernel.drop_decisions()
    return inner


def _converted(value: SSAValue, type_: Attribute, before: CompositeOp) -> SSAValue:
    """The value in the layout of a type, converted before the op where it lies in another one."""
    wanted = encoding_of(type_)
    if encoding_of(value.type) == wanted:
        return value
    conversion = laid_out(value, wanted)
    conversion.location = before.location
    assert before.parent is not None
    before.parent.insert_op_before(conversion, before)
    return conversion.results[0]
