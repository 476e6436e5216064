"""The steps of a program on a device: work that is enqueued, and library calls that have to run on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, GridLaunch, LibraryCall, Program
from fuse_opt.runtime.backends.registry import DeviceLibraries
from fuse_opt.runtime.device.driver import NON_BLOCKING, CudaError, Device
from fuse_opt.runtime.device.graphs import GraphCache, RunCounts

Array = NDArray[Any]


class Addresses:
    """The address of each buffer in a run, and the arguments of all launches, packed: pointers one after another."""

    def __init__(self, program: Program) -> None:
        launches = [launch for step in program.steps if not isinstance(step, LibraryCall) for launch in step.launches]
        refs = [ref for launch in launches for ref in launch.buffers]
        self._buffers = np.array([ref.buffer for ref in refs], np.intp)
        self._offsets = np.array([ref.offset for ref in refs], np.uint64)
        self._packed = np.zeros(len(refs), np.uint64)
        self._used = 0
        self.table = np.zeros(max(len(program.buffers), 1), np.uint64)
        self.key = b""

    def packed(self, count: int) -> Array:
        """The arguments of the next launch: memory that `use` fills."""
        start, self._used = self._used, self._used + count
        return self._packed[start : self._used]

    def use(self, table: Array, key: bytes) -> None:
        """Takes the addresses of a run, whose bytes are `key`, and packs anew what depends on them."""
        if key != self.key:
            self.key = key
            self.table[...] = table
            np.add(self.table[self._buffers], self._offsets, out=self._packed)

    def of(self, ref: BufferRef) -> int:
        return int(self.table[ref.buffer]) + ref.offset


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

    graphs: GraphCache
    items: list[Callable[[Any], None]] = field(default_factory=list[Callable[[Any], None]])

    def enqueue(self, stream: Any) -> None:
        for item in self.items:
            item(stream)


class Steps:
    """A program's steps, bound to a stream and to the table of addresses."""

    def __init__(self, program: Program, device: Device, stream: Any, module: Any, counts: RunCounts) -> None:
        """Raises CudaError."""
        self._libraries = libraries = DeviceLibraries(device)
        self.addresses = Addresses(program)
        self._device = device
        self._stream = stream
        self._captured = device.driver.Stream(NON_BLOCKING)
        self._counts = counts
        self._module = module
        self._functions: dict[str, Any] = {}
        self.parts: list[DeviceWork | HostCall] = []
        for step in program.steps:
            if not isinstance(step, LibraryCall):
                for launch in step.launches:
                    assert isinstance(launch, GridLaunch)
                    self._add(self._launch(launch))
            elif (library := libraries.find(step.implementation)) is not None:
                self._add(library.bound(step, self.addresses.of))
            else:
                self.parts.append(self._host_call(step))

    def graphs(self) -> list[int | None]:
        """For each part the graph to replay with the addresses of the table, captured now where they have come again."""
        key = self.addresses.key
        return [part.graphs.find(key, part.enqueue) if isinstance(part, DeviceWork) else None for part in self.parts]

    def run(self, graphs: Sequence[int | None], stream: int) -> None:
        """
        Runs the steps, those with a graph on `stream`, the others on the program's own. Raises CudaError, and what the
        host's calls raise.
        """
        for part, graph in zip(self.parts, graphs, strict=True):
            if isinstance(part, HostCall):
                self._run_on_host(part)
            elif graph is not None:
                part.graphs.launch(graph, stream)
            else:
                part.enqueue(self._stream)
                self._counts.kernel_launches += len(part.items)

    def check(self) -> None:
        """Raises what a run that is over is refused with: IndexError for an index out of range."""
        self._libraries.check()

    def _add(self, item: Callable[[Any], None]) -> None:
        if not self.parts or isinstance(self.parts[-1], HostCall):
            self.parts.append(DeviceWork(GraphCache(self._device, self._captured, self._counts)))
        work = self.parts[-1]
        assert isinstance(work, DeviceWork)
        work.items.append(item)

    def _launch(self, launch: GridLaunch) -> Callable[[Any], None]:
        arguments, error = self.addresses.packed(len(launch.buffers)), self._device.driver.Error
        choices = [each for each in (launch, launch.unaligned) if each is not None]
        starts = {each.kernel: self._start(each, arguments) for each in choices}

        def enqueue(stream: Any) -> None:
            kernel = launch.kernel if len(starts) == 1 else launch.at(arguments.tolist()).kernel
            try:
                starts[kernel](stream)
            except error as refusal:
                raise CudaError(f"kernel '{kernel}' could not be launched: {refusal}") from refusal

        return enqueue

    def _start(self, launch: GridLaunch, arguments: Array) -> Callable[[Any], None]:
        with self._device.errors(f"kernel '{launch.kernel}'"):
            if (function := self._functions.get(launch.kernel)) is None:
                function = self._functions[launch.kernel] = self._module.get_function(launch.kernel)
                if launch.shared:
                    limit = self._device.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                    function.set_attribute(limit, launch.shared)
        return partial(function._launch_kernel, launch.grid, launch.block, arguments, launch.shared)

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
