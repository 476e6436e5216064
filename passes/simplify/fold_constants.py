"""Compute ops of which all operands are constants, at compile time and bit for bit as they would be computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.fused import KernelOp, directives, walk_open
from fuse_opt.dialects.graph.materialize import filled, stored
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import topological
from fuse_opt.dialects.scalar.bits import elements
from fuse_opt.dialects.scalar.combine import joined
from fuse_opt.dialects.scalar.evaluate import Evaluator, NotKnown, Number, converted, known
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, dimensions, linearize
from fuse_opt.passes.options import check_counts
from fuse_opt.passes.rewrite_pass import RewritePass

_MODES = ("strict", "fast")


@dataclass(frozen=True)
class FoldConstantsPass(RewritePass):
    """An op on constants becomes a constant: a splat where all elements are alike, else one that is stored.

    ```mlir
    %two = graph.constant dense<2.0> : tensor<f32>
    %r = graph.sqrt %two : (tensor<f32>) -> tensor<f32>   // becomes graph.constant dense<1.41421354> : tensor<f32>
    ```
    Words that backends round differently (exp, sin, ...; `Function.ulps` above 0.5) are left alone unless `math=fast`, and so
    are sums whose rounding depends on their order. What is created from nothing (iota, full) is cheaper as it is, and so is
    what repeats a stored constant. Ops with directives are left alone.
    """

    name = "fold-constants"

    max_elements: int = 4096
    """Elements that are computed for one op, those that a reduction joins included; splats are computed once."""
    math: str = "strict"
    """`strict`: no bit of a result changes. `fast`: values may differ in their last digits."""

    def __post_init__(self) -> None:
        check_counts(self)
        if self.math not in _MODES:
            raise ValueError(f"option 'math': expected {' or '.join(_MODES)}, got '{self.math}'")

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for inner in list(walk_open(op)):
            if isinstance(inner, StructuredOp) and _may_change(inner):
                self._fold(inner)

    def _fold(self, op: StructuredOp) -> None:
        try:
            new = _value(op, self.max_elements, self.math == "fast")
        except NotKnown:
            return
        assert op.parent is not None
        new.location = op.location
        op.parent.insert_op_before(new, op)
        new.results[0].name_hint = op.results[0].name_hint
        op.results[0].replace_all_uses_with(new.results[0])
        _erase_dead(op)


def _may_change(op: StructuredOp) -> bool:
    if op.parent is None or not op.operands or directives(op) or not op.results[0].uses:
        return False
    if isinstance(kernel := op.parent.parent_op(), KernelOp) and kernel.schedule is not None:
        return False
    values = (*op.operands, *op.results)
    if any(encoding(value) is not None for value in op.results):
        return False  # constants are in row-major order
    return all(_is_constant(value.owner) for value in op.operands) and all(map(is_static, values))


def _is_constant(op: Operation | Block) -> bool:
    if not isinstance(op, StructuredOp) or op.operands:
        return False
    return op.stored_value() is not None or op.body().function == "constant"


def _value(op: StructuredOp, most: int, approximate: bool) -> GraphOp:
    """A constant in place of the op; raises NotKnown."""
    result, count = op.results[0], prod(shape(op.results[0]))
    evaluate = Evaluator(op.body(), approximate)
    splats = [_splat(value) for value in op.operands]
    if not count:
        raise NotKnown("nothing to compute")
    numbers = [number for number in splats if number is not None]
    if len(numbers) == len(splats) and not op.COMBINE and not _counts(op):
        return filled(converted(evaluate(numbers), dtype(result)), tensor(result))
    if count * prod(op.reduced_extents()) > most:
        raise NotKnown("too many elements")
    if (op.is_view() or _counts(op)) and count > sum(prod(shape(value)) for value in op.operands):
        raise NotKnown("a stored constant would grow")
    values = [converted(value, dtype(result)) for value in _elements(op, evaluate)]
    return stored(values, tensor(result))


def _counts(op: StructuredOp) -> bool:
    """Whether the value depends on the position."""
    return any(node.function == "index" for node in topological(op.body()))


def _splat(value: SSAValue) -> Number | None:
    op = value.owner
    assert isinstance(op, StructuredOp)
    return None if op.stored_value() is not None else converted(known(op.body()), dtype(value))


def _elements(op: StructuredOp, evaluate: Evaluator) -> list[Number]:
    """The value at every element of the result, in row-major order."""
    extents, reduced = shape(op.results[0]), op.reduced_extents()
    index, inner = dimensions("i", extents), dimensions("r", reduced)
    reads = [_Read(value, op.operand_index(k, index, inner)) for k, value in enumerate(op.operands)]
    found: list[Number] = []
    for place in product(*map(range, extents)):
        outer = _bound(index, place)
        if not op.COMBINE:
            found.append(evaluate([read(outer) for read in reads], place))
            continue
        parts = (_bound(inner, at) for at in product(*map(range, reduced)))
        values = [evaluate([read(outer | part) for read in reads], place) for part in parts]
        found.append(joined(op.COMBINE, values, op.initial(), op.body().dtype))
    return found


def _bound(index: tuple[IndexExpr, ...], place: tuple[int, ...]) -> dict[Dim, int]:
    """The values of the dimensions at a place; one of extent 1 is no dimension."""
    return {cast(Dim, i.terms[0][0]): at for i, at in zip(index, place, strict=True) if i.terms}


class _Read:
    """A constant operand, read at what an index map says."""

    def __init__(self, value: SSAValue, index: tuple[IndexExpr, ...]) -> None:
        op = value.owner
        assert isinstance(op, StructuredOp)
        self._address = linearize(index, shape(value))
        if self._address.loaded():
            raise NotKnown("read at positions that are data")
        self._splat = _splat(value)
        kept = op.stored_value()
        self._elements = [] if kept is None else elements(kept)
        if not prod(shape(value)):
            self._splat = 0  # never chosen

    def __call__(self, dims: dict[Dim, int]) -> Number:
        return self._elements[self._address.evaluate(dims)] if self._splat is None else self._splat


def _erase_dead(op: GraphOp) -> None:
    """Erases the op and the constants that only it read; one that carries a directive stays."""
    owners = [value.owner for value in op.operands]
    Rewriter.erase_op(op)
    for owner in dict.fromkeys(owners):
        if isinstance(owner, GraphOp) and not directives(owner) and not any(result.uses for result in owner.results):
            Rewriter.erase_op(owner)
