"""Arrays that programs on the CPU are called with: checked, brought into C order, and told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, Program
from fuse_opt.lowering.program.float_formats import recognized, type_name
from fuse_opt.runtime.call_arrays import (
    as_array,
    both_used,
    check_apart,
    check_target,
    expected_argument,
    misfit,
    not_reusable,
    out_arrays,
)

Array = NDArray[Any]

READY = 0x101
"""NumPy's flags of an array in C order at natural alignment."""
WRITEABLE = 0x400


class Arguments:
    """What a program takes and, with `out`, writes to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.expected = tuple(
            (buffer.shape, np.dtype(NUMPY_NAMES[buffer.dtype]), READY | WRITEABLE if buffer.donated else READY)
            for buffer in program.arguments
        )
        self.donated = [number for number, buffer in enumerate(program.arguments) if buffer.donated]

    def checked(self, arrays: Sequence[Any]) -> list[Array]:
        """The arguments as the program can read them. Raises `TypeError` and `ValueError` where they do not fit."""
        if len(arrays) != len(self.expected):
            raise TypeError(f"'{self.program.name}' takes {len(self.expected)} arguments, got {len(arrays)}")
        memory: list[Array] = []
        for array, (shape, dtype, flags) in zip(arrays, self.expected, strict=True):
            if type(array) is not np.ndarray:
                array = as_array(array, dtype, self._expected(len(memory)))
            if array.dtype != dtype:
                array = recognized(array, dtype)
            if array.dtype != dtype or array.shape != shape:
                number = len(memory)
                raise misfit(
                    number, self.program.buffers[number], type_name(array.dtype), array.shape, array.dtype != dtype
                )
            if array.flags.num & flags != flags:
                array = self._usable(len(memory), array, flags)
            memory.append(array)
        self._check_donated(memory)
        return memory

    def _expected(self, number: int) -> str:
        return expected_argument(number, self.program.buffers[number])

    def _usable(self, number: int, array: Array, flags: int) -> Array:
        """The array in C order: a copy, unless the program is to write to it."""
        if flags & WRITEABLE:
            raise not_reusable(number, self.program.buffers[number])
        return np.array(array, order="C")

    def _check_donated(self, memory: Sequence[Array]) -> None:
        for number in self.donated:
            for other, array in enumerate(memory):
                if other != number and np.may_share_memory(memory[number], array):
                    raise both_used(number, other)

    def checked_out(self, out: Any) -> list[Array]:
        """The caller's array for each result; one result may come without a sequence around it. Raises TypeError, ValueError."""
        results = self.program.results
        targets = [
            check_target(number, array, result.shape, np.dtype(NUMPY_NAMES[result.dtype]))
            for number, (array, result) in enumerate(zip(out_arrays(out, len(results)), results, strict=True))
        ]
        check_apart(targets)
        return targets

    def direct_target(self, buffer: int, targets: Sequence[Array], memory: Sequence[Array]) -> Array | None:
        """The caller's array for a result buffer, where the program may write to it while it runs."""
        position = next((k for k, r in enumerate(self.program.results) if r.index == buffer and not r.copied), None)
        if position is None:
            return None
        target = targets[position]
        others = [*memory, *(t for t in targets if t is not target)]
        flags = READY | WRITEABLE
        if target.flags.num & flags != flags or any(np.may_share_memory(target, other) for other in others):
            return None
        return target


def contiguous_view(array: Array, ref: BufferRef) -> Array:
    """A contiguous array as the reference describes it: the same bytes."""
    dtype = np.dtype(NUMPY_NAMES[ref.dtype])
    if array.shape == ref.shape and array.dtype == dtype:
        return array
    if array.dtype != dtype:
        array = array.reshape(-1).view(dtype)
    return array.reshape(ref.shape)


def copied_out(results: Sequence[Array], targets: Sequence[Array]) -> list[Array]:
    """The targets, each with the contents of its result."""
    kept = [
        result.copy() if any(np.may_share_memory(result, earlier) for earlier in targets[:number]) else result
        for number, result in enumerate(results)
    ]
    for result, target in zip(kept, targets, strict=True):
        if result is not target:
            np.copyto(target, result)
    return list(targets)
