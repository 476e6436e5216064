"""Calls with arrays of one library alone, which kernels read and write where they are: most calls of a program.

All that such a call is checked for is one function of the program, made as text; what does not fit it is left to
`arguments.py` and `results.py`, which know every case and say what is wrong.
"""

from __future__ import annotations

import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, Program
from fuse_opt.runtime.cuda.made_functions import made_function
from fuse_opt.runtime.device.arrays import new_array, stream_handle, torch_type
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import DEFAULT_STREAM, LEGACY_STREAMS, THREAD_STREAM
from fuse_opt.runtime.device.memory import DevicePool, size_class

Check = Callable[[Sequence[Any]], tuple[int, ...] | None]
"""The addresses of arrays; None where they are not as they are to be."""
Pool = Callable[[int], DevicePool]
"""Of the results that are used on a stream."""
Maker = Callable[[DevicePool], tuple[Any, int]]
"""Makes an array, and says where it is."""


QuickCall = tuple[Any, tuple[int, ...], int]
"""All that a run needs: results, addresses of all buffers, the stream."""


class Library(ABC):
    """A library of arrays."""

    conditions: str
    """What is asked of array `a#`, besides its class and its shape, by names that `facts` and `names` give; # is its number."""
    address: str
    """What makes `p#` its address, a plain integer: whoever keeps it keeps no memory."""
    names: Mapping[str, Any] = {}

    @abstractmethod
    def facts(self, buffer: Buffer) -> dict[str, Any]:
        """By name, what an array is compared with."""

    @abstractmethod
    def stream(self, given: int | None) -> int | None:
        """The stream of a call; None where there are several."""

    @abstractmethod
    def maker(self, buffer: Buffer) -> Maker:
        """What makes an array for a buffer."""

    def check(self, classes: frozenset[type], buffers: Sequence[Buffer]) -> Check:
        """What checks arrays for buffers."""
        names: dict[str, Any] = {"classes": classes, "only": next(iter(classes)), **self.names}
        of_class = "type(a#) is only" if len(classes) == 1 else "type(a#) in classes"
        lines = ["def check(arrays):", f"    {''.join(f'a{n}, ' for n in range(len(buffers))) or '()'} = arrays"]
        for n, buffer in enumerate(buffers):
            names |= {f"{name}{n}": fact for name, fact in self.facts(buffer).items()}
            names[f"shape{n}"] = buffer.shape
            asked = f"{of_class} and a#.shape == shape# and {self.conditions}"
            lines.append(f"    if not ({asked}): return None\n    {self.address}".replace("#", str(n)))
        places = {n: np.dtype(NUMPY_NAMES[buffer.dtype]).itemsize for n, buffer in enumerate(buffers)}
        for unit in sorted({*places.values()} - {1}):
            lines.append(f"    if ({' | '.join(f'p{n}' for n in places if places[n] == unit)}) % {unit}: return None")
        lines.append(f"    return ({''.join(f'p{n}, ' for n in places)})")
        return made_function("\n".join(lines), names)


class PyCudaArrays(Library):
    """Those of `pycuda.gpuarray`, which belong to no stream."""

    conditions = "a#.strides == strides# and (a#.dtype is dtype# or a#.dtype == dtype#)"
    address = "g = a#.gpudata; k = known.get(id(g)); p# = k[1] if k is not None and k[0]() is g else address_of(g)"

    def __init__(self, own_stream: int, device: Device) -> None:
        self._own = own_stream
        self.names = {"known": _KNOWN, "address_of": _address_of}
        if device.library.count > 1:  # an array does not say on which it is
            self.address += "; w = place_of(p#)\n    if w is not None and w != device: return None"
            self.names |= {"place_of": device.library.device_of, "device": device.number}

    def facts(self, buffer: Buffer) -> dict[str, Any]:
        dtype = np.dtype(NUMPY_NAMES[buffer.dtype])
        return {"strides": np.empty(buffer.shape, dtype).strides, "dtype": dtype}

    def stream(self, given: int | None) -> int | None:
        return self._own if given is None else given

    def maker(self, buffer: Buffer) -> Maker:
        """Its attributes are those of an array that the library has made, but for its memory."""
        size = size_class(_nbytes(buffer))
        kind: Any = sys.modules["pycuda.gpuarray"].GPUArray
        like = new_array("array", 0, buffer.shape, buffer.dtype, lambda nbytes: None)
        attributes, made = cast("dict[str, Any]", vars(like)), object.__new__

        def make(pool: DevicePool) -> tuple[Any, int]:
            array = made(kind)
            own = array.__dict__ = attributes.copy()
            own["gpudata"] = memory = pool.take(size)
            return array, memory + 0

        return make


_KNOWN: dict[int, tuple[weakref.ref[Any], int]] = {}
"""By the id of memory of PyCUDA's, while it lives: its address, which asking it for takes a microsecond."""


def _address_of(memory: Any) -> int:
    if isinstance(memory, int):
        return memory + 0
    address, key = int(memory), id(memory)
    with suppress(TypeError):  # what has no weak references is asked each time
        _KNOWN[key] = weakref.ref(memory, lambda _: _KNOWN.pop(key, None)), address
    return address


