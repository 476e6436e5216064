"""Kernels written by hand for opaque ops on a device: what a call is made of, and the numbers of element types."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, LibraryCall
from fuse_opt.runtime.backends.nvidia.device_calls import Address

TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f32", "f64", "f16", "bf16")
"""Element types by the numbers that the kernels know them by; the first eight are those of indices."""
JOINS = {"none": 0, "add": 1, "mul": 2, "max": 3, "min": 4}
THREADS = 256
_MOST_BLOCKS = 1 << 20
"""Beyond, threads have several elements."""

Addresses = Callable[[Address], Sequence[int]]
"""A kernel's arguments behind its record, for a run."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A launch: `record` goes to the device once, and its address is the first argument."""

    name: str
    record: ctypes.Structure
    arguments: Addresses
    blocks: int
    threads: int = THREADS


@dataclass(frozen=True, slots=True)
class Planned:
    """The launches of a call, in order, and the operands of indices whose elements may be out of range."""

    kernels: Callable[[Address, int], Sequence[Kernel]]
    """Where the run's buffers are so aligned, and the address of what notes an index out of range."""
    indices: tuple[BufferRef, ...] = ()
    limits: tuple[tuple[int, int, bool], ...] = ()
    """For each operand of indices the axis and its extent, and whether negative ones count from the end."""
    has_room: bool = False
    """Whether a result may have too little room for its entries: noted in the place of the operand behind the last one."""
    has_shape: bool = False
    """Whether rows of a pattern may not follow each other: noted in the place behind that."""


def itemsize(ref: BufferRef) -> int:
    return np.dtype(NUMPY_NAMES[ref.dtype]).itemsize


def type_number(ref: BufferRef, computes: bool) -> int | None:
    """The number of an element type, any of its size for what only moves; None where there is none."""
    name = ref.dtype if computes else f"ui{8 * itemsize(ref)}"
    return TYPES.index(name) if name in TYPES else None


def blocks_for(elements: int) -> int:
    return min(-(-elements // THREADS), _MOST_BLOCKS)


def axis_of(call: LibraryCall, default: int, rank: int) -> int:
    given = call.config.get("axis", default)
    assert isinstance(given, int)
    return given % rank


def fill(record: Any, name: str, values: Sequence[int]) -> None:
    """Sets the first entries of an array of a record."""
    table = getattr(record, name)
    for number, value in enumerate(values):
        table[number] = value
