"""Programs on the CPU: compiled once, bound once, then one foreign call for all between calls of libraries from Python."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, LibraryCall, Program, ProgramStats, Segment, SizesLayout
from fuse_opt.runtime.cpu.arguments import Arguments, contiguous_view, copied_out
from fuse_opt.runtime.cpu.beside import compiled_beside
from fuse_opt.runtime.cpu.bindings import Binding, binding_of
from fuse_opt.runtime.cpu.frames import BoundCall, BoundFrame, FrameMaker, PythonCall, constant_data, takes_extents
from fuse_opt.runtime.cpu.result_memory import Calls, ResultMemory
from fuse_opt.runtime.cpu.sized_calls import SizedCalls
from fuse_opt.runtime.cpu.sized_frames import SizedFrame, sized_record
from fuse_opt.runtime.disk_cache import CacheStats, DiskCache
from fuse_opt.runtime.host import thread_pool
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in
from fuse_opt.runtime.host.program_call import Call, Caller, Interpreter, load_caller
from fuse_opt.runtime.orders import Orders

Array = NDArray[Any]

KERNELS_STAY_FUNCTIONS = ("-fno-inline",)
"""
All kernels of a program inlined into one function take gcc several times as long, and the kernels run no faster: their
arguments are constants all the same. Functions of scalars are inlined always.
"""
_pointed: Callable[[Array], ctypes.c_char] = ctypes.c_char.from_buffer  # pyright: ignore[reportAssignmentType]
_address_of = ctypes.addressof


@dataclass
class CpuStats(ProgramStats):
    """The program's counts, with how it is bound on this machine and what compiling it took."""

    foreign_calls: int = 0
    """How often a run calls compiled code of the program; between two of them Python calls a library."""
    parallel_regions: int = 0
    """How often a run calls threads together."""
    barriers: int = 0
    """How often threads wait for each other inside of these regions."""
    compile_s: float = 0.0
    """Seconds that making and loading its objects took."""
    compiled: int = 0
    """Objects that the compiler made for it."""
    cached: int = 0
    """Objects that were on disk already."""


