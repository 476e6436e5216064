"""Attention and norms by cuDNN's graph interface, through ctypes: the backend `cudnn_graph`.

A call is a graph of operations, its tensors, and the library's plan for it.

A plan is made when the program is built: the first of the heuristics' that is the same in each run and has no sums of
less precision. Tensors begin at multiples of 16 bytes: a run copies those that do not.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.runtime.backends.nvidia.cudnn_library import LIBRARY
from fuse_opt.runtime.backends.nvidia.cudnn_operations import (
    ALIGNMENT,
    GRAPH_TYPES,
    Operation,
    OperationGraph,
    Piece,
    Settings,
    graph_of,
)
from fuse_opt.runtime.backends.nvidia.device_calls import Address, Enqueue, Handles, check, workspace_at
from fuse_opt.runtime.device.driver import Device, open_device
from fuse_opt.runtime.device.driver_library import CudaError

# Values of enums in cudnn_graph.h: kinds of descriptors, types of attributes, attributes.
_ENGINE, _CONFIGURATION, _HEURISTICS, _PLAN, _GRAPH, _PACK, _TENSOR = 2, 3, 4, 5, 15, 16, 17
_AS_HANDLE, _AS_TYPE, _AS_BOOLEAN, _AS_I64, _AS_FLOAT, _AS_POINTER = 0, 1, 2, 3, 4, 6
_AS_MODE, _AS_NOTE, _AS_DESCRIPTOR = 8, 11, 15
_HEURISTICS_MODE, _HEURISTICS_GRAPH, _HEURISTICS_RESULTS, _CONFIGURATION_ENGINE, _ENGINE_NOTES = (
    200,
    201,
    202,
    300,
    1303,
)
_PLAN_HANDLE, _PLAN_CONFIGURATION, _PLAN_WORKSPACE, _GRAPH_HANDLE, _GRAPH_OPERATIONS = 400, 401, 402, 800, 801
_ALIGNED, _TYPE, _EXTENTS, _STRIDES, _NUMBER, _VIRTUAL, _BY_VALUE = 900, 901, 902, 903, 906, 907, 908
_PACK_NUMBERS, _PACK_POINTERS, _PACK_WORKSPACE = 1000, 1001, 1003
_MODES = (3, 0, 2)
"""Heuristics: those for speed, those that answer at once, then those that have something for all that is supported."""
_NOT_TAKEN = {2, 4}
"""Numerical notes: sums of reduced precision, results that differ between runs."""
_MOST_CONFIGURATIONS, _MOST_NOTES = 16, 16

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_Attribute = tuple[int, int, Any]
"""Its name, its type, and an array of its values."""


@dataclass(frozen=True)
class _Bound:
    """An operation with the library's plan for it."""

    plan: int
    numbers: Any
    """Of tensors."""
    places: tuple[BufferRef | Any, ...]
    """What each is: a buffer, an offset into the call's memory, or memory of the host with a number."""
    kept_bytes: int
    """Of the call's memory, in front of what the library works in."""
    memory: Any
    """The call's memory where the library asked for more than was planned."""
    copies: dict[int, Any] = field(default_factory=dict[int, Any])
    """By place: memory for an array that does not begin as the library wants it, from the first call with one on."""

    def nbytes(self, place: int) -> int:
        return self.places[place].nbytes

    def copy(self, place: int, device: Device) -> int:
        """The address of memory for what is at a place. Raises CudaMemoryError."""
        if place not in self.copies:
            self.copies[place] = device.allocate(self.nbytes(place), "a copy that begins as cuDNN wants it")
        return int(self.copies[place])


