"""Refine result types from operand types: dimensions that are `?` become known where they follow, as numbers or sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, FunctionType, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.symbolic_shapes import symbolic_shapes
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, NeedsEqual, has_sizes, sizes, sizes_asked_for, tensor
from fuse_opt.dialects.interfaces.symbols import (
    EQUAL,
    argument_extents,
    change_sizes,
    equal_names,
    is_tensor,
    size_arguments,
    stated_sizes,
)
from fuse_opt.dialects.types.extents import is_symbol, substitute, symbols
from fuse_opt.dialects.types.size import Extent, Size, Symbol, of_symbol, symbol
from fuse_opt.dialects.types.symbolic_shape import extents_of, with_extents
from fuse_opt.passes.remarks import is_collecting, remark
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class InferShapesPass(RewritePass):
    """Carries shapes forward through ops, kernels and function results.

    ```mlir
    %r = graph.exp %x : (tensor<8xf32>) -> tensor<?xf32>   // becomes -> tensor<8xf32>
    ```
    Ops whose types are known already are not touched. Nothing is made less precise. With `symbols` each `?` of an argument
    becomes a symbol, and what follows from it a size:
    ```mlir
    %r = graph.concat %x, %x ... -> tensor<?xf32>   // becomes -> tensor<?xf32, #graph.shape<2*n>>
    ```
    Symbols that an op needs to be equal become one; `graph.equal` of the function says so.
    """

    name = "infer-shapes"

    symbols: bool = False
    """Give the unknown extents of arguments symbols, and say in types what follows from them."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.walk():
            if isinstance(function, FuncOp) and _is_of_one_block(function):
                if self.symbols:
                    _name_extents(function)
                _refine_function(function)
                _refine_signature(function)
                if is_collecting():
                    self._report(function)

    def _report(self, function: FuncOp) -> None:
        """How unknown extents follow from those of the arguments."""
        shapes = symbolic_shapes(function)
        for value in shapes.extents:
            if isinstance(value, OpResult) and _is_dynamic(value):
                numbers = {"result": value.index, "shape": shapes.text(value) or "?"}
                remark(
                    self.name,
                    value.op,
                    "symbolic-shape",
                    "has a shape that follows from the arguments':",
                    numbers=numbers,
                )


def _is_of_one_block(function: FuncOp) -> bool:
    blocks = function.body.blocks
    return blocks.first is not None and blocks.first is blocks.last


def _name_extents(function: FuncOp) -> None:
    """A symbol for each `?` of an argument."""
    for value, extents in zip(list(function.body.block.args), argument_extents(function, is_limited=True), strict=True):
        if is_tensor(value) and _is_dynamic(value):
            Rewriter.replace_value_with_new_type(value, with_extents(tensor(value), extents))
    known = {one.name: of_symbol(one) for one in _bound_symbols(function)}
    if any(found != is_symbol(known.get(found.name, 0)) for found in symbols(stated_sizes(function))):
        change_sizes(
            function, lambda extent: substitute(extent, known)
        )  # what is said of them is not written at each place
    for first, *others in equal_names(function):
        found = {one.name: one for one in _bound_symbols(function)}
        for other in others:
            if first in found and other in found:
                _make_equal(function, of_symbol(found[first]), of_symbol(found[other]))


def _refine_function(function: FuncOp) -> None:
    """Once more after symbols became one, as more may follow; there are no more rounds than symbols."""
    while (needed := _first_needed(function)) is not None and _make_equal(function, *needed):
        pass


def _first_needed(function: FuncOp) -> tuple[Extent, Extent] | None:
    needed: list[tuple[Extent, Extent]] = []
    for block in function.body.blocks:
        _refine_block(block, needed)
    return next((pair for pair in needed if _replacement(*pair, _bound_symbols(function)) is not None), None)


def _make_equal(function: FuncOp, a: Extent, b: Extent) -> bool:
    """Puts one extent in the place of a symbol that has to be equal to it; whether there is such a symbol."""
    found = _replacement(a, b, _bound_symbols(function))
    if found is None:
        return False
    values, names = found
    change_sizes(function, lambda extent: substitute(extent, values))
    known = equal_names(function)
    if len(names) == 2 and not any(set(names) <= set(group) for group in known):
        joined = [group for group in known if names[1] in group]  # no argument has that name any more
        one = dict.fromkeys([names[0], *(name for group in joined for name in group), names[1]])
        groups = [*(group for group in known if group not in joined), list(one)]
        function.attributes[EQUAL] = ArrayAttr([ArrayAttr([StringAttr(name) for name in group]) for group in groups])
    return True


