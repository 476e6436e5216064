"""Fold factors and terms of channels that follow from frozen arguments into the weights of what they are applied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.prepared import called_functions, frozen_arguments
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.graph.movement.views import ReshapeOp
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import int_array
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.frozen.sources import Sources, may_move
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

_FACTORS = ("mul", "div")
_TERMS = ("add", "sub")


@dataclass(frozen=True)
class FoldFrozenFactorsPass(RewritePass):
    """A product or convolution with a frozen weight gives what frozen factors of channels behind it would make of its result.

    ```mlir
    %y = graph.conv %x, %w : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x6x6xf32>
    %c = graph.subtract %y, %mean : (tensor<1x16x6x6xf32>, tensor<16x1x1xf32>) -> tensor<1x16x6x6xf32>
    %r = graph.multiply %c, %scale : (tensor<1x16x6x6xf32>, tensor<16x1x1xf32>) -> tensor<1x16x6x6xf32>
    ```
    becomes, with the mean and the scale seen through views,
    ```mlir
    %v = graph.multiply %w, %scale : (tensor<16x3x3x3xf32>, tensor<16x1x1x1xf32>) -> tensor<16x3x3x3xf32>
    %y = graph.conv %x, %v : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x6x6xf32>
    %m = graph.multiply %mean, %scale : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    %r = graph.subtract %y, %m : (tensor<1x16x6x6xf32>, tensor<16x1x1xf32>) -> tensor<1x16x6x6xf32>
    ```
    of which `hoist-frozen` has the second function compute all but the convolution and one term: so batch normalisation
    under inference is an addition. Factors are those that the result is multiplied with or divided by, terms what is added or
    subtracted, in any number; each is one number for a channel, or for all. Results round otherwise, within what the sums of
    the product may be off: f32 and f64 alone, as weights of 16 bits would be rounded a second time. Left as it is: a result
    that others read, ops with directives, and what has no factor that a frozen argument has a part in, nor two terms.
    Run it before hoist-frozen and assign-layouts, and canonicalize and cse before.
    """

    name = "fold-frozen-factors"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in called_functions(op):
            if frozen_arguments(function) and function.body.first_block is function.body.last_block:
                _Folding(function, self.name).run()


@dataclass(frozen=True, slots=True)
class _Link:
    """An op that applies a number of each channel to what it reads first."""

    op: StructuredOp
    number: int
    """Of the operand that has the numbers."""

    @property
    def numbers(self) -> SSAValue:
        return self.op.operands[self.number]

    @property
    def function(self) -> str:
        return self.op.body().function


class _Folding:
    def __init__(self, function: FuncOp, name: str) -> None:
        self.block = function.body.block
        self.name = name
        self.sources = Sources(function)

    def run(self) -> None:
        ops = list(self.block.ops)
        for op in ops:
            if may_move(op):
                self.sources.follow(op)
        for op in ops:
            if isinstance(op, OpaqueOp) and (axes := self._axes(op)) is not None:
                links = self._links(op, axes[1])
                if self._is_worth_it(links):
                    _fold(op, axes, links)
                    why = "gives what factors and terms behind it would make of its result: they are in its weight"
                    remark(self.name, op, "folded", why, numbers={"ops": len(links)})
                    for each in (*[link.op for link in reversed(links)], op):
                        Rewriter.erase_op(each)

    def _axes(self, op: OpaqueOp) -> tuple[int, int] | None:
        """Of a weight that may be changed, and of the result."""
        if directives(op) or len(op.results) != 1 or len(op.operands) != 2 or (axes := op.scaled_axes()) is None:
            return None
        values = (*op.operands, *op.results)
        is_plain = not any_encoded(values) and len({dtype(value) for value in values}) == 1
        if not is_plain or dtype(op.results[0]).itemsize < 4 or not all(map(is_static, values)):
            return None
        weight = op.operands[1]
        return axes if self.sources.knows(weight) and self.sources.nbytes(weight) is not None else None

    def _links(self, op: OpaqueOp, axis: int) -> list[_Link]:
        """The ops behind a product that can be folded, in order."""
        found: list[_Link] = []
        value: SSAValue = op.results[0]
        term = ""
        while (link := self._link(value, axis)) is not None:
            if link.function in _TERMS:
                if (term, link.function) == ("sub", "sub"):
                    break  # the sum of both has no op at hand
                term = term or link.function
            found.append(link)
            value = link.op.results[0]
        return found

    def _link(self, value: SSAValue, axis: int) -> _Link | None:
        uses = list(value.uses)
        reader = uses[0].operation if len(uses) == 1 else None
        if not isinstance(reader, StructuredOp) or reader.parent is not self.block or directives(reader):
            return None
        if reader.COMBINE or len(reader.operands) != 2 or reader.results[0].type != value.type:
            return None
        link, body = _Link(reader, 1 - uses[0].index), reader.body()
        if body.function not in (*_FACTORS, *_TERMS) or any(each.function != "operand" for each in body.args):
            return None
        if [each.value for each in body.args] != [0, 1] or (body.function in ("div", "sub") and link.number != 1):
            return None
        is_known = self.sources.knows(link.numbers) and dtype(link.numbers) is dtype(value)
        return link if is_known and _is_of_channels(shape(link.numbers), shape(value), axis) else None

    def _is_worth_it(self, links: Sequence[_Link]) -> bool:
        factors = [link for link in links if link.function in _FACTORS]
        return len(links) - len(factors) > 1 or any(self.sources.nbytes(link.numbers) is not None for link in factors)


def _is_of_channels(numbers: Sequence[int], result: Sequence[int], axis: int) -> bool:
    """Whether there is one number for each index of an axis of the result, or one for all."""
    first = len(result) - len(numbers)
    return all(n == 1 or first + place == axis for place, n in enumerate(numbers))


def _fold(op: OpaqueOp, axes: tuple[int, int], links: Sequence[_Link]) -> None:
    """Puts before the last op what gives its result, which is read in its place."""
    build, last = GraphBuilder(), links[-1].op
    weight = op.operands[1]
    term: SSAValue | None = None
    added = next((link for link in links if link.function in _TERMS), None)
    for link in links:
        numbers = build(ReshapeOp, link.numbers, shape=int_array([prod(shape(link.numbers))]))
        if link.function in _FACTORS:
            weight = _like(build, link, weight, _along(build, numbers, axes[0], weight))
            term = None if term is None else _like(build, link, term, numbers)
        elif term is None or added is None:
            term = numbers
        else:  # what is added to what is subtracted is subtracted from it
            term = _like(build, added if added.function == "sub" else link, term, numbers)
    result = build(type(op), op.operands[0], weight, **op.properties)
    if term is not None and added is not None:
        result = _like(build, added, result, _along(build, term, axes[1], result))
    for new in build.ops:
        new.location = op.location
    assert last.parent is not None
    last.parent.insert_ops_before(build.ops, last)
    result.name_hint = last.results[0].name_hint
    last.results[0].replace_all_uses_with(result)


def _like(build: GraphBuilder, link: _Link, value: SSAValue, numbers: SSAValue) -> SSAValue:
    """What a link's op gives of a value and numbers of it."""
    return build(type(link.op), value, numbers, **link.op.properties)


def _along(build: GraphBuilder, numbers: SSAValue, axis: int, value: SSAValue) -> SSAValue:
    """Numbers as they meet an axis of a value."""
    extents = [1] * len(shape(value))
    extents[axis] = shape(numbers)[0]
    return build(ReshapeOp, numbers, shape=int_array(extents))
