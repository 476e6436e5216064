"""Calls of a program as tasks of onednn_tasks.c: primitives that are made when the program is loaded, and where operands are."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuse_opt.dialects.implementation.chains import link_of
from fuse_opt.dialects.implementation.offers import find_offer
from fuse_opt.lowering.program import CHAIN, CHAIN_OPERANDS, BufferRef, ConfigValue, LibraryCall
from fuse_opt.runtime.backends.onednn.convolutions import convolution_call, integer_convolution_call
from fuse_opt.runtime.backends.onednn.library import STATUS, Library, OneDnnError
from fuse_opt.runtime.backends.onednn.post_ops import post_ops, sums_of
from fuse_opt.runtime.backends.onednn.primitives import Bound, Dense, Primitive, primitive_of
from fuse_opt.runtime.backends.onednn.products import Call, Piece, product_call
from fuse_opt.runtime.backends.onednn.rows import layer_norm_call, softmax_call
from fuse_opt.runtime.backends.onednn.trial import arguments_of, usable_library
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, runtime_text
from fuse_opt.runtime.host.program_call import LoopRow

_SOURCE = "backends/onednn/onednn_tasks.c"
_TASK = "fuse_run_onednn"
PROBLEMS = {
    "graph.matmul": product_call,
    "graph.conv": convolution_call,
    "graph.conv_integer": integer_convolution_call,
    "graph.softmax": softmax_call,
    "graph.layer_norm": layer_norm_call,
}
"""By op: what makes a problem of it."""
ALIGNMENT = 64
"""Of the scratchpad of each part, in bytes."""


class _Operand(ctypes.Structure):
    """The record `onednn_operand`."""

    _fields_ = fields_of(_SOURCE, "onednn_operand")


class _Piece(ctypes.Structure):
    """The record `onednn_piece`."""

    _fields_ = fields_of(_SOURCE, "onednn_piece")


class _Call(ctypes.Structure):
    """The record `onednn_call`."""

    _fields_ = fields_of(_SOURCE, "onednn_call")


@dataclass(frozen=True, slots=True)
class OneDnnCall:
    """A call as one loop over its parts."""

    row: LoopRow
    memory: tuple[Any, ...]
    """What the loop works on."""
    failed: int
    """The address of the status of a run that is not success."""
    call: LibraryCall

    def error(self) -> OneDnnError:
        """What the run is refused with."""
        status = ctypes.c_int64.from_address(self.failed).value
        return OneDnnError(
            f"'{self.call.operation}': '{self.call.implementation}' failed in a run: {STATUS.get(status, f'status {status}')}",
            status,
        )


def scratch_bytes(primitives: Sequence[Primitive]) -> int:
    """What the parts of a call work in, side by side."""
    return sum(-(-primitive.scratchpad_bytes // ALIGNMENT) * ALIGNMENT for primitive in primitives)


def workspace_bytes(library: Library, call: Call) -> int:
    """What a call works in. Raises OneDnnError."""
    return scratch_bytes([primitive_of(library, piece.problem) for piece in call.pieces()])


def problem_of(call: LibraryCall) -> tuple[Call, list[BufferRef]] | None:
    """What a call is to oneDNN, and its operands in that order; None where it is nothing."""
    out, *left = call.outputs
    texts = _tuple(call.config.get(CHAIN))
    numbers = [int(n) for n in _tuple(call.config.get(CHAIN_OPERANDS)) or range(len(call.inputs))]
    links = [link_of(str(text)) for text in texts]
    operands = [call.inputs[number] for number in numbers]
    sums = [n for n in sums_of(links, out.shape) if _same_place(call.inputs[links[n].operand or 0], out)]
    overwritten = sums[0] if sums else None
    lying = zip((*numbers, -1), (*operands, out), strict=True)
    *given, made = (
        Dense.in_memory(ref.shape, ref.dtype, call.order(number), call.panel(number)) for number, ref in lying
    )
    make = PROBLEMS[call.operation]
    found = make(given, made, call.config, post_ops(links, made, overwritten))
    read = [
        call.inputs[link.operand]
        for number, link in enumerate(links)
        if link.operand is not None and number != overwritten
    ]
    return None if found is None else (found, [*operands, *read, out, *left])


def _tuple(value: ConfigValue | None) -> tuple[int | float | str, ...]:
    return value if isinstance(value, tuple) else ()


def _same_place(a: BufferRef, b: BufferRef) -> bool:
    return (a.buffer, a.offset) == (b.buffer, b.offset)


def onednn_call(call: LibraryCall, table: int) -> OneDnnCall:
    """
    The call on the buffers of `table`. Raises OneDnnError where the library is not there, does not run it, or needs memory
    that no plan has given to it.
    """
    library, tasks = usable_library(), _tasks()
    if (problem := problem_of(call)) is None:
        raise OneDnnError("it does not take such operands")
    found, refs = problem
    offer = find_offer(call.operation, call.implementation)
    pieces = list((found if offer is not None and offer.split else found.whole()).pieces())
    primitives = [primitive_of(library, piece.problem) for piece in pieces]
    for primitive in primitives:
        if primitive.refusal is not None and not primitive.reads_plain_bytes:
            raise OneDnnError(f"oneDNN would run it by {primitive.implementation}{_panels(primitive)}")
    needed, given = scratch_bytes(primitives), 0 if call.workspace is None else call.workspace.nbytes
    if needed > given:
        raise OneDnnError(
            f"it works in {needed} bytes, and the plan has {given}; run select-implementation and plan-memory where oneDNN is"
        )
    return _bound(call, refs, table, library, tasks, pieces, primitives)


def _panels(primitive: Primitive) -> str:
    return ", and reads filters in other panels; run pack-operands on a text without" if primitive.other_panels else ""


def _bound(
    call: LibraryCall,
    refs: Sequence[BufferRef],
    table: int,
    library: Library,
    tasks: ctypes.CDLL,
    pieces: Sequence[Piece],
    primitives: Sequence[Primitive],
) -> OneDnnCall:
    kept: list[Any] = []
    records: list[_Piece] = []
    scratch = 0
    for piece, primitive in zip(pieces, primitives, strict=True):
        bound = Bound(primitive)
        arguments = arguments_of(bound)
        places = [_place(table, ref, offset) for ref, offset in zip(refs, piece.offsets, strict=True)]
        if primitive.scratchpad_bytes:
            assert call.workspace is not None
            places.append(_place(table, call.workspace, scratch))
            scratch += scratch_bytes([primitive])
        operands = (_Operand * len(places))(*((m, *p) for m, p in zip(bound.memory, places, strict=True)))
        addresses = ctypes.addressof(operands), ctypes.addressof(arguments)
        records.append(_Piece(primitive.handle, bound.stream, len(places), *addresses))
        kept += [bound, arguments, operands]
    table_of_pieces = (_Piece * len(records))(*records)
    functions = [library.address(f"dnnl_{name}") for name in ("primitive_execute", "memory_set_data_handle")]
    record = _Call(*functions, *library.threads, ctypes.addressof(table_of_pieces), 0)
    row = LoopRow(address_in(tasks, _TASK), ctypes.addressof(record), len(records), 1)
    failed = ctypes.addressof(record) + _Call.failed.offset
    return OneDnnCall(row, (record, table_of_pieces, records, *kept), failed, call)


def _place(table: int, ref: BufferRef, offset: int) -> tuple[int, int]:
    return table + 8 * ref.buffer, ref.offset + offset


@functools.cache
def _tasks() -> ctypes.CDLL:
    """The compiled tasks. Raises OneDnnError without a C compiler."""
    if (compiler := find_c_compiler()) is None:
        raise OneDnnError("there is no C compiler for its tasks")
    try:
        return compiler.load_shared(runtime_text(_SOURCE), DiskCache(), (_TASK,))
    except (CompileError, OSError) as error:
        raise OneDnnError(f"its tasks cannot be compiled: {error}") from error
