"""What calls of a model are like, and what they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from fuse_opt.frontends.builder import Array


def signature(arrays: Sequence[Any], target: str, pipeline: str | None) -> tuple[Any, ...] | None:
    """What calls have in common that run one program; None where one gives something else than arrays of NumPy."""
    if not all(type(array) is np.ndarray for array in arrays):
        return None
    return (target, pipeline, *((array.dtype, array.shape) for array in arrays))


def is_usual(given: Mapping[str, Array]) -> bool:
    """Whether arrays have elements: others are compiled for by themselves."""
    return all(array.size for array in given.values())


def several(results: Any) -> tuple[Array, ...]:
    return cast("tuple[Array, ...]", results) if isinstance(results, tuple) else (results,)