class CpuProgram:
    """A program that can be called with NumPy arrays, from several threads at once."""

    def __init__(
        self, program: Program, cache: DiskCache | None = None, object_: Object | None = None, any_extents: bool = False
    ) -> None:
        """
        Compiles the program, or takes it from the disk cache; `object_` where that is done. One for `any_extents` is bound to
        memory for runs with others, too. Raises `CompileError` where there is no compiler.
        """
        self.program = program
        self._library, counts, seconds = load_object(program, cache) if object_ is None else object_
        self._steps = program.steps
        self._caller: Caller | None = load_caller() if thread_pool.pool_library() is not None else None
        interpreter = Interpreter(0, 0) if self._caller is None else self._caller.interpreter
        self._frames = FrameMaker(program, self._steps, self._library, interpreter, any_extents)
        bound = vars(self._frames.counters())
        self.stats = CpuStats(
            **vars(program.stats), **bound, compile_s=seconds, compiled=counts.misses, cached=counts.hits
        )
        self._arguments = Arguments(program)
        self._own = [
            (number, ResultMemory(buffer.shape, np.dtype(NUMPY_NAMES[buffer.dtype])))
            for number, buffer in enumerate(program.buffers)
            if buffer.kind == "result"
        ]
        self._fixed = len(program.arguments) + len(self._own)
        self._calls = Calls(self._frame_maker(), self._caller, exclusive=bool(self._arguments.donated))
        self._orders = Orders.of(program)
        self._in_memory: Call | None = self._direct()
        self.direct: Call | None = self._in_memory if self._orders is None else None
        """A call with a tuple of arrays and `out`, by compiled code; None where Python has a part in every run."""
        thread_pool.observe(self)

    @property
    def source(self) -> str:
        """The C text."""
        return self.program.source

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """
        Runs the program: one array for one result, else a tuple. `out` gives an array for each result, which may be
        arguments, too; for one result it may be the array. Raises `TypeError` and `ValueError` where arrays do not fit.
        """
        if self._orders is not None:
            return self._orders.call(self._call, arrays, out)
        return self._call(*arrays, out=out)

    def _call(self, *arrays: Any, out: Any = None) -> Any:
        """As a call, with the axes of all arrays as they lie in memory."""
        if (direct := self._in_memory) is not None and (found := direct(arrays, out)) is not NotImplemented:
            return found
        return self._checked_call(arrays, out)

    def _checked_call(self, arrays: Sequence[Any], out: Any) -> Any:
        """As a call; takes all that can be taken, and says what is wrong with the rest."""
        memory = self._arguments.checked(arrays)
        targets = None if out is None else self._arguments.checked_out(out)
        for number, own in self._own:
            target = None if targets is None else self._arguments.direct_target(number, targets, memory)
            memory.append(own.empty() if target is None else target)
        self._run(memory)
        results = self._results(memory)
        if targets is not None:
            results = copied_out(results, targets)
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def steps(self) -> tuple[Callable[[int, int], None] | LibraryCall, ...]:
        """
        For callers that bind memory themselves: what a run does, in order. A function takes a table's address and
        `parallel_for`; calls of libraries are the caller's to make.
        """
        return tuple(self._segment(step) if isinstance(step, Segment) else step for step in self._steps)

    @property
    def parallel_for(self) -> int:
        """The address of the pool's loop, which the functions of `steps` take."""
        return thread_pool.load_pool()

    def bind(self) -> Binding:
        """What one run needs to itself; the caller writes the addresses of arguments and results to the table."""
        return binding_of(self._frames.make())

    @property
    def compiled_calls(self) -> tuple[frozenset[int], bool]:
        """
        The numbers of those `steps` that are calls of libraries and in the pieces of a binding nevertheless, and whether
        `Binding.check` has to be called after a run.
        """
        return self._frames.compiled_calls()

    @property
    def run(self) -> Callable[[int], None]:
        """Runs a piece of a binding whose table is filled, as one foreign call and one parallel region."""
        assert self._caller is not None, "a program without a C compiler cannot be bound"
        return self._caller.run

    def threads_changed(self) -> None:
        """Frames are planned for a number of threads: those that nobody uses are made anew."""
        self._calls.forget()

    def _frame_maker(self) -> Callable[[], BoundFrame]:
        """It does not refer to this object, so that memory goes with the last reference to that."""
        return self._frames.make

    def _direct(self) -> Call | None:
        given = self._results_in_place()
        if self._caller is None or self._caller.call is None or given is None or not self._frames.is_whole():
            return None
        own = [memory for _, memory in self._own]
        return self._calls.direct(self._caller.call, len(self.program.arguments), own, given)

    def sized_calls(self, layout: SizesLayout) -> SizedCalls | None:
        """
        Calls of any extents, of a program for any, as which this one was made, on arrays as they lie in memory; None where Python
        has a part in runs.
        """
        library, given = self._library, self._results_in_place()
        if self._in_memory is None or given is None or library is None or self._caller is None:
            return None
        if any(isinstance(step, LibraryCall) and takes_extents(step) for step in self._steps):
            return None
        sizes = address_in(library, "fuse_sizes")
        return SizedCalls(self.program, layout, sizes, self._caller, self._frame_maker(), given)

    def sized_frames(self, layout: SizesLayout) -> Callable[[], SizedFrame]:
        """Gives frames of a program for any extents, as which this one was made, to callers that bind memory themselves."""
        assert self._caller is not None and self._library is not None, "a program for any sizes is compiled"
        program, caller, make = self.program, self._caller, self._frame_maker()
        common = sized_record(layout, address_in(self._library, "fuse_sizes"), caller)
        return lambda: SizedFrame(program, layout, common, caller, make())

    def call_binder(self) -> Callable[[SizedFrame, LibraryCall], Callable[[], None] | None]:
        """Binds calls whose extents are numbers to frames of `sized_frames`: what makes one, where compiled code does."""
        assert self._caller is not None, "a program for any sizes is compiled"
        frames, run = self._frames, self._caller.run

        def bind(frame: SizedFrame, call: LibraryCall) -> Callable[[], None] | None:
            if (found := frames.add_call(frame.bound, call)) is None:
                return None
            return partial(run_call, run, found)

        return bind

    def _run(self, memory: list[Array]) -> None:
        frame = self._calls.take()
        try:
            fill_table(frame, memory)
            self._take_steps(frame, memory)
        finally:
            self._calls.give_back(frame)

    def _take_steps(self, frame: BoundFrame, memory: list[Array]) -> None:
        for piece in frame.pieces:
            if isinstance(piece, PythonCall):
                call_library(piece, memory)
            elif self._caller is not None:
                self._caller.run(piece)
        frame.check()

    def _results_in_place(self) -> tuple[int, ...] | None:
        """By result the argument or result buffer that is handed to the caller as it is; None where one is not so."""
        for result in self.program.results:
            buffer = self.program.buffers[result.index]
            if result.copied or result.index >= self._fixed:
                return None
            if (buffer.shape, buffer.dtype) != (result.shape, result.dtype):
                return None
        return tuple(result.index for result in self.program.results)

    def _results(self, memory: Sequence[Array]) -> list[Array]:
        found: list[Array] = []
        for result in self.program.results:
            buffer = self.program.buffers[result.index]
            array = memory[result.index] if result.index < self._fixed else constant_data(buffer)
            array = contiguous_view(array, BufferRef(result.index, 0, result.shape, result.dtype))
            found.append(array.copy() if result.copied else array)
        return found

    def _segment(self, segment: Segment) -> Callable[[int, int], None]:
        assert self._library is not None
        function = getattr(self._library, segment.function)
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        return cast(Callable[[int, int], None], function)


