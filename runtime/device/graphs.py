"""CUDA graphs of pieces of work, replayed by the addresses that it runs with: captured from a stream here, where it has calls of
libraries; made of launches in `kernel_graphs.py`."""

from __future__ import annotations

import ctypes
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import CudaError, DriverLibrary

_RELAXED = 2
"""The mode of a capture that forbids other threads nothing."""
_MOST_GRAPHS = 32
_MOST_SEEN = 64
_IDLE = 4 * _MOST_GRAPHS
"""Runs for which a graph that makes room for another one has not been used: else those of a round would oust each other."""


@dataclass
class RunCounts:
    """What compiling a program took, and what it has done since it was made."""

    compile_s: float = 0.0
    calls: int = 0
    kernel_launches: int = 0
    """By calls of their own, not in a graph."""
    graph_captures: int = 0
    """Streams that were recorded as a graph."""
    graphs_made: int = 0
    """Graphs made of launches, without a capture."""
    graph_updates: int = 0
    """Launches of such graphs that were given other arguments."""
    graph_launches: int = 0
    captures_refused: int = 0
    host_calls: int = 0
    """Library calls that ran on the host."""
    synchronizations: int = 0
    """Times the host waited for the device."""
    bytes_to_device: int = 0
    bytes_to_host: int = 0
    bytes_on_device: int = 0
    """Of copies from the device's memory to the device's memory."""


class Handles:
    """Graphs, executable ones among them, to be destroyed with their owner."""

    def __init__(self, owner: object, device: Device) -> None:
        self._device = device
        self.alive: set[int] = set()
        self.graph: int | None = None
        """What executable graphs were made of, where it is to live as long."""
        weakref.finalize(owner, self.destroy).atexit = False

    def destroy(self) -> None:
        library = self._device.library
        for handle in sorted(self.alive):
            self._device.destroy(library.cuGraphExecDestroy, handle)
        self.alive.clear()
        if self.graph is not None:
            self._device.destroy(library.cuGraphDestroy, self.graph)
            self.graph = None

    def instantiated(self, graph: Any) -> int:
        """A new executable graph. Raises DriverError."""
        executable = ctypes.c_void_p()
        self._device.library.check("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        assert executable.value is not None
        self.alive.add(executable.value)
        return executable.value


class Graphs(ABC):
    """Graphs of one piece of work."""

    def __init__(self, device: Device, counts: RunCounts) -> None:
        self.library: DriverLibrary = device.library
        self.counts = counts
        self.handles = Handles(self, device)
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    @abstractmethod
    def find(self, key: Hashable, enqueue: Callable[[Any], None]) -> int | None:
        """The graph for these addresses; None where the work is to be enqueued as it is, by `enqueue` on a stream."""

    def launch(self, graph: int, stream: int) -> None:
        """Runs a graph on a stream, whichever one that is. Raises DriverError."""
        self.library.check("cuGraphLaunch", graph, stream)
        self.counts.graph_launches += 1

    def came_before(self, key: Hashable) -> bool:
        """Whether these addresses were asked for, not long ago, and have no graph of their own yet."""
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return False


class CapturedGraphs(Graphs):
    """
    Work runs launch by launch with addresses that are new; when they come again it is captured, and then replayed by one call.
    At most so many graphs are kept; beyond, the one that was not used for longest is updated in place, if that is long ago.
    A driver that refuses a capture is not asked again.
    """

    def __init__(self, device: Device, counts: RunCounts, stream: Any) -> None:
        """
        Captures on `stream`, one of PyCUDA's on which nothing is ever run. It must not be ordered with the default stream:
        there, while this one is captured, all work of other threads would fail.
        """
        super().__init__(device, counts)
        self._stream = stream
        self._graphs: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        """Each with the number of the run that used it last."""
        self._runs = 0
        self._refused = False

    def find(self, key: Hashable, enqueue: Callable[[Any], None]) -> int | None:
        self._runs += 1
        if (found := self._graphs.get(key)) is not None:
            self._graphs[key] = found[0], self._runs
            self._graphs.move_to_end(key)
            return found[0]
        if self._refused or not self.came_before(key) or not self._has_room():
            return None
        return self._capture(key, enqueue)

    def _has_room(self) -> bool:
        if len(self._graphs) < _MOST_GRAPHS:
            return True
        _, used = next(iter(self._graphs.values()))
        return self._runs - used > _IDLE

    def _capture(self, key: Hashable, enqueue: Callable[[Any], None]) -> int | None:
        try:
            graph = self._recorded(enqueue)
            try:
                executable = self._instantiated(graph)
            finally:
                self.library.check("cuGraphDestroy", graph)
        except CudaError:
            self._refused = True
            self.counts.captures_refused += 1
            return None
        self.counts.graph_captures += 1
        self._graphs[key] = executable, self._runs
        return executable

    def _recorded(self, enqueue: Callable[[Any], None]) -> ctypes.c_void_p:
        graph = ctypes.c_void_p()
        self.library.check("cuStreamBeginCapture_v2", self._stream.handle, _RELAXED)
        try:
            enqueue(self._stream)
        except BaseException:
            # A capture that went wrong must still be ended, or the stream stays unusable.
            if self.library.cuStreamEndCapture(self._stream.handle, ctypes.byref(graph)) == 0 and graph.value:
                self.library.cuGraphDestroy(graph)
            raise
        self.library.check("cuStreamEndCapture", self._stream.handle, ctypes.byref(graph))
        return graph

    def _instantiated(self, graph: ctypes.c_void_p) -> int:
        """An executable graph: the oldest one, updated, where there are enough and the driver can do that."""
        if len(self._graphs) >= _MOST_GRAPHS:
            _, (oldest, _) = self._graphs.popitem(last=False)
            details = (ctypes.c_uint64 * 4)()
            if self.library.cuGraphExecUpdate_v2(oldest, graph, details) == 0:
                return oldest
            self.handles.alive.discard(oldest)
            self.library.check("cuGraphExecDestroy", oldest)
        return self.handles.instantiated(graph)
