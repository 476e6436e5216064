"""Runs of programs by one foreign call: the records that program_call.c and the pool read, as Python makes them."""

from __future__ import annotations

import ctypes
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from fuse_opt.runtime.host.c_records import address_in, fields_of
from fuse_opt.runtime.host.thread_pool import pool_library

PHASE, REGION = 1, 2
"""What a loop begins; 0 is for one that runs beside the loop before."""


class Loop(ctypes.Structure):
    """The record `fuse_loop` of the pool; a `LoopRow` says what is in it."""

    _fields_ = fields_of("host/parallel_for.c", "fuse_loop")


class LoopRow(NamedTuple):
    """A loop of a program, with addresses of functions and of what they are called with."""

    task: int
    arg: int
    tasks: int
    grain: int
    prepare: int = 0
    """Of a function that gives the count when the phase begins; 0 where that is known."""
    first: int = PHASE


class Value(ctypes.Structure):
    """The record `value`: what an argument or a result must be."""

    _fields_ = fields_of("host/program_call.c", "value")


class Frame(ctypes.Structure):
    """The record `fuse_frame`: a program bound to memory of one run."""

    _fields_ = fields_of("host/program_call.c", "fuse_frame")


class _Interface(ctypes.Structure):
    """The record `interface`: objects and functions of CPython."""

    _fields_ = fields_of("host/python_objects.c", "interface")


class Result(ctypes.Structure):
    """The record `result`: memory of one result."""

    _fields_ = fields_of("host/program_call.c", "result")


class ProgramStruct(ctypes.Structure):
    """The record `fuse_program`."""

    keeps: tuple[Any, ...]
    """What it points to."""

    _fields_ = fields_of("host/program_call.c", "fuse_program")


class _Recent(ctypes.Structure):
    """The record `fuse_recent`: programs of one signature for different shapes."""

    _fields_ = fields_of("host/recent_calls.c", "fuse_recent")


class _Method(ctypes.Structure):
    """CPython's record PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80


@dataclass(frozen=True)
class Interpreter:
    """Addresses of CPython's functions that let other threads run, and take the interpreter back."""

    release: int
    take: int


Call = Callable[[tuple[Any, ...], Any], Any]
"""
Of a tuple of arguments, and None or what the results are to be written to: what a call of the program gives, or
NotImplemented where these are not arrays that can be taken as they are, or no memory for runs is at hand.
"""


@dataclass(frozen=True)
class Caller:
    """The entry points of program_call.c."""

    run: Callable[[int], None]
    """Runs a frame, by its address, whose table of buffers is filled; other threads have the interpreter meanwhile."""
    take: Callable[[int], int | None]
    """Of the address of a program's record: the address of a frame that nobody uses, now marked as busy."""
    keep: Callable[[int, int], int]
    """Lets later runs of a program have a frame; 0 where it has enough."""
    drop: Callable[[int, int], None]
    """Takes a frame away from later runs; it must be busy, by the caller of this."""
    call: int | None
    """
    The address of what runs a program from Python; None where this interpreter's objects are laid out in another way than
    program_call.c reads them.
    """
    interpreter: Interpreter
    call_sized: int | None
    """The same of what runs a program for any sizes."""
    call_recent: int | None
    """The same of what runs one of several programs, the one for the shapes of arguments."""
    remember: Callable[[int, Any], int | None]
    """Makes a program, the object of a `Call`, the first of a record's; gives the address of one that had to go."""
    take_sizes: Callable[[int, int, int], int]
    """Of the addresses of a program for any sizes, a frame of it and values of symbols (fuse_take_sizes)."""


class RecentCalls:
    """
    The calls of programs of one signature that were used last, and one call of them all, by compiled code: it takes the program
    for the shapes of its arguments, and gives NotImplemented where that is none of them, too.
    """

    def __init__(self, caller: Caller) -> None:
        """The caller must know how objects are laid out (`call_recent`)."""
        assert caller.call_recent is not None
        self._remember = caller.remember
        self._record = _Recent()
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._sized: list[tuple[object, Callable[[], object]]] = []
        self.call: Call = callable_of(self._record, caller.call_recent)

    def add(self, call: Call, program: Any) -> None:
        """Makes the call of a program, `CpuProgram.direct`, the one that was used last."""
        self._record.sized_last = 0
        record = cast("Any", call).__self__
        self._kept[id(record)] = record, program
        dropped = self._remember(ctypes.addressof(self._record), record)
        if dropped is not None:
            self._kept.pop(dropped, None)

    def add_sized(self, call: Call, last: Callable[[], Any]) -> None:
        """Lets a program for any sizes be called for shapes that no other is for; `last` gives it as it was called last."""
        record = cast("Any", call).__self__
        if all(known is not record for known, _ in self._sized) and len(self._sized) < len(self._record.sized):
            self._sized.append((record, last))
            self._record.sized[len(self._sized) - 1] = id(record)
            self._record.sized_count = len(self._sized)

    @property
    def takes_all(self) -> bool:
        """Whether a program for any sizes is among them."""
        return bool(self._sized)

    def last(self) -> object:
        """The program that was used last, or None."""
        if number := int(self._record.sized_last):
            return self._sized[number - 1][1]()
        found = self._kept.get(self._record.programs[0] or 0)
        return None if found is None else found[1]


