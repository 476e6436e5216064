"""The steps of a program on a device: work that is enqueued, and library calls that have to run on the host."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import (
    NUMPY_NAMES,
    VECTOR_BYTES,
    BufferRef,
    GridLaunch,
    Launch,
    LibraryCall,
    Program,
)
from fuse_opt.runtime.backends.registry import DeviceLibraries
from fuse_opt.runtime.cuda.made_functions import made_function
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import NON_BLOCKING, CudaError, DriverError
from fuse_opt.runtime.device.graphs import CapturedGraphs, Graphs, RunCounts
from fuse_opt.runtime.device.kernel_graphs import KernelGraphs, KernelNode, Packed
from fuse_opt.runtime.device.kernels import Kernels, LaunchConfig, Start

Array = NDArray[Any]


_POINTER = 8
MOST_DIRECT = 1
"""
Launches that are enqueued one by one rather than as a graph. Bound calls of one, two, three kernels took the host of an H200
7.1, 9.4, 13.7 us by launches and 7.2, 5.6, 5.6 us by a graph.
"""


class Addresses:
    """The address of each buffer in a run, and the arguments of all launches, packed: pointers one after another."""

    def __init__(self, program: Program) -> None:
        launches = launches_of(program)
        self.memory = ctypes.create_string_buffer(_POINTER * sum(map(_count, launches)))
        """The arguments: of each launch pointers, its sizes, and those of what may take its place."""
        self._used = self._choices = 0
        self._pack = _packing(launches, len(program.buffers), self.memory)
        self.table: tuple[int, ...] = ()
        self.misaligned: tuple[int, ...] = ()
        """By launch that has a kernel for arrays that begin anywhere: whether this run has such, as 0 or another number."""
        self.use((0,) * len(program.buffers))

    def next_launch(self, launch: Launch) -> tuple[int, int | None]:
        """Where the arguments of the next launch begin among those packed, and its number among those that have a choice."""
        start, self._used = self._used, self._used + _POINTER * _count(launch)
        choice = self._choices if _has_choice(launch) else None
        self._choices += choice is not None
        return start, choice

    @property
    def start(self) -> int:
        """Where the arguments of all launches lie."""
        return ctypes.addressof(self.memory)

    def packed(self) -> Packed:
        """The arguments of all launches, and which run unaligned."""
        return self.memory.raw, self.misaligned

    def use(self, table: tuple[int, ...]) -> None:
        """Takes the addresses of a run, and packs anew what depends on them."""
        if table != self.table:
            self.misaligned = self._pack(*table)
            self.table = table

    def of(self, ref: BufferRef) -> int:
        return self.table[ref.buffer] + ref.offset


def launches_of(program: Program) -> list[Launch]:
    return [launch for step in program.steps if not isinstance(step, LibraryCall) for launch in step.launches]


def _has_choice(launch: Launch) -> bool:
    return len(_either(launch)) > 1


def _either(launch: Launch) -> tuple[Launch, ...]:
    """The launch, and what takes its place where a buffer does not begin as it wants it."""
    other = launch.unaligned if isinstance(launch, GridLaunch) else None
    return (launch,) if other is None else (launch, other)


def _count(launch: Launch) -> int:
    """Arguments that are packed for it."""
    return len(launch.buffers) + sum(len(each.sizes) for each in _either(launch))


def _sizes_at(launch: GridLaunch, begin: int) -> tuple[int, int]:
    """Where the sizes of a launch whose arguments begin there lie, and those of what takes its place."""
    first = begin + _POINTER * len(launch.buffers)
    return first, first + _POINTER * len(launch.sizes)


def _packing(launches: Sequence[Launch], count: int, memory: Any) -> Callable[..., tuple[int, ...]]:
    """
    A function of the addresses of all buffers that writes the arguments of all launches to `memory`, and says which are to run
    unaligned. It is made as text: a call takes a tenth of a microsecond, and little more for each argument. Numbers are names in
    it, so that the programs of one text for several extents have one.
    """
    names: dict[str, Any] = {"memory": memory}

    def known(number: int) -> str:
        name = f"k{len(names)}"
        names[name] = number
        return name

    def text(ref: BufferRef) -> str:
        return f"a{ref.buffer} + {known(ref.offset)}" if ref.offset else f"a{ref.buffer}"

    refs = [
        word
        for launch in launches
        for word in (*map(text, launch.buffers), *(known(size) for each in _either(launch) for size in each.sizes))
    ]
    choices = [
        " | ".join(f"({text(launch.buffers[number])})" for number in launch.aligned)
        for launch in launches
        if isinstance(launch, GridLaunch) and launch.unaligned is not None
    ]
    lines = [
        f"def pack_arguments({', '.join(f'a{number}' for number in range(count))}):",
        f"    pack({', '.join(['memory, 0', *refs])})",
        f"    return ({''.join(f'({choice or 0}) % {VECTOR_BYTES}, ' for choice in choices)})",
    ]
    return made_function("\n".join(lines), names | {"pack": struct.Struct(f"={len(refs)}Q").pack_into})


@dataclass(frozen=True)
class HostCall:
    """A library call on the host, on page-locked copies of its arrays; `read` and `written` are those as bytes."""

    step: LibraryCall
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    read: tuple[Array, ...]
    written: tuple[Array, ...]


@dataclass
class DeviceWork:
    """Launches and calls of libraries that follow one another: what one graph can hold."""

    items: list[Callable[[Any], None]] = field(default_factory=list[Callable[[Any], None]])
    """What takes a stream: for calls of libraries one of PyCUDA's."""
    nodes: list[KernelNode] = field(default_factory=list[KernelNode])
    """Of launches."""
    captured: bool = True
    """Whether it may be a graph; if not, it runs on the program's own stream."""
    graphs: Graphs | None = None

    @property
    def has_calls(self) -> bool:
        return len(self.nodes) < len(self.items)

    @property
    def direct(self) -> bool:
        """Whether it runs on any stream without a graph."""
        return not self.has_calls and len(self.items) <= MOST_DIRECT

    def enqueue(self, stream: Any) -> None:
        for item in self.items:
            item(stream)


