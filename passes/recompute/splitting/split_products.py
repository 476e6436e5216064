"""Give each part of a product a product of its own, so that the whole is not kept in memory for the part that is read last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.graph.bases.movement import slice_properties
from fuse_opt.dialects.graph.movement.views import SliceOp
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.partial_reads import PartialRead
from fuse_opt.dialects.interfaces.shapes import is_static, shape
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

Places = Mapping[Operation, int]
"""Of ops in their block."""


@dataclass(frozen=True)
class SplitProductsPass(RewritePass):
    """Of a product whose parts are read one after the other each part is a product of its own, of a part of the weight.

    ```mlir
    %d = graph.matmul %g, %w {transpose_rhs = true} : ...        // the gradient of a concatenation
    %a = graph.slice %d {starts = array<i64: 0, 0>, ...} : ...
    ...                                                          // readers of %a, and much else
    %b = graph.slice %d {starts = array<i64: 0, 48>, ...} : ...
    %r = graph.add %b, %c : ...
    ```
    becomes
    ```mlir
    %v = graph.slice %w {starts = array<i64: 0, 0>, ...} : ...
    %a = graph.matmul %g, %v {transpose_rhs = true} : ...
    %u = graph.slice %w {starts = array<i64: 48, 0>, ...} : ...
    %b = graph.matmul %g, %u {transpose_rhs = true} : ...
    ...
    %r = graph.add %b, %c : ...
    ```
    so that the memory of a part is free when it has been read, where all of `%d` was kept for the last one. It is done for parts
    along an axis of the result that is one of the second operand, which do not overlap and are all that is read. The first
    operand is read by each product: that takes time, so budgets of memory try it where nothing fits without.

    Run it before the fusion passes. Requires: nothing. Ensures: each element stays the same sum of products, in the order in
    which what runs the smaller product adds; ops with directives stay as they are.
    """

    name = "split-products"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for block in sweep_functions(op):
            for product in _products(block):
                _split(product)


@dataclass(frozen=True)
class _Product:
    """One that is read in parts, and where they lie along the axis of the weight."""

    op: OpaqueOp
    axis: int
    """Of the weight."""
    parts: Sequence[tuple[PartialRead, range]]


def reads_products_in_parts(module: ModuleOp) -> bool:
    """Whether the pass would do anything."""
    return any(_products(block) for block in sweep_functions(module))


def _products(block: Block) -> list[_Product]:
    place = {op: number for number, op in enumerate(block.ops)}
    found = (_product(op, place) for op in place if isinstance(op, OpaqueOp))
    return [each for each in found if each is not None]


def _product(op: OpaqueOp, place: Places) -> _Product | None:
    values = (*op.operands, *op.results)
    if len(op.operands) != 2 or len(op.results) != 1 or directives(op) or (axes := op.scaled_axes()) is None:
        return None
    if any_encoded(values) or not all(map(is_static, values)):
        return None
    readers = dict.fromkeys(use.operation for use in op.results[0].uses)
    parts = [each for each in readers if isinstance(each, PartialRead) and each in place and not directives(each)]
    found = {part: read[1] for part in parts if (read := part.part()) is not None and read[0] == axes[1]}
    if len(found) < max(len(readers), 2) or not _are_apart(list(found.values())) or not _are_read_apart(parts, place):
        return None
    return _Product(op, axes[0], sorted(found.items(), key=lambda each: each[1].start))


def _are_apart(ranges: Sequence[range]) -> bool:
    """Whether no two of them overlap."""
    order = sorted(ranges, key=lambda each: each.start)
    return all(first.stop <= second.start for first, second in pairwise(order))


def _are_read_apart(parts: Sequence[PartialRead], place: Places) -> bool:
    """Whether the readers of one part are done before some other one is read."""
    read = [[_place(use.operation, place) for use in part.results[0].uses] for part in parts]
    return all(read) and min(map(max, read)) < max(map(min, read))


def _place(op: Operation, place: Places) -> int:
    """That of an op, or of the one of the block that it is within."""
    while op not in place:
        op = cast(Operation, op.parent_op())
    return place[op]


def _split(product: _Product) -> None:
    op, weight = product.op, product.op.operands[1]
    why = f"is a product for each of {len(product.parts)} parts, or all of its result were kept for the last one"
    remark(SplitProductsPass.name, op, "split", why)
    for part, positions in product.parts:
        build = GraphBuilder()
        ranges = [positions if axis == product.axis else range(n) for axis, n in enumerate(shape(weight))]
        filters = build(SliceOp, weight, **slice_properties(ranges, shape(weight)))
        made = build(type(op), op.operands[0], filters, **op.properties)
        for each in build.ops:
            each.location = op.location
        block = op.parent
        assert block is not None
        block.insert_ops_before(build.ops, op)
        Rewriter.replace_op(part, [], [made])
    Rewriter.erase_op(op)
