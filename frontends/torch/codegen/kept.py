"""What follows from parameters and buffers alone: kept between calls, as tensors, until one of them is written to."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from fuse_opt.frontends.torch.fx.api import DTYPES, torch
from fuse_opt.lowering.program import NUMPY_NAMES, Buffer

_address: Callable[[Any], int] = torch._C.TensorBase.data_ptr
_version: Callable[[Any], int] = attrgetter("_version")
_contents: Callable[[memoryview], bytes] = memoryview.tobytes
_SAMPLES = 8
"""Elements of each tensor that are compared, as writes through `.data` or of NumPy are not counted: most of them change all."""


@dataclass(frozen=True)
class _State:
    """Of what there are results, and these: as arrays, by what number, and as tensors."""

    versions: tuple[list[int], list[int]]
    arrays: Any
    number: int
    tensors: Sequence[Any]
    samples: Sequence[memoryview]
    """Some elements of each tensor, which the arrays keep alive."""
    seen: list[bytes]

    def is_of(self, versions: tuple[list[int], list[int]]) -> bool:
        return self.versions == versions and self.seen == list(map(_contents, self.samples))


class Kept:
    """
    A function of the tensors that the second program reads; it runs that where one of them is another one than before, or has
    been written to: counts of writes say so, and some of the elements, as there are writes that are not counted. Results keep
    them alive, so that no other tensor can have the address of one that is gone.
    """

    def __init__(self, prepared: Any) -> None:
        """`prepared` is a PreparedProgram."""
        self._prepared = prepared
        self.arguments: tuple[int, ...] = prepared.preparation.arguments
        """By result: the argument of the first program that it is."""
        self.read: tuple[int, ...] = prepared.read
        """The arguments that are read for it."""
        taken: tuple[int, ...] = prepared.preparation.frozen
        self._unread = [number for number in taken if number not in self.read]
        self._buffers: Sequence[Buffer] = prepared.program.program.buffers
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._state: _State | None = None

    def __call__(self, *tensors: Any) -> tuple[int, Sequence[Any]]:
        """The results, and a number that stands for them and no others."""
        try:  # lists of numbers alone, which the garbage collector does not go through
            versions = list(map(_address, tensors)), list(map(_version, tensors))
        except RuntimeError:  # made under inference_mode: they do not count how often they are written to
            return next(self._numbers), self._computed(tensors, None)[1]
        if (state := self._state) is not None and state.is_of(versions):
            return state.number, state.tensors
        with self._lock:
            if (state := self._state) is None or not state.is_of(versions):
                held = [tensor.detach() for tensor in tensors]
                samples = [_sampled(t, self._buffers[n]) for n, t in zip(self.read, held, strict=True)]
                seen = list(map(_contents, samples))
                arrays, found = self._computed(held, ("torch", *versions[0], *versions[1], *seen))
                self._state = state = _State(versions, (arrays, held), next(self._numbers), found, samples, seen)
            return state.number, state.tensors

    def _computed(self, tensors: Sequence[Any], versions: Any) -> tuple[Any, Sequence[Any]]:
        """The results as arrays, which are to be kept as long as they are used, and as tensors."""
        full: list[Any] = [None] * len(self._buffers)
        for number, tensor in zip(self.read, tensors, strict=True):
            full[number] = _array(tensor, self._buffers[number])
        for number in self._unread:
            full[number] = np.empty(self._buffers[number].shape, NUMPY_NAMES[self._buffers[number].dtype])
        arrays = self._prepared.prepared(full, versions, tensors)
        return arrays, [_tensor(a, self._buffers[n]) for n, a in zip(self.arguments, arrays, strict=True)]


def _array(tensor: Any, buffer: Buffer) -> Any:
    """The memory of a tensor, from its first element on, as the program has it."""
    dtype = np.dtype(NUMPY_NAMES[buffer.dtype])
    count = prod(buffer.shape)
    if not count:
        return np.empty(buffer.shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(tensor.data_ptr())
    return np.frombuffer(memoryview(memory), dtype, count).reshape(buffer.shape)


def _sampled(tensor: Any, buffer: Buffer) -> memoryview:
    """Elements of a tensor, from its first to near its last, where they lie."""
    flat = _array(tensor, buffer).reshape(-1)
    step = max((flat.size - 1) // (_SAMPLES - 1), 1)
    return memoryview(flat.view(f"u{flat.itemsize}")[::step][:_SAMPLES])


def _tensor(array: Any, buffer: Buffer) -> Any:
    if not array.size:
        return torch.empty(buffer.shape, dtype=DTYPES[buffer.dtype])
    flat = torch.from_numpy(array.reshape(-1).view(np.uint8)).view(DTYPES[buffer.dtype])
    return flat.reshape(buffer.shape)
