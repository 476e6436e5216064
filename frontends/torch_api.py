"""What importers and the backend use of PyTorch, which is an optional dependency without types for its inner parts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


def static_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a (fake) tensor, None where an extent is a symbol."""
    extents = tuple(value.shape)
    return tuple(map(int, extents)) if all(isinstance(n, int) for n in extents) else None


def storage_view(value: Any) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Shape, strides and offset of a strided tensor in its storage; None where it has none or one is a symbol."""
    if value.layout != torch.strided or (shape := static_shape(value)) is None:
        return None
    numbers = (*value.stride(), value.storage_offset())
    if not all(isinstance(n, int) for n in numbers):
        return None
    return shape, tuple(map(int, numbers[:-1])), int(numbers[-1])


def dense_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost where the elements fill it without gaps, else None."""
    wide = sorted((axis for axis, n in enumerate(shape) if n != 1), key=lambda axis: -strides[axis])
    if 0 not in shape:
        expected = 1
        for axis in reversed(wide):
            if strides[axis] != expected:
                return None
            expected *= shape[axis]
    else:
        wide = [axis for axis, n in enumerate(shape) if n != 1]
    if wide == sorted(wide):
        return tuple(range(len(shape)))
    return (*(axis for axis, n in enumerate(shape) if n == 1), *wide)