@functools.cache
def load_caller() -> Caller:
    """The entry points; the pool must be there."""
    library = pool_library()
    assert library is not None
    run: Any = library.fuse_run_frame
    run.argtypes, run.restype = [ctypes.c_void_p], None
    held = ctypes.PyDLL(library._name)
    take: Any = held.fuse_take_frame
    take.argtypes, take.restype = [ctypes.c_void_p], ctypes.c_void_p
    keep: Any = held.fuse_keep_frame
    keep.argtypes, keep.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int
    drop: Any = held.fuse_drop_frame
    drop.argtypes, drop.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    interpreter = Interpreter(*(address_in(ctypes.pythonapi, f"PyEval_{name}Thread") for name in ("Save", "Restore")))
    remember: Any = held.fuse_remember
    remember.argtypes, remember.restype = [ctypes.c_void_p, ctypes.py_object], ctypes.c_void_p
    sizes: Any = held.fuse_take_sizes
    sizes.argtypes, sizes.restype = [ctypes.c_void_p] * 3, ctypes.c_int64
    names = ("fuse_call", "fuse_call_sized", "fuse_call_recent")
    calls = [address_in(held, name) for name in names] if _layout_is_known(held) else [None] * len(names)
    return Caller(run, take, keep, drop, calls[0], interpreter, calls[1], calls[2], remember, sizes)


def callable_of(record: ctypes.Structure, address: int) -> Callable[..., Any]:
    """What calls the function at the address with a record, whose field `python` this fills; it keeps the record alive."""
    setattr(record, "python", interface_address())  # noqa: B010
    make: Any = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p], ctypes.py_object
    return make(ctypes.addressof(_method(address)), np.frombuffer(memoryview(record), np.uint8), None)


@functools.cache
def _method(address: int) -> _Method:
    return _Method(b"call", address, _METH_FASTCALL, None)


def interface_address() -> int:
    """Of what compiled code knows of CPython."""
    return ctypes.addressof(_interface())


@functools.cache
def _interface() -> _Interface:
    objects = (tuple, list, np.ndarray, None, NotImplemented)
    functions = ("Py_IncRef", "Py_DecRef", "PyTuple_New", "PyObject_CallObject", "PyErr_Clear", "PyLong_FromLongLong")
    return _Interface(*map(id, objects), *(address_in(ctypes.pythonapi, name) for name in functions))


def _layout_is_known(library: ctypes.PyDLL) -> bool:
    """Whether program_call.c reads of objects what they say of themselves; sizes are compared before anything is read."""
    sizes = (object.__basicsize__, tuple.__basicsize__, tuple.__itemsize__, list.__basicsize__)
    if sizes != (16, 24, 8, 40) or types.BuiltinMethodType.__basicsize__ < 32:
        return False
    if np.ndarray.__basicsize__ < 72 or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    read_only = np.arange(3, dtype=np.int16)
    read_only.flags.writeable = False
    samples = (np.zeros((2, 3, 5), np.float32), np.zeros((4, 6)).T, np.zeros(()), np.zeros((0, 7), bool), read_only)
    return all(_is_read_rightly(library, array) for array in samples)


def _is_read_rightly(library: ctypes.PyDLL, array: np.ndarray[Any, Any]) -> bool:
    found = (ctypes.c_void_p * 11)()
    listed, lone = [array, None], np.empty(1).view
    library.fuse_describe(*map(ctypes.py_object, (array, listed, lone)), found)
    kind, data, dimensions, descr, flags, shape, list_kind, size, first, owner, references = found
    said = (id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num)
    if (kind, data, dimensions or 0, descr, flags or 0) != said:
        return False
    if (list_kind, size, first, owner, references) != (id(list), 2, id(array), id(lone.__self__), 1):
        return False
    if not array.ndim:
        return True
    return shape is not None and tuple((ctypes.c_ssize_t * array.ndim).from_address(shape)) == array.shape
