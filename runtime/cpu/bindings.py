"""Frames as callers see them that bind programs to memory of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef
from fuse_opt.runtime.buffers import AlignedArena
from fuse_opt.runtime.cpu.frames import BoundFrame

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """Memory of one run: by buffer of the program, an address; those of constants and of the arena are there."""

    arena: AlignedArena
    table: ctypes.Array[ctypes.c_void_p]
    address: int
    """Of the table."""
    pieces: tuple[int, ...]
    """What `CpuProgram.run` takes, in order: each is all that a run does between two calls of libraries."""
    memory: list[Any]
    """What the pieces point to."""
    check: Callable[[], None]
    """Raises what the last run is refused with, if it is."""

    def array(self, ref: BufferRef) -> Array:
        """What a reference of the program means now, as an array over the same memory."""
        dtype = np.dtype(NUMPY_NAMES[ref.dtype])
        count = prod(ref.shape)
        if not count:
            return np.empty(ref.shape, dtype)
        address = (self.table[ref.buffer] or 0) + ref.offset
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        return np.frombuffer(memoryview(memory), dtype, count).reshape(ref.shape)


def binding_of(frame: BoundFrame) -> Binding:
    """What a caller that fills tables itself sees of a frame."""
    pieces = tuple(piece for piece in frame.pieces if isinstance(piece, int))
    return Binding(frame.arena, frame.table, frame.address, pieces, frame.memory, frame.check)
