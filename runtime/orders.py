"""Arrays of arguments and results whose axes lie in another order in memory: the caller has them by their logical shape.

A program is compiled for row-major buffers of the axes as they lie in memory. A caller's array for such an argument has the
shape that the argument's type says; seen with its axes in the order of memory it is that buffer, and is copied only where its
strides are others. A result is a view of its buffer with the strides of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from fuse_opt.lowering.program import Program
from fuse_opt.runtime.call_arrays import misfit, out_arrays

Axes = tuple[int, ...]


class Orders:
    """The orders of a program's arguments and results, outermost axis first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arguments = [(number, b.axes) for number, b in enumerate(program.arguments) if b.axes is not None]
        self.results = [(number, r.axes) for number, r in enumerate(program.results) if r.axes is not None]

    @classmethod
    def of(cls, program: Program) -> Orders | None:
        """None where all lie in row-major order."""
        found = cls(program)
        return found if found.arguments or found.results else None

    def call(self, run: Callable[..., Any], arrays: Sequence[Any], out: Any, **keywords: Any) -> Any:
        """Runs the program on arrays of logical shapes. Raises TypeError and ValueError where they do not fit."""
        given = list(arrays)
        for number, axes in self.arguments:
            if number < len(given):
                given[number] = self._in_memory(number, given[number], axes)
        targets = None if out is None else self._targets(out)
        return self._as_given(run(*given, out=targets, **keywords))

    def taken(self, run: Callable[[tuple[Any, ...], Any], Any], arrays: Sequence[Any], out: Any) -> Any:
        """
        As `call`, by code that takes arrays of any extents as they are; NotImplemented where it does not take these. Raises
        TypeError and ValueError for what `out` cannot be.
        """
        given, targets = list(arrays), None if out is None else list(out_arrays(out, len(self.program.results)))
        axes_of = [(given, self.arguments), *([] if targets is None else [(targets, self.results)])]
        for some, orders in axes_of:
            for number, axes in orders:
                if number >= len(some) or getattr(some[number], "ndim", None) != len(axes):
                    return NotImplemented
                some[number] = transposed(some[number], axes)
        found = run(tuple(given), targets)
        return found if found is NotImplemented else self._as_given(found)

    def _as_given(self, results: Any) -> Any:
        """What a run gives, with axes as callers have them."""
        if not self.results:
            return results
        single = not isinstance(results, tuple)
        found: list[Any] = [results] if single else list(cast("tuple[Any, ...]", results))
        for number, axes in self.results:
            found[number] = transposed(found[number], _inverse(axes))
        return found[0] if single else tuple(found)

    def _in_memory(self, number: int, array: Any, axes: Axes) -> Any:
        buffer = self.program.buffers[number]
        extents = buffer.logical_shape
        given = getattr(array, "shape", None)
        if given is None:
            import numpy as np

            array = np.asarray(array)
            given = array.shape
        if tuple(given) != extents:
            raise misfit(number, buffer, str(getattr(array, "dtype", "")), tuple(given), False)
        return transposed(array, axes)

    def _targets(self, out: Any) -> list[Any]:
        targets = list(out_arrays(out, len(self.program.results)))
        for number, axes in self.results:
            expected, target = self.program.results[number].logical_shape, targets[number]
            given = getattr(target, "shape", None)
            if given is None or tuple(given) != expected:
                got = type(target).__name__ if given is None else f"one of shape {list(given)}"
                raise ValueError(f"out[{number}]: expected an array of shape {list(expected)}, got {got}")
            targets[number] = transposed(target, axes)
        return targets


def transposed(array: Any, axes: Axes) -> Any:
    """A view of an array, of whatever library, with its axes in another order."""
    if hasattr(array, "permute"):  # PyTorch's `transpose` swaps two
        return array.permute(*axes)
    return array.transpose(axes)


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(axis) for axis in range(len(axes)))