@dataclass(frozen=True)
class Shared:
    """What all steps of a run use: libraries with a workspace each, and the stream that graphs are captured on."""

    libraries: DeviceLibraries
    captured: Any

    @classmethod
    def of(cls, device: Device) -> Shared:
        """New ones. Raises CudaError."""
        libraries = DeviceLibraries(device)  # all steps of the run keep them
        return cls(libraries, device.new_stream(libraries, NON_BLOCKING))


@dataclass(slots=True)
class StreamHandle:
    """A stream of somebody's."""

    handle: int


class Steps:
    """A program's steps, bound to a stream and to the table of addresses."""

    def __init__(
        self,
        program: Program,
        device: Device,
        stream: Any,
        kernels: Kernels | None,
        counts: RunCounts,
        shared: Shared | None = None,
    ) -> None:
        """`shared` is what other steps of the same run have already. Raises CudaError."""
        shared = shared or Shared.of(device)
        self._libraries = libraries = shared.libraries
        self.addresses = Addresses(program)
        self._device = device
        self._stream = stream
        self._captured = shared.captured
        self._counts = counts
        self._kernels = kernels
        self._program = program
        self._configs, self._stream_set = list[LaunchConfig](), 0
        """Of all launches, and the stream that they have."""
        self._launches: list[Callable[[], None]] = []
        self.parts: list[DeviceWork | HostCall] = []
        for step in program.steps:
            if not isinstance(step, LibraryCall):
                for launch in step.launches:
                    assert isinstance(launch, GridLaunch)
                    self._work(True).nodes.append(self._launch(launch))
            elif (library := libraries.find(step.implementation)) is not None:
                work = self._work(libraries.is_captured(step))
                work.items.append(library.bound(step, self.addresses.of))
            else:
                self.parts.append(self._host_call(step))
        for part in self.parts:
            if isinstance(part, DeviceWork) and part.captured and not part.direct:
                part.graphs = self._graphs_of(part)
        self._count = len(self._launches)
        self.all_launches = all(isinstance(part, DeviceWork) and not part.has_calls for part in self.parts)
        """Whether there is nothing but launches of kernels, whether one by one or as graphs."""
        self.all_on_device = not any(isinstance(part, HostCall) for part in self.parts)
        self.all_direct = all(isinstance(part, DeviceWork) and part.direct for part in self.parts)
        """Whether there is nothing but launches of kernels, one by one."""

    def graphs(self) -> list[int | None]:
        """
        For each part the graph to replay with the addresses of the table, captured now where they have come again; None for
        one that runs without.
        """
        key = self.addresses.table
        return [
            part.graphs.find(key, part.enqueue) if isinstance(part, DeviceWork) and part.graphs is not None else None
            for part in self.parts
        ]

    def follow(self, graphs: Sequence[int | None]) -> bool:
        """Whether all parts run on any stream."""
        pairs = zip(self.parts, graphs, strict=True)
        return all(graph is not None or (isinstance(part, DeviceWork) and part.direct) for part, graph in pairs)

    def run(self, graphs: Sequence[int | None], stream: int) -> None:
        """
        Runs the steps, those that run on any stream on `stream`, the others on the program's own. Raises CudaError, and what
        the host's calls raise.
        """
        for part, graph in zip(self.parts, graphs, strict=True):
            if isinstance(part, HostCall):
                self._run_on_host(part)
            elif graph is not None and part.graphs is not None:
                part.graphs.launch(graph, stream)
            else:
                part.enqueue(StreamHandle(stream) if part.direct else self._stream)
                self._counts.kernel_launches += len(part.items)

    def join_capture(self, stream: int) -> None:
        """Enqueues steps that run on any stream one by one: the driver launches no graph on a stream that is captured."""
        for part in self.parts:
            assert isinstance(part, DeviceWork)
            part.enqueue(StreamHandle(stream))
            self._counts.kernel_launches += len(part.items)

    def launch(self, stream: int) -> None:
        """Runs steps that are all direct. Raises CudaError."""
        if stream != self._stream_set:
            self._set_stream(stream)
        for launch in self._launches:
            launch()
        self._counts.kernel_launches += self._count

    def bound(self, table: tuple[int, ...], stream: int) -> Callable[[], int] | None:
        """
        What enqueues the one launch that a run is, always with these addresses on this stream, and gives the driver's status;
        None where a run is more. Its arguments are its own, so that nothing is written for a call. Raises CudaError.
        """
        if not self.all_direct or self._count != 1:
            return None
        (launch,) = launches_of(self._program)
        assert isinstance(launch, GridLaunch)
        own = Addresses(self._program)
        own.use(table)
        chosen = launch.at([own.of(ref) for ref in launch.buffers])
        start = self._start(chosen, own, 0, _sizes_at(launch, 0)[chosen is not launch])
        start.config.stream = stream
        return start.call

    def check(self) -> None:
        """Raises what a run that is over is refused with: IndexError for an index out of range."""
        self._libraries.check()

    def _work(self, captured: bool) -> DeviceWork:
        """What the next item belongs to."""
        work = self.parts[-1] if self.parts else None
        if not isinstance(work, DeviceWork) or work.captured != captured:
            work = DeviceWork(captured=captured)
            self.parts.append(work)
        return work

    def _graphs_of(self, work: DeviceWork) -> Graphs:
        if work.has_calls:
            return CapturedGraphs(self._device, self._counts, self._captured)
        return KernelGraphs(self._device, self._counts, work.nodes, self.addresses.packed)

    def _launch(self, launch: GridLaunch) -> KernelNode:
        """Adds a launch to the part that it belongs to."""
        addresses, library = self.addresses, self._device.library
        begin, choice = addresses.next_launch(launch)
        either = [launch] if launch.unaligned is None else [launch, launch.unaligned]
        places = zip(either, _sizes_at(launch, begin), strict=False)
        starts = [self._start(each, addresses, begin, sizes) for each, sizes in places]
        start, other = starts[0].call, starts[-1].call
        self._configs += [each.config for each in starts]

        def launch_now() -> None:
            if status := (start if choice is None or not addresses.misaligned[choice] else other)():
                raise CudaError(f"kernel '{launch.kernel}' could not be launched: {library.message(status)}")

        def enqueue(stream: Any) -> None:
            if stream.handle != self._stream_set:
                self._set_stream(stream.handle)
            launch_now()

        self._launches.append(launch_now)
        self._work(True).items.append(enqueue)
        return self._node(launch, begin, choice)

    def _node(self, launch: GridLaunch, begin: int, choice: int | None) -> KernelNode:
        assert self._kernels is not None
        start = self.addresses.start
        sizes, others = (start + place for place in _sizes_at(launch, begin))
        node = other = self._kernels.node(launch, start + begin, sizes)
        if launch.unaligned is not None:
            other = self._kernels.node(launch.unaligned, start + begin, others)
        return KernelNode(begin, begin + _POINTER * _count(launch), node, other, choice)

    def _set_stream(self, stream: int) -> None:
        for config in self._configs:
            config.stream = stream
        self._stream_set = stream

    def _start(self, launch: GridLaunch, addresses: Addresses, begin: int, sizes: int) -> Start:
        assert self._kernels is not None
        try:
            return self._kernels.start(launch, addresses.memory, begin, sizes)
        except DriverError as error:
            raise CudaError(f"kernel '{launch.kernel}': {error}") from error

    def _host_call(self, step: LibraryCall) -> HostCall:
        with self._device.errors(f"page-locked memory of '{step.operation}'"):
            read, written = self._page_locked(step.inputs), self._page_locked(step.written)
        return HostCall(step, _arrays(read, step.inputs), _arrays(written, step.written), read, written)

    def _page_locked(self, refs: Sequence[BufferRef]) -> tuple[Array, ...]:
        empty = self._device.driver.pagelocked_empty
        return tuple(empty(max(ref.nbytes, 1), np.uint8)[: ref.nbytes] for ref in refs)

    def _run_on_host(self, call: HostCall) -> None:
        """The copies are enqueued behind what came before; memory that is read next has been waited for."""
        driver, step = self._device.driver, call.step
        with self._device.errors(f"copies for '{step.operation}'"):
            for array, ref in zip(call.read, step.inputs, strict=True):
                if array.nbytes:
                    driver.memcpy_dtoh_async(array, self.addresses.of(ref), self._stream)
                    self._counts.bytes_to_host += array.nbytes
            self._stream.synchronize()
        self._counts.synchronizations += 1
        self._counts.host_calls += 1
        step.run(call.inputs, call.outputs, step.config)
        with self._device.errors(f"copies for '{step.operation}'"):
            for array, ref in zip(call.written, step.outputs, strict=False):  # a workspace is of the host alone
                if array.nbytes:
                    driver.memcpy_htod_async(self.addresses.of(ref), array, self._stream)
                    self._counts.bytes_to_device += array.nbytes


def _arrays(memory: Sequence[Array], refs: Sequence[BufferRef]) -> tuple[Array, ...]:
    return tuple(
        array.view(np.dtype(NUMPY_NAMES[ref.dtype])).reshape(ref.shape) for array, ref in zip(memory, refs, strict=True)
    )
