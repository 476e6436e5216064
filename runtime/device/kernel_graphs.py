"""CUDA graphs of nothing but launches: made of these without a capture, and given new arguments where addresses change."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import CudaError
from fuse_opt.runtime.device.graphs import Graphs, RunCounts
from fuse_opt.runtime.device.kernels import NodeParameters

_MOST_GRAPHS = 32
_IDLE = 4 * _MOST_GRAPHS
"""Runs for which a graph that is given to other addresses has not been used: else those of a round would oust each other."""


@dataclass(frozen=True, slots=True)
class KernelNode:
    """A launch as a node."""

    start: int
    """Of its arguments, in bytes, among all that are packed; they end at `end`."""
    end: int
    aligned: NodeParameters
    """With the arguments that are packed when it is given to the driver."""
    unaligned: NodeParameters
    choice: int | None
    """By what it is chosen which of them runs, where they differ: a place among the choices of a run."""


Packed = tuple[bytes, Sequence[int]]
"""The arguments of all launches of a run, and by choice whether it is for what begins anywhere."""


@dataclass(slots=True)
class _Executable:
    handle: int
    given: Packed
    """What its nodes have now."""
    used: int = 0
    """The number of the run that used it last."""


class KernelGraphs(Graphs):
    """
    Work is enqueued launch by launch in its first run, and is one call in each later one. Addresses that come again have a
    graph of their own, at most so many; the others share one, whose launches get new arguments where they differ. What was
    enqueued before keeps those that it had. A driver that refuses any of this is not asked again.
    """

    def __init__(
        self, device: Device, counts: RunCounts, nodes: Sequence[KernelNode], packed: Callable[[], Packed]
    ) -> None:
        """`packed` says the arguments of the run that is to come."""
        super().__init__(device, counts)
        self._nodes, self._packed = nodes, packed
        self._made: list[int] = []
        """The driver's handles of the nodes."""
        self._first: Packed = (b"", ())
        """What they have in the graph that all others are made of."""
        self._own: OrderedDict[Hashable, _Executable] = OrderedDict()
        self._shared: _Executable | None = None
        self._runs = 0
        self._refused = False

    def find(self, key: Hashable, enqueue: Callable[[Any], None]) -> int | None:
        self._runs += 1
        if (own := self._own.get(key)) is not None:
            own.used = self._runs
            self._own.move_to_end(key)
            return own.handle
        if self._refused:
            return None
        again = self.came_before(key)
        if self._runs == 1:
            return None
        try:
            executable = self._executable(key, again)
            self._give(executable, self._packed())
        except CudaError:
            self._refused = True
            self.counts.captures_refused += 1
            return None
        return executable.handle

    def _executable(self, key: Hashable, again: bool) -> _Executable:
        """One of these addresses' own, where they came before and there is room; else the one that is shared."""
        if again and (own := self._spare()) is not None:
            own.used = self._runs
            self._own[key] = own
            return own
        if self._shared is None:
            self._shared = self._new()
        return self._shared

    def _spare(self) -> _Executable | None:
        if len(self._own) < _MOST_GRAPHS:
            return self._new()
        oldest, executable = next(iter(self._own.items()))
        return self._own.pop(oldest) if self._runs - executable.used > _IDLE else None

    def _new(self) -> _Executable:
        if self.handles.graph is None:
            self._make()
        self.counts.graphs_made += 1
        return _Executable(self.handles.instantiated(self.handles.graph), self._first)

    def _make(self) -> None:
        """The graph that all executable ones are made of: its launches one after another."""
        check, graph = self.library.check, ctypes.c_void_p()
        check("cuGraphCreate", ctypes.byref(graph), 0)
        self.handles.graph, self._first = graph.value, self._packed()
        before = ctypes.c_void_p()
        for node in self._nodes:
            handle = ctypes.c_void_p()
            count = len(self._made[-1:])
            parameters = ctypes.byref(_chosen(node, self._first))
            check("cuGraphAddKernelNode_v2", ctypes.byref(handle), graph, ctypes.byref(before), count, parameters)
            assert handle.value is not None
            self._made.append(handle.value)
            before = handle

    def _give(self, executable: _Executable, packed: Packed) -> None:
        """Gives nodes the arguments of this run where they have others."""
        (old, old_choices), (new, choices) = executable.given, packed
        for node, handle in zip(self._nodes, self._made, strict=True):
            start, end, choice = node.start, node.end, node.choice
            if new[start:end] == old[start:end] and (choice is None or choices[choice] == old_choices[choice]):
                continue
            parameters = ctypes.byref(_chosen(node, packed))
            self.library.check("cuGraphExecKernelNodeSetParams_v2", executable.handle, handle, parameters)
            self.counts.graph_updates += 1
        executable.given = packed


def _chosen(node: KernelNode, packed: Packed) -> NodeParameters:
    return node.aligned if node.choice is None or not packed[1][node.choice] else node.unaligned