def _replacement(a: Extent, b: Extent, bound: list[Symbol]) -> tuple[Mapping[str, Extent], list[str]] | None:
    """
    What to put in place of symbols so that two extents are equal, and the names that are then the same; None where that is not
    seen. Of two symbols the one that arguments name first stays, with the values that both may have; a symbol becomes a number.
    """
    one, other = is_symbol(a), is_symbol(b)
    if one is None and other is None:
        return None
    if one is None or other is None:
        alone, extent = (other, a) if other is not None else (one, b)
        if alone is None or not isinstance(extent, int) or alone.problem(extent) is not None:
            return None
        return {alone.name: extent}, []
    first, second = sorted((one, other), key=lambda found: bound.index(found) if found in bound else len(bound))
    both = _both(first, second)
    return None if both is None else ({first.name: both, second.name: both}, [first.name, second.name])


def _both(first: Symbol, second: Symbol) -> Size | None:
    """The first symbol with the values that both may have; one of which nothing is said may have those of the other."""
    if not first.facts() or not second.facts():
        return symbol(first.name, **(first.facts() or second.facts()))
    multiple = lcm(first.multiple, second.multiple)
    least, most = max(first.least, second.least), min(first.most, second.most)
    if most // multiple * multiple < least:
        return None
    typical = first.typical or second.typical
    if typical is not None and (typical % multiple or not least <= typical <= most):
        typical = None
    return symbol(first.name, least, most, multiple, typical)


def _bound_symbols(function: FuncOp) -> list[Symbol]:
    """The symbols that arguments have as extents, in their order."""
    found: dict[Symbol, None] = {}
    of_values = argument_extents(function, is_limited=True) if (given := size_arguments(function)) else []
    for value in function.body.block.args:
        known = of_values[value.index] if value.index in given else sizes(value) if is_tensor(value) else ()
        for extent in known:
            if (one := is_symbol(extent)) is not None:
                found[one] = None
    return list(found)


def _refine_block(block: Block, needed: list[tuple[Extent, Extent]]) -> None:
    """
    Operands come before users, so one sweep carries every known extent as far as it goes. `needed` gets the sizes that ops need
    to be equal.
    """
    for op in list(block.ops):
        if isinstance(op, GraphOp) and any(_is_dynamic(result) or has_sizes(result) for result in op.results):
            for result, type_ in zip(list(op.results), _inferred(op, needed), strict=True):
                _refine(result, type_)
        elif isinstance(op, OutlinedOp):
            for argument, operand in zip(list(op.block.args), op.operands, strict=True):
                _refine(argument, operand.type)
            _refine_block(op.block, needed)
            for result, value in zip(list(op.results), op.yielded(), strict=True):
                _refine(result, value.type)


def _inferred(op: GraphOp, needed: list[tuple[Extent, Extent]]) -> Sequence[AnyTensor]:
    try:
        with sizes_asked_for():
            return op.infer_types()
    except NeedsEqual as error:
        needed.append(error.sizes)
    except (TypeError, VerifyException):
        pass  # what it asks has no answer for all sizes
    return op.known_types()


def _is_dynamic(value: SSAValue) -> bool:
    return DYNAMIC_INDEX in sizes(value)


def _refine(value: OpResult | BlockArgument, type_: Attribute) -> None:
    """Gives the value a type of which more extents are known."""
    given = value.type
    if not isinstance(type_, TensorType) or not isinstance(given, TensorType):
        return
    mine, other = cast(AnyTensor, given), cast(AnyTensor, type_)
    pairs = zip(extents_of(mine), extents_of(other), strict=True)
    refined = with_extents(mine, [b if a == DYNAMIC_INDEX else a for a, b in pairs])
    if refined != mine:
        Rewriter.replace_value_with_new_type(value, refined)


def _refine_signature(function: FuncOp) -> None:
    last: Operation | None = function.body.block.last_op
    if last is None:
        return
    inputs, outputs = ([value.type for value in values] for values in (function.body.block.args, last.operands))
    wanted = FunctionType.from_lists(inputs, outputs)
    if wanted != function.function_type:
        function.properties["function_type"] = wanted
