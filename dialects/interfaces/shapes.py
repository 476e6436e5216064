"""Shapes and element types of values, and shapes in messages."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.types import symbolic_shape
from fuse_opt.dialects.types.dtypes import DTYPES, DType, dtype_of
from fuse_opt.dialects.types.extents import is_decided
from fuse_opt.dialects.types.size import Extent, Size, Undecided
from fuse_opt.dialects.types.symbolic_shape import tensor_type as tensor_type

AnyTensor: TypeAlias = TensorType[Attribute]


def tensor(value: SSAValue) -> AnyTensor:
    """The tensor type of a value; raises VerifyException when it is no tensor of a supported element type."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        raise VerifyException(f"expected a value of tensor type, got '{type_}'")
    return type_  # pyright: ignore[reportUnknownVariableType]


def shape(value: SSAValue) -> tuple[int, ...]:
    """
    The extents: numbers, and DYNAMIC_INDEX for `?`. Where sizes are asked for (`sizes_asked_for`) those that a type gives for its
    `?` stand there: they answer what is asked of numbers by proofs, or raise a TypeError.
    """
    return extents_of(tensor(value))


def extents_of(type_: AnyTensor) -> tuple[int, ...]:
    """The extents of a type, as `shape` of its values gives them."""
    if type(type_.encoding) is NoneAttr or not _SIZES_ASKED_FOR.get():
        given = type_.shape
        if (held := _EXTENTS.get(id(given))) is not None:
            return held[1]
        if len(_EXTENTS) >= _REMEMBERED:
            _EXTENTS.clear()
        found = tuple([extent.data for extent in given.data])
        _EXTENTS[id(given)] = given, found
        return found
    return cast(tuple[int, ...], symbolic_shape.extents_of(type_))


_EXTENTS: dict[int, tuple[Attribute, tuple[int, ...]]] = {}
"""By the id of an attribute, which is held, so that the id stays its own."""
_REMEMBERED = 1 << 16


_SIZES_ASKED_FOR: ContextVar[bool] = ContextVar("_SIZES_ASKED_FOR", default=False)
_LONG_ROWS: ContextVar[bool] = ContextVar("_LONG_ROWS", default=False)


@contextmanager
def sizes_asked_for(long_rows: bool = False) -> Generator[None]:
    """
    While it lasts `shape` gives sizes. What runs in it can take them, or what it raises is caught. With `long_rows` generated
    code says of no row that it is short enough for memory of its own.
    """
    token, rows = _SIZES_ASKED_FOR.set(True), _LONG_ROWS.set(long_rows)
    try:
        yield
    finally:
        _SIZES_ASKED_FOR.reset(token)
        _LONG_ROWS.reset(rows)


def may_rows_be_long() -> bool:
    """Whether a row whose extent is a size may have any extent of its range; else code may be for short ones alone."""
    return _LONG_ROWS.get()


def are_sizes_asked_for() -> bool:
    """Whether `shape` gives sizes now: what is remembered of shapes holds for one answer."""
    return _SIZES_ASKED_FOR.get()


def sizes(value: SSAValue) -> tuple[Extent, ...]:
    """The extents: numbers, sizes where the type says what a `?` is, and DYNAMIC_INDEX where it does not."""
    return symbolic_shape.extents_of(tensor(value))


def has_sizes(value: SSAValue) -> bool:
    """Whether the type of a value says what a `?` of it is."""
    type_ = tensor(value)
    if type(type_.encoding) is NoneAttr:
        return False
    return any(isinstance(n, Size) for n in symbolic_shape.extents_of(type_))


def dtype(value: SSAValue) -> DType:
    """The element type's record; raises VerifyException when tensors of it are not supported."""
    element = tensor(value).element_type
    if (found := dtype_of(element)) is None:
        names = " ".join(known.name for known in DTYPES)
        raise VerifyException(f"element type '{element}' is not supported; use one of {names}")
    return found


def storage_error(element: DType, why: str) -> VerifyException:
    return VerifyException(
        f"{element} is a storage type and {why}: insert graph.astype to {element.compute} before, and back after"
    )


def is_static(value: SSAValue) -> bool:
    """Whether all extents are numbers."""
    return not any(n == DYNAMIC_INDEX or isinstance(n, Size) for n in cast(tuple[Extent, ...], shape(value)))


def is_sized(value: SSAValue) -> bool:
    """Whether all extents are numbers, or sizes where these are asked for."""
    return DYNAMIC_INDEX not in shape(value)


def shape_text(extents: Sequence[int]) -> str:
    """A shape in messages: `[8, ?]`."""
    return "[" + ", ".join("?" if n == DYNAMIC_INDEX else str(n) for n in extents) + "]"


def agree(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes may be equal: `?` agrees with any extent. Raises NeedsEqual where sizes have to be equal for that."""
    if len(a) != len(b):
        return False
    differ = [(n, m) for n, m in zip(a, b, strict=True) if n != m and DYNAMIC_INDEX not in (n, m)]
    for n, m in differ:
        if not may_be_equal(n, m):
            return False
    for n, m in differ:
        raise NeedsEqual(n, m)
    return True


class NeedsEqual(VerifyException):
    """Two sizes that are not known to be equal have to be."""

    def __init__(self, a: Extent, b: Extent) -> None:
        super().__init__(f"expected extents that are equal, got '{a}' and '{b}', which may differ")
        self.sizes = a, b


def may_be_equal(a: Extent, b: Extent) -> bool:
    """Whether two extents are equal for some values of symbols, as far as no proof says that they are not."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return a == b
    return not is_decided(lambda: a < b) and not is_decided(lambda: a > b)


def are_equal(a: Extent, b: Extent) -> bool:
    """Whether two extents are equal for all values of symbols. Raises Undecided where that depends on these."""
    if a != b and may_be_equal(a, b):
        raise Undecided(a, b)
    return a == b