def run_call(run: Callable[[int], None], call: BoundCall) -> None:
    """Raises what the run is refused with."""
    run(call.address)
    if call.failures:
        call.check()


def fill_table(frame: BoundFrame, memory: Sequence[Array]) -> None:
    """Writes the addresses of arguments and results."""
    table = frame.table
    for number, array in enumerate(memory):
        try:
            table[number] = _address_of(_pointed(array))
        except (TypeError, ValueError):  # read-only, or empty
            table[number] = array.ctypes.data


def call_library(call: PythonCall, memory: Sequence[Array]) -> None:
    """Calls the routine on views of the run's memory."""
    step = call.step
    bound = zip((*call.inputs, *call.outputs), (*step.inputs, *step.written), strict=True)
    views = [view if view is not None else contiguous_view(memory[ref.buffer], ref) for view, ref in bound]
    with thread_pool.without_pool() if call.exclusive else nullcontext():
        step.run(views[: len(step.inputs)], views[len(step.inputs) :], step.config)


Object = tuple[ctypes.CDLL | None, CacheStats, float]
"""A compiled program, what compiling it asked of the cache, and how many seconds it took."""


def load_object(program: Program, cache: DiskCache | None = None, at: Callable[[], Program] | None = None) -> Object:
    """
    Compiles a program's text, or takes it from the disk cache, and what makes its calls of libraries with it; `at` gives it with
    numbers where it has sizes. Raises `CompileError`.
    """
    if not program.source:
        return None, CacheStats(), 0.0
    started = time.perf_counter()
    compiler = find_c_compiler(cache)
    if compiler is None:
        raise CompileError("there is no working C compiler; install one, or name it in FUSE_OPT_CC")
    cache = cache or DiskCache()
    before = cache.stats
    functions = [step.function for step in program.steps if isinstance(step, Segment)]
    with compiled_beside(program, at, load_object):
        if program.units:
            sources = [unit.source for unit in program.units]
            library = compiler.load_units(sources, cache, functions, KERNELS_STAY_FUNCTIONS)
        else:
            library = compiler.load_shared(program.source, cache, functions, KERNELS_STAY_FUNCTIONS)
    hits, misses = cache.stats.hits - before.hits, cache.stats.misses - before.misses
    return library, CacheStats(hits, misses), time.perf_counter() - started
