"""Arrays that programs on the CPU are called with: checked, brought into C order, and told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.narrow_floats import recognized, type_name
from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, Program
from fuse_opt.runtime.out_arrays import check_apart

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
                array = _as_array(array)
            if array.dtype != dtype:
                array = recognized(array, dtype)
            if array.dtype != dtype or array.shape != shape:
                raise self._misfit(len(memory), array)
            if array.flags.num & flags != flags:
                array = self._usable(len(memory), array, flags)
            memory.append(array)
        self._check_donated(memory)
        return memory

    def _misfit(self, number: int, array: Array) -> Exception:
        shape, dtype, _ = self.expected[number]
        name = self.program.buffers[number].name
        kind = TypeError if array.dtype != dtype else ValueError
        wanted, got = f"{type_name(dtype)} {list(shape)}", f"{type_name(array.dtype)} {list(array.shape)}"
        return kind(f"argument {number} ('{name}'): expected {wanted}, got {got}")

    def _usable(self, number: int, array: Array, flags: int) -> Array:
        """The array in C order: a copy, unless the program is to write to it."""
        if flags & WRITEABLE:
            name = self.program.buffers[number].name
            raise ValueError(
                f"argument {number} ('{name}') is donated: expected a writeable array in C order, which can be reused"
            )
        return np.array(array, order="C")

    def _check_donated(self, memory: Sequence[Array]) -> None:
        for number in self.donated:
            for other, array in enumerate(memory):
                if other != number and np.may_share_memory(memory[number], array):
                    raise ValueError(f"arguments {number} and {other} share memory, and argument {number} is donated")

    def checked_out(self, out: Sequence[Array] | Array) -> list[Array]:
        """The caller's array for each result; one result may come without a sequence around it. Raises `ValueError`."""
        results = self.program.results
        given = [out] if isinstance(out, np.ndarray) and len(results) == 1 else out
        if not isinstance(given, Sequence):
            raise TypeError(f"out: expected a sequence of {len(results)} arrays, got {type(given).__name__}")
        if len(given) != len(results):
            raise ValueError(f"out: expected {len(results)} arrays, got {len(given)}")
        targets: list[Array] = []
        for number, (array, result) in enumerate(zip(given, results, strict=True)):
            dtype = np.dtype(NUMPY_NAMES[result.dtype])
            if isinstance(array, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
                array = recognized(array, dtype)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != result.shape:  # pyright: ignore[reportUnnecessaryIsInstance]
                found = f"{type_name(array.dtype)} {list(array.shape)}" if isinstance(array, np.ndarray) else None  # pyright: ignore[reportUnnecessaryIsInstance]
                wanted = f"{type_name(dtype)} {list(result.shape)}"
                raise ValueError(f"out[{number}]: expected {wanted}, got {found or type(array).__name__}")
            if not array.flags.writeable:
                raise ValueError(f"out[{number}] cannot be written to")
            targets.append(array)
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


def _as_array(value: Any) -> Array:
    """What another library, or Python, calls an array."""
    foreign = hasattr(value, "__dlpack__") and not issubclass(type(value), (np.ndarray, np.generic))
    return np.from_dlpack(value) if foreign else np.asarray(value)
