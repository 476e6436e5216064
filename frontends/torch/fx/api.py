"""What importers and the backend use of PyTorch, which is an optional dependency without types for its inner parts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fuse_opt.dialects.types.dtypes import DTYPES as KNOWN_DTYPES
from fuse_opt.dialects.types.dtypes import DType

torch: Any = import_module("torch")
fx: Any = import_module("torch.fx")
aten: Any = torch.ops.aten
prims: Any = torch.ops.prims

ELEMENTS: dict[Any, DType] = {getattr(torch, known.numpy_name): known for known in KNOWN_DTYPES}
"""The element types that tensors of the graph dialect have, too."""
DTYPES: dict[str, Any] = {element.name: dtype for dtype, element in ELEMENTS.items()}


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


_PATTERNS: dict[Any, str] = {torch.bfloat16: "int16", torch.float8_e4m3fn: "uint8", torch.float8_e5m2: "uint8"}
"""By element type that NumPy has none for: integers as wide, whose arrays both have."""


def as_array(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A tensor's memory as an array, of the dtype that stands for its element type."""
    plain, pattern = value.detach(), _PATTERNS.get(value.dtype)
    return plain.numpy() if pattern is None else plain.view(getattr(torch, pattern)).numpy().view(dtype)


def from_array(array: NDArray[Any], dtype: Any) -> Any:
    """An array's memory as a tensor of an element type."""
    pattern = _PATTERNS.get(dtype)
    return torch.from_numpy(array) if pattern is None else torch.from_numpy(array.view(pattern)).view(dtype)


def as_list(value: Any) -> list[Any]:
    """Several values, or one, as a list."""
    return list(cast(Sequence[Any], value)) if isinstance(value, (list, tuple)) else [value]


def example_of(node: Any) -> Any:
    """What tracing noted of a node's value; None for what is no node, or has none."""
    return node.meta.get("example_value", node.meta.get("val")) if isinstance(node, fx.Node) else None


def static_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a (fake) tensor, None where an extent is a symbol."""
    extents = tuple(value.shape)
    return tuple(map(int, extents)) if all(isinstance(n, int) for n in extents) else None
