"""Programs on the CPU: compiled once, bound once, then one foreign call for each segment of a run."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.narrow_floats import recognized, type_name
from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, BufferRef, LibraryCall, Program, ProgramStats, Segment
from fuse_opt.runtime.buffers import AlignedArena, RecyclingPool
from fuse_opt.runtime.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.disk_cache import CacheStats, DiskCache
from fuse_opt.runtime.libraries import Attempt, resolve, resolve_then
from fuse_opt.runtime.thread_pool import load_pool

Array = NDArray[Any]

_READY = 0x101
"""NumPy's flags of an array in C order at natural alignment."""
_WRITEABLE = 0x400
_RECYCLED = 64 << 10
"""Bytes from which on a result's memory is taken from the pool of dropped ones."""
_KERNELS_STAY_FUNCTIONS = ("-fno-inline",)
"""
All kernels of a program inlined into one function take gcc several times as long, and the kernels run no faster: their
arguments are constants all the same. Functions of scalars are inlined always.
"""
_MOST_IDLE = 16
"""Arenas that a program keeps while nobody calls it."""
_pool = RecyclingPool()
_pointed: Callable[[Array], ctypes.c_char] = ctypes.c_char.from_buffer  # pyright: ignore[reportAssignmentType]
_address_of = ctypes.addressof


