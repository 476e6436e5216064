"""Symbols that are only parts of extents in a program, as in `s floordiv 2`: arguments of their own."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, IntegerAttr, StringAttr, TensorType, i64
from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.interfaces.shapes import sizes
from fuse_opt.dialects.interfaces.symbols import SIZE, SYMBOLS, is_tensor, stated_sizes
from fuse_opt.dialects.types.extents import is_symbol, symbols
from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.fx.strides import View
from fuse_opt.frontends.torch.importer.imported import Argument, Imported


def state_symbols(imported: Imported, sources: Sequence[tuple[str, int, int | None]]) -> None:
    """
    Adds a size argument for each symbol that no argument of the program has as an extent by itself, and that a call finds in
    `sources`: as a number, or at a tensor that the program does not read. What is passed for it is not read, as calls of programs
    for all sizes bring their numbers. Raises SizeRefusal for a symbol that is nowhere there, as of the state of random numbers.
    """
    (function,) = (op for op in imported.module.ops if isinstance(op, FuncOp))
    block = function.body.block
    extents = [extent for value in block.args if is_tensor(value) for extent in sizes(value)]
    values = [value for op in function.walk() for value in op.results if is_tensor(value)]
    used = symbols([*extents, *(extent for value in values for extent in sizes(value)), *stated_sizes(function)])
    alone = {one.name for extent in extents if (one := is_symbol(extent)) is not None}
    known = {name for name, _, _ in sources}
    if unknown := [one.name for one in used if one.name not in alone and one.name not in known]:
        raise SizeRefusal(f"no argument says what the symbol '{unknown[0]}' is")
    stated = [one for one in used if one.name not in alone]
    if not stated:
        return
    marks = [DictionaryAttr({}) for _ in block.args] if function.arg_attrs is None else [*function.arg_attrs.data]
    for one in stated:
        block.insert_arg(TensorType(i64, []), len(block.args)).name_hint = one.name
        imported.constants[name := f"z_{one.name}"] = torch.zeros((), dtype=torch.int64)
        imported.arguments.append(Argument(name, View((), (), 0), torch.int64, True))
        marks.append(DictionaryAttr({SIZE: StringAttr(one.name)}))
    types = [value.type for value in block.args]
    function.properties["function_type"] = FunctionType.from_lists(types, [*function.function_type.outputs])
    function.properties["arg_attrs"] = ArrayAttr(marks)
    facts = {one.name: {key: IntegerAttr(n, i64) for key, n in one.facts().items()} for one in stated}
    function.attributes[SYMBOLS] = DictionaryAttr({name: DictionaryAttr(found) for name, found in facts.items()})
