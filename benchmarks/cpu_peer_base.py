"""What a peer of cpu_peers.py is: a name, and a way to run a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from math import prod
from typing import Any

import numpy as np
from cpu_workloads import Case, as_tuple

LINE = 64
"""Bytes of a cache line."""
Call = Callable[[], Any]
"""One run; its results are arrays of the package, those of donated arguments included."""


@dataclass(frozen=True)
class Loaded:
    """A call with what there is to say about it."""

    call: Call
    stats: dict[str, float] = field(default_factory=dict[str, float])
    kept: Any = None
    """What the call needs and does not refer to."""


Loader = Callable[[Case, list[Any], list[Any]], Call | Loaded]
"""Of a case, its inputs, and arrays of the results' shapes: what is done before and in a first call."""


@dataclass(frozen=True)
class Peer:
    """A way to run workloads, in a process of its own."""

    name: str
    about: str
    packages: tuple[str, ...]
    """Distributions whose versions are reported; the first ones are imported."""
    loader: Loader
    modules: tuple[str, ...] = ()
    """What is imported before a first call is timed."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    as_numpy: Callable[[Any], Any] = np.asarray

    def numbers(self, results: Any) -> list[Any]:
        """The results as f32 arrays of NumPy."""
        return [_widened(self.as_numpy(result)) for result in as_tuple(results)]

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in self.packages}


def _widened(array: Any) -> Any:
    if array.dtype.itemsize == 2 and array.dtype.kind == "V":
        from fuse_opt.lowering.program.float_formats import widen

        return widen(array)
    return array.astype(np.float32, copy=False)


def room(shape: Sequence[int], element: Any) -> Any:
    """An array of zeros that begins at a cache line, as PyTorch's and our results do; NumPy's begin 16 bytes behind a page."""
    size = prod(shape) * np.dtype(element).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + size].view(element).reshape(tuple(shape))


def in_room(values: Any, element: Any = None) -> Any:
    """A copy there, of another element type if one is given."""
    found = room(values.shape, values.dtype if element is None else element)
    found[...] = values.astype(found.dtype, copy=False)
    return found


def typed_inputs(case: Case, arrays: Sequence[Any]) -> list[Any]:
    """The inputs in the workload's types, as NumPy arrays at cache lines; bf16 as ml_dtypes has it."""
    from fuse_opt.lowering.program.float_formats import narrow

    names = [case.workload.dtype(k) for k in range(len(arrays))]
    made = [narrow(a, "bf16") if n == "bf16" else a for a, n in zip(arrays, names, strict=True)]
    return [in_room(a, np.float16 if n == "f16" else None) for a, n in zip(made, names, strict=True)]
