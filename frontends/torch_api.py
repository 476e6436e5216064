"""What importers and the backend use of PyTorch, which is an optional dependency without types for its inner parts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from fuse_opt.dialects.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, DType

torch: Any = import_module("torch")
fx: Any = import_module("torch.fx")
aten: Any = torch.ops.aten
prims: Any = torch.ops.prims

ELEMENTS: dict[Any, DType] = {
    torch.bool: BOOL,
    torch.int8: I8,
    torch.int16: I16,
    torch.int32: I32,
    torch.int64: I64,
    torch.uint8: U8,
    torch.float16: F16,
    torch.bfloat16: BF16,
    torch.float32: F32,
    torch.float64: F64,
    torch.float8_e4m3fn: F8E4M3,
    torch.float8_e5m2: F8E5M2,
}
"""The element types that tensors of the graph dialect have, too."""
DTYPES: dict[str, Any] = {element.name: dtype for dtype, element in ELEMENTS.items()}


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def as_list(value: Any) -> list[Any]:
    """Several values, or one, as a list."""
    return list(cast(Sequence[Any], value)) if isinstance(value, (list, tuple)) else [value]


def static_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a (fake) tensor, None where an extent is a symbol."""
    extents = tuple(value.shape)
    return tuple(map(int, extents)) if all(isinstance(n, int) for n in extents) else None
