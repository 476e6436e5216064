"""Runs of programs by one foreign call: the records that program_call.c and the pool read, as Python makes them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fuse_opt.runtime.thread_pool import pool_library

PHASE, REGION = 1, 2
"""What a loop begins; 0 is for one that runs beside the loop before."""

_LOOP = np.dtype(
    [(name, np.int64) for name in ("task", "arg", "count", "grain", "prepare", "first", "chunk", "chunks")], align=True
)
"""The record `fuse_loop` of the pool."""


class LoopRow(NamedTuple):
    """A loop of a program, with addresses of functions and of what they are called with."""

    task: int
    arg: int
    tasks: int
    grain: int
    prepare: int = 0
    """Of a function that gives the count when the phase begins; 0 where that is known."""
    first: int = PHASE


def loop_table(rows: Sequence[LoopRow]) -> np.ndarray[Any, np.dtype[Any]]:
    """The rows as the pool reads them."""
    table = np.zeros(len(rows), _LOOP)
    for number, row in enumerate(rows):
        table[number] = (*row, 0, 0)
    return table


class Value(ctypes.Structure):
    """The record `value`: what an argument or a result must be."""

    _fields_ = (
        ("descr", ctypes.c_void_p),
        ("dimensions", ctypes.c_int64),
        ("shape", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("flags", ctypes.c_int64),
        ("alone", ctypes.c_int64),
    )


class Frame(ctypes.Structure):
    """The record `fuse_frame`: a program bound to memory of one run."""

    _fields_ = (
        ("buffers", ctypes.c_void_p),
        ("arguments", ctypes.c_int64),
        ("results", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("array_type", ctypes.c_void_p),
        ("loops", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("enter", ctypes.c_void_p),
        ("leave", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("take", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Interpreter:
    """Addresses of CPython's functions that let other threads run, and take the interpreter back."""

    release: int
    take: int


@dataclass(frozen=True)
class Caller:
    """The entry points of program_call.c."""

    run: Callable[[int], None]
    """Runs a frame, by its address, whose table of buffers is filled; other threads have the interpreter meanwhile."""
    call: Callable[[int, tuple[Any, ...], tuple[Any, ...], int], int] | None
    """
    Fills the table from tuples of arrays, arguments and results, and runs the frame; 0 where they are not of the frame's
    types. None where this interpreter's objects are laid out in another way than program_call.c reads them.
    """
    interpreter: Interpreter


@functools.cache
def load_caller() -> Caller:
    """The entry points; the pool must be there."""
    library = pool_library()
    assert library is not None
    run: Any = library.fuse_run_frame
    run.argtypes, run.restype = [ctypes.c_void_p], None
    held = ctypes.PyDLL(library._name)
    call: Any = held.fuse_call
    call.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_int]
    call.restype = ctypes.c_int
    interpreter = Interpreter(
        _address(ctypes.pythonapi.PyEval_SaveThread), _address(ctypes.pythonapi.PyEval_RestoreThread)
    )
    return Caller(run, call if _layout_is_known(held) else None, interpreter)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _layout_is_known(library: ctypes.PyDLL) -> bool:
    """Whether program_call.c reads of arrays what they say of themselves; sizes are compared before anything is read."""
    if (object.__basicsize__, tuple.__basicsize__, tuple.__itemsize__) != (16, 24, 8):
        return False
    if np.ndarray.__basicsize__ < 72 or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    read_only = np.arange(3, dtype=np.int16)
    read_only.flags.writeable = False
    samples = (np.zeros((2, 3, 5), np.float32), np.zeros((4, 6)).T, np.zeros(()), np.zeros((0, 7), bool), read_only)
    return all(_is_read_rightly(library, array) for array in samples)


def _is_read_rightly(library: ctypes.PyDLL, array: np.ndarray[Any, Any]) -> bool:
    found = (ctypes.c_void_p * 6)()
    library.fuse_describe(ctypes.py_object(array), found)
    kind, data, dimensions, descr, flags, shape = found
    said = (id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num)
    if (kind, data, dimensions or 0, descr, flags or 0) != said:
        return False
    if not array.ndim:
        return True
    return shape is not None and tuple((ctypes.c_ssize_t * array.ndim).from_address(shape)) == array.shape