class CudnnGraphs(Handles):
    """Operations of one program."""

    def __init__(self, device: Device) -> None:
        """Raises CudaError."""
        super().__init__(LIBRARY, device)
        self._handle = self._made("cudnnCreate", "cudnnDestroy")

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues an operation."""
        refs = (*call.inputs, *call.outputs)
        found = graph_of(call.operation, [ref.shape for ref in refs], [ref.dtype for ref in refs], call.config)
        assert isinstance(found, OperationGraph), call
        if (plan := self._plan(self._graph(found))) is None:
            raise CudaError(
                f"'{call.operation}': cuDNN has no plan for {[ref.shape for ref in call.inputs]} of {refs[0].dtype}; "
                'compile with backend="-cudnn_graph"'
            )
        wanted = (_L * 1)()
        self._get(plan, _PLAN_WORKSPACE, _AS_I64, wanted)
        kept = found.kept_bytes
        memory = self._buffer(kept + wanted[0], _aligned_room(call), "what cuDNN works in")
        there = [number for number, piece in enumerate(found.pieces) if not piece.is_virtual]
        places = tuple(_place(found, number, refs) for number in there)
        numbers = (_L * len(there))(*(number + 1 for number in there))
        return partial(self._enqueue, _Bound(plan, numbers, places, kept, memory), call, address)

    def _enqueue(self, bound: _Bound, call: LibraryCall, address: Address, stream: Any) -> None:
        memory = workspace_at(call, address)[0] if bound.memory is None else int(bound.memory)
        starts = [
            address(at) if isinstance(at, BufferRef) else memory + at if isinstance(at, int) else ctypes.addressof(at)
            for at in bound.places
        ]
        odd = [n for n, at in enumerate(bound.places) if isinstance(at, BufferRef) and starts[n] % ALIGNMENT]
        own = {n: bound.copy(n, self._device) for n in odd}
        copies = [(own[n], starts[n], bound.nbytes(n)) for n in odd]
        for number, start in own.items():
            starts[number] = start
        results = {n for n in odd if bound.places[n] in call.outputs}
        self._copy([copy for n, copy in zip(odd, copies, strict=True) if n not in results], stream)
        self._execute(bound, starts, memory + bound.kept_bytes, stream)
        self._copy([(to, of, count) for n, (of, to, count) in zip(odd, copies, strict=True) if n in results], stream)

    def _copy(self, copies: Sequence[tuple[int, int, int]], stream: Any) -> None:
        """Enqueues copies of so many bytes to one address from another."""
        for target, source, nbytes in copies:
            self._device.driver.memcpy_dtod_async(target, source, nbytes, stream)

    def _execute(self, bound: _Bound, starts: Sequence[int], memory: int, stream: Any) -> None:
        count = len(starts)
        pack = self._descriptor(_PACK, owned=False)
        try:
            self._finish(
                pack,
                (_PACK_NUMBERS, _AS_I64, bound.numbers),
                (_PACK_POINTERS, _AS_POINTER, (_P * count)(*starts)),
                (_PACK_WORKSPACE, _AS_POINTER, (_P * 1)(memory)),
            )
            self._call("cudnnSetStream", self._handle, stream.handle)
            self._call("cudnnBackendExecute", self._handle, bound.plan, pack)
        finally:
            self._library.cudnnBackendDestroyDescriptor(pack)

    def _graph(self, graph: OperationGraph) -> int:
        tensors = [self._tensor(number, piece) for number, piece in enumerate(graph.pieces, 1)]
        made = [self._operation(operation, tensors) for operation in graph.operations]
        handle = (_GRAPH_HANDLE, _AS_HANDLE, (_P * 1)(self._handle))
        operations = (_GRAPH_OPERATIONS, _AS_DESCRIPTOR, (_P * len(made))(*made))
        return self._finish(self._descriptor(_GRAPH), handle, operations)

    def _operation(self, operation: Operation, tensors: Sequence[int]) -> int:
        attributes = _attributes(operation.settings)
        if (how := operation.how) is not None:
            refers = self._finish(self._descriptor(how.kind), *_attributes(how.settings))
            attributes.append((how.attribute, _AS_DESCRIPTOR, (_P * 1)(refers)))
        attributes += [(name, _AS_DESCRIPTOR, (_P * 1)(tensors[number])) for name, number in operation.tensors]
        return self._finish(self._descriptor(operation.kind), *attributes)

    def _tensor(self, number: int, piece: Piece) -> int:
        rank = len(piece.extents)
        attributes: list[_Attribute] = [
            (_NUMBER, _AS_I64, (_L * 1)(number)),
            (_TYPE, _AS_TYPE, (_I * 1)(GRAPH_TYPES[piece.dtype])),
            (_ALIGNED, _AS_I64, (_L * 1)(piece.alignment)),
            (_EXTENTS, _AS_I64, (_L * rank)(*piece.extents)),
            (_STRIDES, _AS_I64, (_L * rank)(*piece.strides)),
        ]
        if piece.is_virtual or piece.number is not None:
            kind = _VIRTUAL if piece.is_virtual else _BY_VALUE
            attributes.append((kind, _AS_BOOLEAN, (ctypes.c_bool * 1)(True)))
        return self._finish(self._descriptor(_TENSOR), *attributes)

    def has_plan(self, graph: OperationGraph) -> bool:
        """Whether a call of it could be bound. Raises CudaError."""
        return self._plan(self._graph(graph)) is not None

    def _plan(self, graph: int) -> int | None:
        """The library's first plan of those that may be taken; None where there is none. Raises CudaError."""
        for configuration in self._configurations(graph):
            if _NOT_TAKEN.isdisjoint(self._notes(configuration)):
                plan = self._descriptor(_PLAN)
                self._set(plan, _PLAN_HANDLE, _AS_HANDLE, (_P * 1)(self._handle))
                self._set(plan, _PLAN_CONFIGURATION, _AS_DESCRIPTOR, (_P * 1)(configuration))
                if not self._library.cudnnBackendFinalize(plan):
                    return plan
        return None

    def _configurations(self, graph: int) -> Iterator[int]:
        """What the heuristics name, the best one first; some have nothing for an operation, and say so by a status."""
        for mode in _MODES:
            found = self._descriptor(_HEURISTICS)
            self._set(found, _HEURISTICS_GRAPH, _AS_DESCRIPTOR, (_P * 1)(graph))
            self._set(found, _HEURISTICS_MODE, _AS_MODE, (_I * 1)(mode))
            if self._library.cudnnBackendFinalize(found):
                continue
            made = [self._descriptor(_CONFIGURATION) for _ in range(_MOST_CONFIGURATIONS)]
            yield from made[: self._get(found, _HEURISTICS_RESULTS, _AS_DESCRIPTOR, (_P * len(made))(*made))]

    def _notes(self, configuration: int) -> Sequence[int]:
        """The numerical notes of a configuration's engine."""
        engine = self._descriptor(_ENGINE)
        self._get(configuration, _CONFIGURATION_ENGINE, _AS_DESCRIPTOR, (_P * 1)(engine))
        notes = (_I * _MOST_NOTES)()
        return list(notes[: self._get(engine, _ENGINE_NOTES, _AS_NOTE, notes)])

    def _descriptor(self, kind: int, owned: bool = True) -> int:
        """A descriptor, destroyed with this unless its maker owns it. Raises CudaError."""
        made = ctypes.c_void_p()
        self._call("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
        assert made.value is not None
        if owned:
            self._owns("cudnnBackendDestroyDescriptor", made)
        return made.value

    def _finish(self, descriptor: int, *attributes: _Attribute) -> int:
        for name, kind, values in attributes:
            self._set(descriptor, name, kind, values)
        self._call("cudnnBackendFinalize", descriptor)
        return descriptor

    def _set(self, descriptor: int, name: int, kind: int, values: Any) -> None:
        status = self._library.cudnnBackendSetAttribute(descriptor, name, kind, len(values), values)
        check(status, f"cudnnBackendSetAttribute of attribute {name}")

    def _get(self, descriptor: int, name: int, kind: int, values: Any) -> int:
        """How many values there are, of which as many as there is room for are written."""
        room, count = len(values), _L()
        status = self._library.cudnnBackendGetAttribute(descriptor, name, kind, room, ctypes.byref(count), values)
        check(status, f"cudnnBackendGetAttribute of attribute {name}")
        return min(count.value, room)


@functools.lru_cache(maxsize=256)
def plan_problem(graph: OperationGraph) -> str | None:
    """Why the library has no call for a graph on the device that is here, as a code; None also where no device is."""
    try:
        device = open_device()
    except CudaError:
        return None
    try:
        with device.active():
            return None if CudnnGraphs(device).has_plan(graph) else "no-plan"
    except CudaError:
        return "no-plan"


def _attributes(settings: Settings) -> list[_Attribute]:
    types: dict[int, Any] = {_AS_I64: _L, _AS_FLOAT: ctypes.c_float}
    return [(name, kind, (types.get(kind, _I) * 1)(value)) for (name, kind), value in settings]


def _place(graph: OperationGraph, number: int, refs: Sequence[BufferRef]) -> BufferRef | int | Any:
    piece = graph.pieces[number]
    if piece.place is not None:
        return refs[piece.place]
    return graph.kept_at(number) if piece.is_kept else (ctypes.c_float * 1)(piece.number)


def _aligned_room(call: LibraryCall) -> BufferRef | None:
    """The part of the workspace that is aligned as the library has it."""
    slot = call.workspace
    if slot is None:
        return None
    start, nbytes = workspace_at(call, lambda ref: ref.offset)
    return BufferRef(slot.buffer, start, (nbytes,), "i8")
