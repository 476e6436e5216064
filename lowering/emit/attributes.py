"""What attributes, types and constants of a program on buffers say, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.gpu import SizeOp
from fuse_opt.dialects.types.dtypes import dtype_of
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr, SizeAttr
from fuse_opt.lowering.hints import WORK


def dictionaries(attribute: Attribute | None) -> Iterable[DictionaryAttr]:
    return attribute.data if attribute is not None and isa(attribute, ArrayAttr[DictionaryAttr]) else ()


def axes_of(attribute: Attribute | None) -> tuple[int, ...] | None:
    if attribute is None or not isa(attribute, DenseArrayBase[IntegerType]):
        return None
    return tuple(attribute.get_values())


def text_of(attribute: Attribute | None) -> str:
    return attribute.data if isinstance(attribute, StringAttr) else ""


def integer_of(attribute: Attribute | None, default: int) -> int:
    return attribute.value.data if isinstance(attribute, IntegerAttr) else default


def work_of(kernel: func.FuncOp) -> tuple[int, int]:
    """The operations of a task and how many are worth a thread; 0 where the function does not say it."""
    match kernel.attributes.get(WORK):
        case ArrayAttr(data=(SizeAttr() as work, IntegerAttr() as chunk)):
            return cast(int, work.data), chunk.value.data
        case _:
            return 0, 0


def constant_index(value: SSAValue) -> int:
    owner = value.owner
    if isinstance(owner, SizeOp):
        return cast(int, owner.size.data)
    assert isinstance(owner, arith.ConstantOp), "expected a constant index"
    return integer_of(owner.value, 0)


def described(value: SSAValue, sizes: Sequence[SSAValue] = ()) -> tuple[tuple[int, ...], str]:
    """The shape and element type of a buffer; `sizes` are the extents that its type does not say."""
    shape, dtype = described_type(value.type)
    given = iter(sizes)
    return tuple(constant_index(next(given)) if n == DYNAMIC_INDEX else n for n in shape), dtype


def described_type(kind: Attribute, sizes: Attribute | None = None) -> tuple[tuple[int, ...], str]:
    """The same of a type, whose unknown extents are those of `sizes`."""
    assert isa(kind, MemRefType)
    if isinstance(sizes, ShapeAttr):
        return cast(tuple[int, ...], sizes.sizes), described_type(kind)[1]
    element = dtype_of(kind.element_type)
    assert element is not None, f"no element type {kind.element_type}"
    return kind.get_shape(), element.name
