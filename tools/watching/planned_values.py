"""The reference on memory as passes have planned it: in-place pairs share storage, and slots are places of one arena.

The evaluator gives each value memory of its own, so that a wrong pair or a slot that is used too early changes nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.prepared import prepared_of
from fuse_opt.dialects.analysis.storage import Storage, analyse_storage, byte_size
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.layouts import memory_extents
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import dtype, is_static
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.lowering.reference.interpreter import evaluate_function, evaluate_op, logical_array, memory_array
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES

Array = npt.NDArray[Any]


def evaluate_planned(function: FuncOp, arrays: Sequence[Array]) -> list[Array]:
    """
    The results of a function on all arguments but prepared ones, by what is decided about memory so far; as the evaluator has
    them where values have extents or storage that are not known yet. Raises EvaluationError.
    """
    if not _has_places(function):
        return evaluate_function(function, arrays)
    given = list(arrays)
    if (prepared := prepared_of(function)) is not None:
        for place in prepared.arguments:
            given.insert(place, np.empty(0))
        results = evaluate_planned(prepared.function, [given[number] for number in prepared.frozen])
        for place, array in zip(prepared.arguments, results, strict=True):
            given[place] = array
    return _Memory(function).run(given)


def _has_places(function: FuncOp) -> bool:
    ops = list(function.body.block.ops)
    values = [*function.body.block.args, *(value for op in ops for value in op.results)]
    if not all(isinstance(op, GraphOp | OutlinedOp | ReturnOp) for op in ops):
        return False
    if not any(isinstance(op, OutlinedOp) and (op.inplace is not None or op.slots is not None) for op in ops):
        return False
    try:
        return all(is_static(value) and not is_stored(value) and byte_size(value) is not None for value in values)
    except VerifyException:
        return False


class _Memory:
    """The storages of a function, and what they hold."""

    def __init__(self, function: FuncOp) -> None:
        self._function = function
        self._storages = analyse_storage(function)
        places = {s.number: slot for s in self._storages.storages if (slot := _slot(s)) is not None}
        ends = [places[s.number] + s.nbytes for s in self._storages.storages if s.number in places]
        kernels = [op for op in function.body.block.ops if isinstance(op, OutlinedOp)]
        ends += [(k.workspace_offset() or 0) + k.workspace_bytes() for k in kernels]
        self._arena = np.full(max(ends, default=0), 0xFF, np.uint8)
        self._memory = {
            s.number: self._arena[places[s.number] : places[s.number] + s.nbytes]
            if s.number in places
            else np.full(s.nbytes, 0xFF, np.uint8)
            for s in self._storages.storages
        }

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        block = self._function.body.block
        kept: dict[SSAValue, Array] = {}
        unread = {
            value
            for op in block.ops
            if isinstance(op, OutlinedOp)
            for value in set(op.operands).difference(op.read_operands())
        }

        def write(value: SSAValue, array: Array) -> None:
            if value in unread:
                kept[value] = array
            stored = np.ascontiguousarray(memory_array(array, value.type))
            self._memory[self._storages.of(value).number][: stored.nbytes] = stored.reshape(-1).view(np.uint8)

        for value, array in zip(block.args, arrays, strict=True):
            write(value, array)
        for op in block.ops:
            if isinstance(op, ReturnOp):
                return [self._read(value) for value in op.operands]
            read = set(op.read_operands()) if isinstance(op, OutlinedOp) else set(op.operands)
            operands = [self._read(value) if value in read else kept[value] for value in op.operands]
            results = [np.array(array) for array in evaluate_op(op, operands)]
            if isinstance(op, OutlinedOp) and (place := op.workspace_offset()) is not None:
                self._arena[place : place + op.workspace_bytes()] = 0xFF
            for value, array in zip(op.results, results, strict=True):
                write(value, array)
        return []

    def _read(self, value: SSAValue) -> Array:
        extents, kind = memory_extents(value), NUMPY_DTYPES[dtype(value)]
        nbytes = prod(extents) * kind.itemsize
        memory = self._memory[self._storages.of(value).number][:nbytes]
        return logical_array(memory.copy().view(kind).reshape(extents), value.type)


def _slot(storage: Storage) -> int | None:
    """Where a plan puts the storage in the arena."""
    if storage.kind != "intermediate":
        return None
    for value in storage.values:
        if isinstance(value, OpResult) and isinstance(value.op, OutlinedOp) and value.op.slots is not None:
            slot = ints(value.op.slots)[value.index]
            if slot >= 0:
                return slot
    return None