@dataclass(frozen=True)
class CpuStats(ProgramStats):
    """The program's counts, with what compiling it took."""

    compile_s: float = 0.0
    compiled: int = 0
    """Objects that the compiler made for it."""
    cached: int = 0
    """Objects that were on disk already."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A library call with the views that stay as long as an arena does; the others are None and made for each run."""

    step: LibraryCall
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    then: Attempt | None
    """Runs the next step, too, or answers False."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """What one run needs to itself: an arena, the table of addresses, and library calls bound to the arena."""

    arena: AlignedArena
    table: ctypes.Array[ctypes.c_void_p]
    address: int
    calls: tuple[_Call | None, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """Memory of one run: by buffer of the program, an address; those of constants and of the arena are there."""

    arena: AlignedArena
    table: ctypes.Array[ctypes.c_void_p]
    address: int
    """Of the table."""

    def array(self, ref: BufferRef) -> Array:
        """What a reference of the program means now, as an array over the same memory."""
        dtype = np.dtype(NUMPY_NAMES[ref.dtype])
        count = prod(ref.shape)
        if not count:
            return np.empty(ref.shape, dtype)
        address = (self.table[ref.buffer] or 0) + ref.offset
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        return np.frombuffer(memoryview(memory), dtype, count).reshape(ref.shape)


class CpuProgram:
    """A program that can be called with NumPy arrays, from several threads at once."""

    def __init__(self, program: Program, cache: DiskCache | None = None) -> None:
        """Compiles the program, or takes it from the disk cache. Raises `CompileError` where there is no compiler."""
        self.program = program
        started = time.perf_counter()
        self._library, counts = _load(program, cache) if program.source else (None, CacheStats())
        seconds = time.perf_counter() - started
        self.stats = CpuStats(**vars(program.stats), compile_s=seconds, compiled=counts.misses, cached=counts.hits)
        self._parallel_for = load_pool()
        self._segments = tuple(self._bound(step) for step in program.steps)
        self._steps = tuple(
            replace(step, run=resolve(step.implementation, step.run)) if isinstance(step, LibraryCall) else step
            for step in program.steps
        )
        self._arguments = tuple(
            (buffer.shape, np.dtype(NUMPY_NAMES[buffer.dtype]), _READY | _WRITEABLE if buffer.donated else _READY)
            for buffer in program.arguments
        )
        self._own = [
            (
                number,
                buffer.shape,
                dtype := np.dtype(NUMPY_NAMES[buffer.dtype]),
                _nbytes(buffer.shape, dtype) >= _RECYCLED,
            )
            for number, buffer in enumerate(program.buffers)
            if buffer.kind == "result"
        ]
        self._fixed = len(self._arguments) + len(self._own)
        self._donated = [number for number, buffer in enumerate(program.arguments) if buffer.donated]
        self._plain = [(r.index, r.shape, r.copied) for r in program.results] == [
            (number, shape, False) for number, shape, *_ in self._own
        ]
        # Its appends and pops are atomic: no lock that a fork could leave held in the child.
        self._idle: deque[_Frame] = deque(maxlen=_MOST_IDLE)

    @property
    def source(self) -> str:
        """The C text."""
        return self.program.source

    def __call__(self, *arrays: Any, out: Sequence[Array] | None = None) -> Any:
        """
        Runs the program: one array for one result, else a tuple. `out` gives an array for each result, which may be
        arguments, too. Raises `TypeError` and `ValueError` where arrays do not fit.
        """
        memory = self._checked_arguments(arrays)
        if self._donated:
            self._check_donated(memory)
        targets = None if out is None else self._checked_out(out)
        for number, shape, dtype, recycled in self._own:
            target = None if targets is None else self._direct_target(number, targets, memory)
            if target is None:
                target = _pool.empty(shape, dtype) if recycled else np.empty(shape, dtype)
            memory.append(target)
        self._run(memory)
        results = memory[len(self._arguments) :] if self._plain else self._results(memory)
        if targets is not None:
            results = _copied_out(results, targets)
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def steps(self) -> tuple[Callable[[int, int], None] | LibraryCall, ...]:
        """
        For callers that bind memory themselves: what a run does, in order. A function takes a table's address and
        `parallel_for`; calls of libraries are the caller's to make.
        """
        both = zip(self._segments, self._steps, strict=True)
        return tuple(
            step if isinstance(step, LibraryCall) else cast(Callable[[int, int], None], segment)
            for segment, step in both
        )

    @property
    def parallel_for(self) -> int:
        """The address of the pool's loop, which the functions of `steps` take."""
        return self._parallel_for

    def bind(self) -> Binding:
        """What one run needs to itself; the caller writes the addresses of arguments and results to the table."""
        frame = self._new_frame()
        return Binding(frame.arena, frame.table, frame.address)

    def _run(self, memory: list[Array]) -> None:
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self._new_frame()
        try:
            table = frame.table
            for number, array in enumerate(memory):
                try:
                    table[number] = _address_of(_pointed(array))
                except (TypeError, ValueError):  # read-only, or empty
                    table[number] = array.ctypes.data
            self._take_steps(frame, memory)
        finally:
            self._idle.append(frame)

    def _take_steps(self, frame: _Frame, memory: list[Array]) -> None:
        address, parallel_for = frame.address, self._parallel_for
        done = False
        for segment, call in zip(self._segments, frame.calls, strict=True):
            if done:
                done = False
            elif segment is not None:
                segment(address, parallel_for)
            elif call is not None:
                done = self._call_library(call, memory)

    def _call_library(self, call: _Call, memory: list[Array]) -> bool:
        """Whether the next step ran with it."""
        step = call.step
        inputs = [
            v if v is not None else _view(memory[r.buffer], r) for v, r in zip(call.inputs, step.inputs, strict=True)
        ]
        outputs = [
            v if v is not None else _view(memory[r.buffer], r) for v, r in zip(call.outputs, step.outputs, strict=True)
        ]
        if call.then is not None and call.then(inputs, outputs, step.config):
            return True
        step.run(inputs, outputs, step.config)
        return False

    def _checked_arguments(self, arrays: Sequence[Any]) -> list[Array]:
        if len(arrays) != len(self._arguments):
            raise TypeError(f"'{self.program.name}' takes {len(self._arguments)} arguments, got {len(arrays)}")
        memory: list[Array] = []
        for array, (shape, dtype, flags) in zip(arrays, self._arguments, strict=True):
            if type(array) is not np.ndarray:
                array = _as_array(array)
            if array.dtype != dtype:
                array = recognized(array, dtype)
            if array.dtype != dtype or array.shape != shape:
                raise self._misfit(len(memory), array)
            if array.flags.num & flags != flags:
                array = self._usable(len(memory), array, flags)
            memory.append(array)
        return memory

    def _misfit(self, number: int, array: Array) -> Exception:
        shape, dtype, _ = self._arguments[number]
        name = self.program.buffers[number].name
        kind = TypeError if array.dtype != dtype else ValueError
        wanted, got = f"{type_name(dtype)} {list(shape)}", f"{type_name(array.dtype)} {list(array.shape)}"
        return kind(f"argument {number} ('{name}'): expected {wanted}, got {got}")

    def _usable(self, number: int, array: Array, flags: int) -> Array:
        """The array in C order: a copy, unless the program is to write to it."""
        if flags & _WRITEABLE:
            name = self.program.buffers[number].name
            raise ValueError(
                f"argument {number} ('{name}') is donated: expected a writeable array in C order, which can be reused"
            )
        return np.array(array, order="C")

    def _check_donated(self, memory: Sequence[Array]) -> None:
        for number in self._donated:
            for other, array in enumerate(memory):
                if other != number and np.may_share_memory(memory[number], array):
                    raise ValueError(f"arguments {number} and {other} share memory, and argument {number} is donated")

    def _checked_out(self, out: Sequence[Array]) -> list[Array]:
        results = self.program.results
        if len(out) != len(results):
            raise ValueError(f"out: expected {len(results)} arrays, got {len(out)}")
        targets: list[Array] = []
        for number, (array, result) in enumerate(zip(out, results, strict=True)):
            dtype = np.dtype(NUMPY_NAMES[result.dtype])
            if isinstance(array, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
                array = recognized(array, dtype)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != result.shape:  # pyright: ignore[reportUnnecessaryIsInstance]
                given = f"{type_name(array.dtype)} {list(array.shape)}" if hasattr(array, "dtype") else None
                wanted = f"{type_name(dtype)} {list(result.shape)}"
                raise ValueError(f"out[{number}]: expected {wanted}, got {given or type(array).__name__}")
            if not array.flags.writeable:
                raise ValueError(f"out[{number}] cannot be written to")
            targets.append(array)
        return targets

    def _direct_target(self, buffer: int, targets: Sequence[Array], memory: Sequence[Array]) -> Array | None:
        """The caller's array for a result buffer, where the program may write to it while it runs."""
        position = next((k for k, r in enumerate(self.program.results) if r.index == buffer and not r.copied), None)
        if position is None:
            return None
        target = targets[position]
        others = [*memory, *(t for t in targets if t is not target)]
        flags = _READY | _WRITEABLE
        if target.flags.num & flags != flags or any(np.may_share_memory(target, other) for other in others):
            return None
        return target

    def _results(self, memory: Sequence[Array]) -> list[Array]:
        found: list[Array] = []
        for result in self.program.results:
            buffer = self.program.buffers[result.index]
            array = memory[result.index] if result.index < self._fixed else _constant(buffer)
            array = _view(array, BufferRef(result.index, 0, result.shape, result.dtype))
            found.append(array.copy() if result.copied else array)
        return found

    def _bound(self, step: Segment | LibraryCall) -> Callable[[int, int], None] | None:
        if not isinstance(step, Segment):
            return None
        assert self._library is not None
        function = getattr(self._library, step.function)
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        return function

    def _new_frame(self) -> _Frame:
        arena = AlignedArena(self.program.arena_bytes, self.program.arena_alignment)
        buffers = self.program.buffers
        table = (ctypes.c_void_p * max(len(buffers), 1))()
        fixed: dict[int, Array] = {}
        for number, buffer in enumerate(buffers):
            if buffer.kind == "constant":
                fixed[number] = _constant(buffer)
                table[number] = fixed[number].ctypes.data
            elif buffer.kind == "arena":
                table[number] = arena.address

        def bound(ref: BufferRef) -> Array | None:
            if buffers[ref.buffer].kind == "arena":
                return arena.view(ref.offset, ref.shape, NUMPY_NAMES[ref.dtype])
            return _view(fixed[ref.buffer], ref) if ref.buffer in fixed else None

        calls = tuple(
            _Call(
                step,
                tuple(map(bound, step.inputs)),
                tuple(map(bound, step.outputs)),
                resolve_then(step, self._segments[number + 1 : number + 2], ctypes.addressof(table)),
            )
            if isinstance(step, LibraryCall)
            else None
            for number, step in enumerate(self._steps)
        )
        return _Frame(arena, table, ctypes.addressof(table), calls)


def _load(program: Program, cache: DiskCache | None) -> tuple[ctypes.CDLL, CacheStats]:
    """The compiled program, and what compiling it asked of the cache."""
    compiler = find_c_compiler(cache)
    if compiler is None:
        raise CompileError("there is no working C compiler; install one, or name it in FUSE_OPT_CC")
    cache = cache or DiskCache()
    before = cache.stats
    if program.units:
        path = compiler.compile_units([unit.source for unit in program.units], cache, _KERNELS_STAY_FUNCTIONS)
    else:
        path = compiler.compile_shared(program.source, cache, _KERNELS_STAY_FUNCTIONS)
    hits, misses = cache.stats.hits - before.hits, cache.stats.misses - before.misses
    return ctypes.CDLL(str(path)), CacheStats(hits, misses)


def _nbytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return prod(shape) * dtype.itemsize


def _constant(buffer: Buffer) -> Array:
    assert buffer.data is not None
    return buffer.data


def _view(array: Array, ref: BufferRef) -> Array:
    """A contiguous array as the reference describes it: the same bytes."""
    dtype = np.dtype(NUMPY_NAMES[ref.dtype])
    if array.shape == ref.shape and array.dtype == dtype:
        return array
    if array.dtype != dtype:
        array = array.reshape(-1).view(dtype)
    return array.reshape(ref.shape)


def _as_array(value: Any) -> Array:
    """What another library, or Python, calls an array."""
    foreign = hasattr(value, "__dlpack__") and not issubclass(type(value), (np.ndarray, np.generic))
    return np.from_dlpack(value) if foreign else np.asarray(value)


def _copied_out(results: Sequence[Array], targets: Sequence[Array]) -> list[Array]:
    for result, target in zip(results, targets, strict=True):
        if result is not target:
            np.copyto(target, result)
    return list(targets)
