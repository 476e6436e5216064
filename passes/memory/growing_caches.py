"""Donated arguments that are returned with more behind them, as caches: they become buffers with room.

```mlir
func.func @main(%past: tensor<8x?x64xf32, #graph.shape<8, past, 64>> {graph.donated}, %new: tensor<8x1x64xf32>) -> ... {
  %0 = graph.concat %past, %new {axis = 1} ...
  func.return %0
```
becomes
```mlir
func.func @main(%past: tensor<8x?x64xf32, #graph.shape<8, past.room, 64>> {graph.donated}, %new: tensor<8x1x64xf32>,
                %past_count: tensor<i64> {graph.size = "past"}) -> ... {
  %0 = graph.update_slice %past, %new {axis = 1, start = #graph.size<past>} ...
  func.return %0
```
and others read `graph.leading` of it. Who calls the program keeps such buffers, and says how much of them is in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import DiagnosticException
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.shapes import sizes, sizes_asked_for, tensor
from fuse_opt.dialects.interfaces.structured_op import Growth, StructuredOp
from fuse_opt.dialects.interfaces.symbols import DIMS, SIZE, SYMBOLS, is_tensor, size_arguments
from fuse_opt.dialects.types.extents import is_symbol
from fuse_opt.dialects.types.size import Extent, symbol
from fuse_opt.dialects.types.symbol import Symbol
from fuse_opt.dialects.types.symbolic_shape import with_extents


@dataclass(frozen=True)
class GrownCache:
    """An argument that is a buffer with room, and the result that it is again."""

    argument: int
    result: int
    axis: int
    symbol: str
    """How much of it is in use at a call."""
    count: int
    """The argument whose value that is."""
    after: Extent
    """How much is in use after a call."""


class NoGrowth(DiagnosticException):
    """A function has no cache that could have room, or it is read in a way that does not let it."""


def grow_caches(function: FuncOp) -> list[GrownCache]:
    """
    Changes a function whose types say sizes; gives its caches. Raises NoGrowth where there are none, or where one that is donated
    and grows is read by others, too, or not returned.
    """
    with sizes_asked_for():
        found = [(argument, at) for argument in list(function.body.block.args) if (at := _growing(function, argument))]
        if not found:
            raise NoGrowth(
                f"'{function.sym_name.data}': expected a donated argument of unknown extent that is returned with more behind "
                "it, got none; mark such a cache with graph.donated"
            )
        caches = [_grow(function, argument, *at) for argument, at in found]
    last = function.body.block.last_op
    assert last is not None
    function.update_function_type()
    return caches


def _growing(function: FuncOp, argument: BlockArgument) -> tuple[StructuredOp, Growth] | None:
    """What grows a donated argument; None where nothing does. Raises NoGrowth."""
    if not is_tensor(argument) or DONATED not in _attributes(function, argument.index):
        return None
    uses = list(argument.uses)
    for use in uses:
        op = use.operation
        growth = op.growth() if isinstance(op, StructuredOp) else None
        if growth is None or growth.operand != use.index or is_symbol(sizes(argument)[growth.axis]) is None:
            continue
        assert isinstance(op, StructuredOp)
        label = f"argument {argument.index} ('{argument.name_hint}')"
        others = [other.operation.name for other in uses if other is not use]
        if others:
            raise NoGrowth(
                f"{label} is a cache that '{op.name}' grows and '{others[0]}' reads, too; expected one reader, as its memory "
                "holds what is new as well: have others read the grown one"
            )
        returned = [use.index for use in op.results[0].uses if isinstance(use.operation, ReturnOp)]
        if len(returned) != 1:
            raise NoGrowth(f"{label} is a cache that grows; expected it to be returned once, got {len(returned)} times")
        return op, growth
    return None


def _grow(function: FuncOp, argument: BlockArgument, op: StructuredOp, growth: Growth) -> GrownCache:
    extents, after = list(sizes(argument)), sizes(op.results[0])[growth.axis]
    used = is_symbol(extents[growth.axis])
    assert used is not None
    extents[growth.axis] = symbol(room := f"{used.name}.room")
    Rewriter.replace_value_with_new_type(argument, with_extents(tensor(argument), extents))
    argument = function.body.block.args[argument.index]
    build = GraphBuilder()
    whole, seen = growth.in_room(build, argument)
    for made in build.ops:
        made.location = op.location
        function.body.block.insert_op_before(made, op)
    (returned,) = (use for use in op.results[0].uses if isinstance(use.operation, ReturnOp))
    returned.operation.operands[returned.index] = whole
    _replace(op.results[0], seen)
    attributes = _attributes(function, argument.index)
    if isa(names := attributes.get(DIMS), ArrayAttr[StringAttr]):
        named = [StringAttr(room) if axis == growth.axis else name for axis, name in enumerate(names.data)]
        _set_attributes(function, argument.index, {**attributes, DIMS: ArrayAttr(named)})
    count = _count_argument(function, used.name, argument.name_hint)
    _state(function, used)
    return GrownCache(argument.index, returned.index, growth.axis, used.name, count, after)


def _replace(value: SSAValue, other: SSAValue) -> None:
    """Has the readers of a value read another one, if there are any, and drops what nobody reads."""
    op, view = value.owner, other.owner
    assert isinstance(op, Operation) and isinstance(view, Operation)
    if value.first_use is not None:
        value.replace_all_uses_with(other)
        view = op
    Rewriter.erase_op(view)
    if view is not op:
        Rewriter.erase_op(op)


def _count_argument(function: FuncOp, name: str, hint: str | None) -> int:
    """The argument whose value is a symbol; made behind all others where there is none."""
    known = {said: number for number, said in size_arguments(function).items()}
    if name in known:
        return known[name]
    number = len(function.body.block.args)
    function.body.block.insert_arg(TensorType(i64, []), number).name_hint = f"{hint or 'cache'}_count"
    _set_attributes(function, number, {SIZE: StringAttr(name)})
    return number


def _state(function: FuncOp, used: Symbol) -> None:
    """Has the function say what types say of a symbol, as the value of an argument alone says nothing."""
    known = function.attributes.get(SYMBOLS)
    said = dict(known.data) if isinstance(known, DictionaryAttr) else {}
    if used.name not in said:
        facts = used.facts() or {"least": used.least}
        said[used.name] = DictionaryAttr({name: IntegerAttr(value, i64) for name, value in facts.items()})
        function.attributes[SYMBOLS] = DictionaryAttr(said)


def _attributes(function: FuncOp, number: int) -> Mapping[str, Attribute]:
    known = () if function.arg_attrs is None else function.arg_attrs.data
    return known[number].data if number < len(known) else {}


def _set_attributes(function: FuncOp, number: int, attributes: Mapping[str, Attribute]) -> None:
    count = len(function.body.block.args)
    found = [dict(attributes) if k == number else _attributes(function, k) for k in range(count)]
    function.arg_attrs = ArrayAttr([DictionaryAttr(dict(each)) for each in found])
