"""What a peer of cpu_peers.py is: a name, and a way to run a workload."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from math import prod
from typing import Any, ClassVar

import numpy as np
from cpu_workloads import Case, as_tuple

LINE = 64
"""Bytes of a cache line."""
PAGE = 4096
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


class Rooms:
    """
    Memory that several loaders get one after the other: the n-th array of each lies where those of the others do. Which pages of
    memory an array has counts for up to a quarter of the time of a loop that waits for memory, and stays as it is for a process.
    """

    current: ClassVar[Rooms | None] = None

    def __init__(self) -> None:
        self._made: list[Any] = []
        self._next = 0

    @contextmanager
    def again(self) -> Generator[None]:
        """What is loaded within gets it from the first one on."""
        self._next, Rooms.current = 0, self
        try:
            yield
        finally:
            Rooms.current = None

    def take(self, size: int) -> Any:
        """Bytes of the next one, of zeros."""
        number, self._next = self._next, self._next + 1
        if number == len(self._made):
            self._made.append(_placed(size))
        if self._made[number].nbytes != size:
            return _placed(size)
        self._made[number][:] = 0
        return self._made[number]


def _placed(size: int) -> Any:
    memory = np.zeros(size + PAGE + LINE, np.uint8)
    begin = -memory.ctypes.data % PAGE + LINE
    return memory[begin : begin + size]


def room(shape: Sequence[int], element: Any) -> Any:
    """
    An array of zeros that begins a cache line behind a page, as PyTorch's large ones do.

    At the same place for every peer: processors tell a load from a store in front of it by the place in the page first, so
    that the distance between two arrays, modulo a page, counts for up to half of the time of a loop over both.
    """
    size = prod(shape) * np.dtype(element).itemsize
    memory = _placed(size) if Rooms.current is None else Rooms.current.take(size)
    return memory.view(element).reshape(tuple(shape))


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
