"""`Program`: all that a runtime may read. Plain data; with `narrow_floats`, all of this package that runtimes import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fuse_opt.lowering.program.float_formats import NARROW

VECTOR_BYTES = 16
"""Of the widest access that a thread of a GPU can make, which must begin at a multiple."""

REFERENCE = "reference"
"""The implementation that runs a kernel op by op; a call's `config` names the function that holds the ops."""
CHAIN, CHAIN_OPERANDS = "fused.chain", "fused.operands"
"""Entries of a call's `config`: the steps behind the op that it runs, as texts; which inputs are the op's operands."""
ORDERS = "fused.orders"
"""By input, then by output: the axes from outermost to innermost in memory; empty for row-major order."""
SAVED = "fused.saved"
"""What else a call makes of its operands, as texts: behind the op's results are those, in this order."""
INSIDE = "fused.inside"
"""And how many of the last outputs are values inside of a partition."""

Array = npt.NDArray[Any]
ConfigValue = int | float | str | tuple[int | float | str, ...]
Config = Mapping[str, ConfigValue]
"""An op's properties as plain values; sizes stand for numbers, as in shapes."""
Run = Callable[[Sequence[Array], Sequence[Array], Config], None]
"""A library's routine: `run(inputs, outputs, config)` writes every element of each output."""

