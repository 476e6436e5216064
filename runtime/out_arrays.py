"""What arrays that a caller gives for results must not have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def check_apart(targets: Sequence[Array]) -> None:
    """Raises `ValueError` where one element stands for two, of one array or of two."""
    for number, target in enumerate(targets):
        if target.size and any(n > 1 and not step for n, step in zip(target.shape, target.strides, strict=True)):
            raise ValueError(f"out[{number}]: expected an array whose elements have memory each, got a broadcast one")
        for other, earlier in enumerate(targets[:number]):
            if np.may_share_memory(earlier, target) and np.shares_memory(earlier, target):
                raise shared(other, number)


def shared(first: int, second: int) -> ValueError:
    """The error for two results in the same memory."""
    return ValueError(f"out[{first}] and out[{second}] share memory; give each result an array of its own")
