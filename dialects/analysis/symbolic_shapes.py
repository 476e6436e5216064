"""Unknown extents by name: which `?` of a function are the same, and how they follow from those of its arguments.

Each `?` of an argument is a symbol; arguments that name an extent alike, `{graph.dims = ["batch", ""]}`, share one. An extent
of a value is a function of the symbols that only type inference knows, so it is found by inference: the function's types are
inferred for several choices of large numbers, and extents that agree in all of them are taken as the same. No op states its
shape rule twice, and an op of another dialect takes part as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from math import isqrt
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.interfaces.symbols import argument_symbols, is_tensor
from fuse_opt.dialects.scalar import ScalarTypeError

_FACTORS = (1, 2, 3, 4)
"""One round of inference for each: floor(n / 2) and ceil(n / 2) are the same in some rounds, not in all."""

Samples = tuple[int, ...]
"""An extent in each of the rounds."""


@dataclass(frozen=True)
class SymbolicShapes:
    """The extents of a function's values over its symbols; a value is absent when inference could not follow it."""

    symbols: dict[str, Samples] = field(default_factory=dict[str, Samples])
    extents: dict[SSAValue, tuple[Samples, ...]] = field(default_factory=dict[SSAValue, tuple[Samples, ...]])

    def same(self, a: tuple[SSAValue, int], b: tuple[SSAValue, int]) -> bool:
        """Whether two (value, axis) have one extent whatever the symbols are; False when that is not known."""
        if a[0] not in self.extents or b[0] not in self.extents:
            return False
        return self.extents[a[0]][a[1]] == self.extents[b[0]][b[1]]

    def known(self, value: SSAValue) -> tuple[int, ...] | None:
        """The shape with `?` only where it depends on a symbol; None when inference could not follow the value."""
        found = self.extents.get(value)
        return None if found is None else tuple(e[0] if len(set(e)) == 1 else DYNAMIC_INDEX for e in found)

    def text(self, value: SSAValue) -> str | None:
        """The shape for people: `[batch, 2*batch + 1, 64]`; an extent that is no simple function is `?`."""
        found = self.extents.get(value)
        return None if found is None else "[" + ", ".join(self._formula(extent) for extent in found) + "]"

    def _formula(self, extent: Samples) -> str:
        if len(set(extent)) == 1:
            return str(extent[0])
        for name, symbol in self.symbols.items():
            if (text := _affine(name, symbol, extent)) is not None:
                return text
        for (one, a), (other, b) in combinations_with_replacement(self.symbols.items(), 2):
            product = tuple(x * y for x, y in zip(a, b, strict=True))
            if (text := _affine(f"{one}*{other}", product, extent)) is not None:
                return text
        return "?"


def symbolic_shapes(function: FuncOp) -> SymbolicShapes:
    """The analysis of a function; empty when no argument has an unknown extent."""
    names = argument_symbols(function)
    distinct = list(dict.fromkeys(name for row in names for name in row if name is not None))
    if not distinct:
        return SymbolicShapes()
    symbols = {name: _samples(position) for position, name in enumerate(distinct)}
    rounds: list[dict[SSAValue, AnyTensor]] = []
    for number in range(len(_FACTORS)):
        types: dict[SSAValue, AnyTensor] = {}
        for value, row in zip(function.body.block.args, names, strict=True):
            if is_tensor(value):
                given = tensor(value)
                extents = [
                    n if name is None else symbols[name][number] for n, name in zip(given.get_shape(), row, strict=True)
                ]
                types[value] = TensorType(given.element_type, extents)
        _infer_block(function.body.block, types)
        rounds.append(types)
    shared = [value for value in rounds[0] if all(value in types for types in rounds)]
    extents = {value: tuple(zip(*(types[value].get_shape() for types in rounds), strict=True)) for value in shared}
    return SymbolicShapes(symbols, extents)


def _samples(position: int) -> Samples:
    """Extents for a symbol that no other symbol has, with remainders by small numbers that differ from round to round."""
    first = 1009 + 512 * position
    return tuple(factor * _prime_from(first + 128 * number) for number, factor in enumerate(_FACTORS))


def _prime_from(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += 1
    return number


def _infer_block(block: Block, types: dict[SSAValue, AnyTensor]) -> None:
    """Adds the types of what the block computes, as far as they follow."""
    for op in block.ops:
        if isinstance(op, OutlinedOp):
            _infer_kernel(op, types)
        elif isinstance(op, GraphOp):
            _infer_op(op, types)


def _infer_kernel(kernel: OutlinedOp, types: dict[SSAValue, AnyTensor]) -> None:
    for argument, operand in zip(kernel.block.args, kernel.operands, strict=True):
        if operand in types:
            types[argument] = types[operand]
    for op in kernel.ops():
        _infer_op(op, types)
    for result, value in zip(kernel.results, kernel.yielded(), strict=True):
        if value in types:
            types[result] = types[value]


def _infer_op(op: GraphOp, types: dict[SSAValue, AnyTensor]) -> None:
    if not all(value in types for value in op.operands):
        return
    try:
        inferred = op.on_types([types[value] for value in op.operands])
    except (VerifyException, ScalarTypeError):
        return  # two symbols that have to be equal here: nothing is known of the result
    for result, found in zip(op.results, inferred.results, strict=True):
        type_ = cast(AnyTensor, found.type)
        if DYNAMIC_INDEX not in type_.get_shape():
            types[result] = type_


def _affine(name: str, symbol: Samples, extent: Samples) -> str | None:
    """The extent as `a*name + b`, when it is."""
    run = symbol[1] - symbol[0]
    if not run or (extent[1] - extent[0]) % run:
        return None
    factor = (extent[1] - extent[0]) // run
    offset = extent[0] - factor * symbol[0]
    if not factor or any(factor * s + offset != e for s, e in zip(symbol, extent, strict=True)):
        return None
    scaled = name if factor == 1 else f"{factor}*{name}"
    return scaled if not offset else f"{scaled} {'+' if offset > 0 else '-'} {abs(offset)}"