NUMPY_NAMES: Mapping[str, str | np.dtype[Any]] = {
    "i1": "bool",
    **{f"{u}i{bits}": f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **NARROW,
}
"""The NumPy spelling of each element type."""


@dataclass(frozen=True)
class Buffer:
    """A piece of memory that the program works on; programs name buffers by their position in the table."""

    kind: Literal["argument", "result", "constant", "arena"]
    name: str
    dtype: str
    shape: tuple[int, ...]
    donated: bool = False
    """An argument whose memory the program may write to."""
    data: Array | None = None
    """The elements of a constant, in C order; to be kept alive and unchanged."""
    axes: tuple[int, ...] | None = None
    """Of an argument whose axes lie in another order than the caller's: which axis each one of `shape` is."""

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape that a caller's array has."""
        return _logical(self.shape, self.axes)


@dataclass(frozen=True)
class BufferRef:
    """An array in a buffer: C order, `offset` bytes from its beginning."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(NUMPY_NAMES[self.dtype]).itemsize


@dataclass(frozen=True)
class Launch:
    """A run of a kernel over `tasks` tasks, `grain` of which are worth a thread."""

    kernel: str
    buffers: tuple[BufferRef, ...]
    tasks: int
    grain: int
    loads: tuple[int, ...] | None = field(default=None, kw_only=True)
    """Which of the buffers it reads; None where that is not known."""
    stores: tuple[int, ...] | None = field(default=None, kw_only=True)
    """Which of them it writes, every element."""
    sizes: tuple[int, ...] = field(default=(), kw_only=True)
    """What its function takes behind the buffers."""
    work: int = field(default=0, kw_only=True)
    """Simple operations of a task, where only a call knows how many."""
    chunk: int = field(default=0, kw_only=True)
    """How many of these are worth a thread; 0 where `grain` says it."""

    @property
    def tasks_of_chunk(self) -> int:
        """How many tasks are worth a thread, as far as that is known."""
        return -(-self.chunk // max(self.work, 1)) if self.chunk else self.grain


@dataclass(frozen=True)
class GridLaunch(Launch):
    """A launch on a GPU: its tasks are the blocks of the grid."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    """Threads along x, y and z."""
    shared: int = 0
    """Bytes of shared memory to ask for."""
    aligned: tuple[int, ...] = ()
    """Buffers that must begin at multiples of 16 bytes."""
    unaligned: GridLaunch | None = None
    """What to launch where one of these does not."""

    def at(self, addresses: Sequence[int]) -> GridLaunch:
        """The launch for buffers that begin at these addresses."""
        if self.unaligned is not None and any(addresses[number] % VECTOR_BYTES for number in self.aligned):
            return self.unaligned
        return self


@dataclass(frozen=True)
class Loop:
    """A loop that threads share."""

    bundles: tuple[tuple[Launch, ...], ...]
    """Launches that run one after the other."""
    tasks: int
    grain: int
    whole: bool = False
    """Each bundle is a task. Else there is one bundle, and each launch of it runs its own task of the number."""

    @property
    def tasks_of_chunk(self) -> int:
        """The same of all launches."""
        launches = [] if self.whole else [launch for bundle in self.bundles for launch in bundle]
        return min((launch.tasks_of_chunk for launch in launches if launch.chunk), default=self.grain)


@dataclass(frozen=True)
class Segment:
    """Launches by one call of the function `function`, in order."""

    function: str
    launches: tuple[Launch, ...]
    phases: tuple[tuple[Loop, ...], ...] = ()
    """The same launches for threads that share them: loops that may run at a time, phase by phase; of GPUs none."""
    region: int | None = None
    """Neighbours of two regions are synchronised; None belongs to any."""


@dataclass(frozen=True)
class LibraryCall:
    """A call of a routine on views of the buffers."""

    implementation: str
    operation: str
    inputs: tuple[BufferRef, ...]
    outputs: tuple[BufferRef, ...]
    config: Mapping[str, ConfigValue]
    run: Run
    epilogue: Launch | None = None
    """All of the next step, where it may run by parts: its tasks, in order, overwrite equal parts of the only output.

    A task may run once its part of the output is there; it reads nothing of the others.
    """
    workspace: BufferRef | None = None
    """Bytes that the routine works in, and whose contents nobody reads: `run` has them as one more output."""
    touched: tuple[int, ...] = ()
    """By input, then by output, how many elements are read or written at most, if that is not all (-1) of each."""
    columns: tuple[int, ...] = ()
    """By input, what its elements are below where it is the columns of a csr argument, whose rows are the input before; else 0.

    Whoever runs the program has looked at such an argument. Nothing where there is none.
    """

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes read and written."""
        given, count = (*self.inputs, *self.outputs), len(self.inputs)
        limits = self.touched or (-1,) * len(given)
        first, result = self.inputs[:1], self.outputs[0]
        if limits[count] >= 0 and [(r.buffer, r.offset) for r in first] != [(result.buffer, result.offset)]:
            limits = (-1,) * len(given)  # what is not in place is copied
        sizes = [prod(ref.shape) if n < 0 else min(n, prod(ref.shape)) for n, ref in zip(limits, given, strict=True)]
        items = [ref.nbytes // max(prod(ref.shape), 1) for ref in given]
        found = [size * item for size, item in zip(sizes, items, strict=True)]
        return sum(found[:count]), sum(found[count:])

    def order(self, number: int) -> tuple[int, ...]:
        """The axes of an input, or of the output (-1), from outermost to innermost in memory; empty for C order."""
        return tuple(map(int, self._lying(number).partition("|")[0].split()))

    def panel(self, number: int) -> tuple[int, int, int] | None:
        """
        Of such an axis that is in panels, the outermost of which lies first: its place in that order, their width, and how many
        elements of the innermost other axis lie side by side for each of a panel's.
        """
        found = tuple(int(n) for n in self._lying(number).partition("|")[2].split(":") if n)
        return found if len(found) == 3 else None

    def _lying(self, number: int) -> str:
        orders = self.config.get(ORDERS)
        return str(orders[number]) if isinstance(orders, tuple) and orders else ""

    @property
    def written(self) -> tuple[BufferRef, ...]:
        """All that `run` is given to write to."""
        return self.outputs if self.workspace is None else (*self.outputs, self.workspace)


@dataclass(frozen=True)
class Result:
    """
    A result of the program: the contents of buffer `index`. A `result` buffer and a `donated` argument are handed to
    the caller as they are; what is a copy is copied after the last step.
    """

    shape: tuple[int, ...]
    dtype: str
    index: int
    copied: bool = False
    axes: tuple[int, ...] | None = None
    """Where its axes lie in another order than the caller's: which axis each one of `shape` is."""

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape that the caller's array has."""
        return _logical(self.shape, self.axes)


def _logical(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    return shape if axes is None else tuple(shape[axes.index(axis)] for axis in range(len(axes)))


@dataclass
class ProgramStats:
    """Counts that are known before the program runs; bytes are those of one run."""

    kernels: int = 0
    """Functions of generated code."""
    launches: int = 0
    """Runs of kernels in one run of the program."""
    library_calls: int = 0
    """Ops that an implementation runs as a whole."""
    segments: int = 0
    """Rows of launches between which nothing else runs."""
    arena_bytes: int = 0
    """The memory of all intermediate values."""
    lower_bound_bytes: int | None = None
    """What no plan for the arena can do without, where a planner has said so."""
    bytes_read: int = 0
    """By kernels and library calls, each operand once for each of its readers."""
    bytes_written: int = 0
    prepared_bytes: int = 0
    """Of tensors that are computed from frozen arguments and kept between runs."""
    workspace_bytes: int = 0
    """Of the arena, the most that a library call takes besides its operands and results."""
    inside_bytes: int = 0
    """Of the arena, values inside of partitions, each by itself."""
    generated_tiles: int = 0
    """Functions for parts of products, convolutions and attention, which are written for a shape; kernels share them."""
    host_ops: int = 0
    """Of the library calls of a program of a device, those that the host runs, between copies."""


@dataclass(frozen=True)
class Unit:
    """A part of a program's text that compiles on its own, to be linked with the others."""

    source: str


@dataclass(frozen=True)
class SizesLayout:
    """
    Of a program for any sizes: what its function `fuse_sizes` takes, and where in what it fills are numbers. The first are those
    that segments look up; then follow the tasks of loops, the operations of a task of each, the extents of arguments and results,
    their bytes, where places of the arena begin and end, and the bytes of the arena with what is behind them.
    """

    names: tuple[str, ...]
    """Of the symbols that it takes."""
    places: tuple[tuple[int, int], ...]
    """By symbol an argument and an axis of it, for the first ones; the caller must know the others."""
    buffer: int
    """The one that is the numbers, where segments look some up; else -1."""
    tasks: int
    works: int
    extents: int
    nbytes: int
    offsets: int
    arena: int
    grains: tuple[int, ...]
    """By loop, how many of its tasks are worth a thread, where `chunks` does not say it."""
    chunks: tuple[int, ...]
    """By loop, how many operations are worth a thread; 0 where nobody knows those of a task."""
    offset_names: tuple[str, ...] = ()
    """The symbols that references to the arena have for the beginnings of places, and for the end of all."""


@dataclass(frozen=True)
class Program:
    """A program ready to be compiled and run: text, buffers, and steps to be taken in order."""

    name: str
    source: str
    """Text in the target's language; "" where no kernel was generated."""
    buffers: tuple[Buffer, ...]
    """Arguments in order, prepared ones included, then results', constants', and the arena if there is one."""
    steps: tuple[Segment | LibraryCall, ...]
    results: tuple[Result, ...]
    arena_bytes: int
    arena_alignment: int
    stats: ProgramStats
    units: tuple[Unit, ...] = ()
    """`source` in parts that are worth compiling side by side; () where it is to be compiled as a whole."""
    prepare: Preparation | None = None
    """What computes the arguments that no caller gives."""
    sizes: SizesLayout | None = None
    """Where the text runs for any sizes, and says itself what follows from those of a call."""

    @property
    def arguments(self) -> tuple[Buffer, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.kind == "argument")


@dataclass(frozen=True)
class Preparation:
    """A program whose arguments are frozen ones of another program, and whose results are further arguments of that."""

    program: Program
    frozen: tuple[int, ...]
    """The other's arguments that it takes, in its order."""
    arguments: tuple[int, ...]
    """The other's arguments that its results are."""