class TorchTensors(Library):
    """Those of torch, on its current stream."""

    conditions = "a#.dtype == dtype# and a#.is_cuda and a#.device.index == device# and a#.is_contiguous()"
    address = "p# = a#.data_ptr()"

    def __init__(self, torch: Any, device: int) -> None:
        self._torch, self._device = torch, device
        raw: Any = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._current: Callable[[int], int] = raw or self._asked

    def _asked(self, number: int) -> int:
        return self._torch.cuda.current_stream(number).cuda_stream

    def facts(self, buffer: Buffer) -> dict[str, Any]:
        return {"dtype": torch_type(self._torch, buffer.dtype), "device": self._device}

    def stream(self, given: int | None) -> int | None:
        current = _known(self._current(self._device))
        return current if given is None or given == current else None

    def maker(self, buffer: Buffer) -> Maker:
        empty, shape = self._torch.empty, buffer.shape
        dtype, device = torch_type(self._torch, buffer.dtype), f"cuda:{self._device}"

        def make(pool: DevicePool) -> tuple[Any, int]:
            tensor = empty(shape, dtype=dtype, device=device)
            return tensor, tensor.data_ptr()

        return make


def _known(handle: int) -> int:
    return DEFAULT_STREAM if handle in LEGACY_STREAMS else handle


def _nbytes(buffer: Buffer) -> int:
    return prod(buffer.shape) * np.dtype(NUMPY_NAMES[buffer.dtype]).itemsize


@dataclass(frozen=True)
class _Bound:
    """What calls with arrays of a library are checked and bound by."""

    library: Library
    arguments: Check
    targets: Check
    makers: tuple[Maker, ...]
    only: Maker | None
    """The one that makes all there is to give."""


class QuickCalls:
    """The calls of one program, none of which may run at the same time."""

    def __init__(self, program: Program, device: Device, own_stream: int, fixed: Sequence[int], pool: Pool) -> None:
        """`fixed` has the addresses of all buffers behind the results'."""
        buffers = program.buffers
        self._arguments = program.arguments
        self._made = [buffer for buffer in buffers if buffer.kind == "result"]
        count = len(self._arguments)
        self._places = [result.index - count for result in program.results]
        """Of results: which of those that are made it is, below 0 an argument, from the last one on."""
        self._fixed = tuple(fixed[count + len(self._made) :])
        self._donates = any(buffer.donated for buffer in self._arguments)
        self._sizes = [_nbytes(buffer) for buffer in (*self._arguments, *self._made)]
        self._device, self._own, self._pool = device, own_stream, pool
        self._pools: dict[int, DevicePool] = {}
        """By stream, those that are the same in all threads."""
        self._bound: dict[type[Any], _Bound | None] = {}
        whole = all(_is_as_buffer(program, number) for number in range(len(program.results)))
        made = sorted(place for place in self._places if place >= 0)
        self._usable = bool(self._arguments) and whole and all(self._sizes) and made == list(range(len(self._made)))

    def find(self, arrays: Sequence[Any], out: Any, stream: Any) -> QuickCall | None:
        """The call, with memory for its results; None where it is not of this kind."""
        if not self._usable or len(arrays) != len(self._arguments):
            return None
        kind = cast("type[Any]", type(arrays[0]))
        try:
            bound = self._bound[kind]
        except KeyError:
            bound = self._bound[kind] = self._bind(kind)
        if bound is None or (addresses := bound.arguments(arrays)) is None:
            return None
        given = None if stream is None else _known(stream_handle(stream))
        if (handle := bound.library.stream(given)) is None:
            return None
        if out is not None:
            return self._with_targets(bound, arrays, addresses, out, handle)
        if self._donates and not self._are_apart(addresses):
            return None
        if (pool := self._pools.get(handle)) is None:
            pool = self._pool(handle)
            if handle != THREAD_STREAM:
                self._pools[handle] = pool
        if bound.only is not None:
            result, address = bound.only(pool)
            return result, (*addresses, address, *self._fixed), handle
        made = [make(pool) for make in bound.makers]
        found = [made[place][0] if place >= 0 else arrays[place] for place in self._places]
        results = found[0] if len(found) == 1 else tuple(found)
        return results, (*addresses, *[address for _, address in made], *self._fixed), handle

    def _with_targets(
        self, bound: _Bound, arrays: Sequence[Any], addresses: tuple[int, ...], out: Any, handle: int
    ) -> QuickCall | None:
        if not isinstance(out, list | tuple) or not len(cast("list[Any]", out)) == len(self._made) == len(self._places):
            return None
        given = cast("list[Any] | tuple[Any, ...]", out)
        targets = [given[self._places.index(number)] for number in range(len(given))]
        places = bound.targets(targets)
        if places is None or not self._are_apart((*addresses, *places)):
            return None
        results = given[0] if len(given) == 1 else tuple(given)
        return results, (*addresses, *places, *self._fixed), handle

    def _are_apart(self, addresses: Sequence[int]) -> bool:
        """Whether no two arrays have memory in common."""
        end = 0
        for start, nbytes in sorted(zip(addresses, self._sizes, strict=False)):
            if start < end:
                return False
            end = start + nbytes
        return True

    def _bind(self, kind: type[Any]) -> _Bound | None:
        torch, pycuda = sys.modules.get("torch"), sys.modules.get("pycuda.gpuarray")
        if pycuda is not None and kind is pycuda.GPUArray:
            library, classes = PyCudaArrays(self._own, self._device), frozenset({kind})
        elif torch is not None and issubclass(kind, torch.Tensor):
            library, classes = TorchTensors(torch, self._device.number), frozenset({kind, torch.Tensor})
        else:
            return None
        makers = tuple(map(library.maker, self._made))
        only = makers[0] if len(self._places) == len(makers) == 1 else None
        return _Bound(
            library, library.check(classes, self._arguments), library.check(classes, self._made), makers, only
        )


def _is_as_buffer(program: Program, number: int) -> bool:
    """Whether a result is the array of its buffer, handed out as it is."""
    result = program.results[number]
    buffer = program.buffers[result.index]
    is_own = buffer.kind == "result" or (buffer.kind == "argument" and buffer.donated)
    return is_own and not result.copied and (result.shape, result.dtype) == (buffer.shape, buffer.dtype)
