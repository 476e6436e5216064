"""Shapes and element types of values, and shapes in messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.types.dtypes import DTYPES, DType, dtype_of

AnyTensor: TypeAlias = TensorType[Attribute]


def tensor(value: SSAValue) -> AnyTensor:
    """The tensor type of a value; raises VerifyException when it is no tensor of a supported element type."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        raise VerifyException(f"expected a value of tensor type, got '{type_}'")
    return cast(AnyTensor, type_)


def shape(value: SSAValue) -> tuple[int, ...]:
    return tuple([extent.data for extent in tensor(value).shape.data])


def dtype(value: SSAValue) -> DType:
    """The element type's record; raises VerifyException when tensors of it are not supported."""
    element = tensor(value).element_type
    if (found := dtype_of(element)) is None:
        names = " ".join(known.name for known in DTYPES)
        raise VerifyException(f"element type '{element}' is not supported; use one of {names}")
    return found


def is_static(value: SSAValue) -> bool:
    return DYNAMIC_INDEX not in shape(value)


def shape_text(extents: Sequence[int]) -> str:
    """A shape in messages: `[8, ?]`."""
    return "[" + ", ".join("?" if n == DYNAMIC_INDEX else str(n) for n in extents) + "]"


def agree(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes may be equal: `?` agrees with any extent."""
    return len(a) == len(b) and all(n == m or DYNAMIC_INDEX in (n, m) for n, m in zip(a, b, strict=True))
