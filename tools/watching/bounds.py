"""How far the results of a kernel may be from the reference's: rounding errors, followed through its ops by chance.

Each op is evaluated in f64 several times. Every time what it gives is moved by as much as the op's error bound allows, upwards
or downwards at random, and what it adds up by as much as sums of that length lose. How far the results of these runs lie apart
says what rounding can do to this kernel on these operands, cancellation and comparisons included.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import TensorType, f64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, tensor
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.lowering.program.float_formats import converted
from fuse_opt.lowering.reference.interpreter import evaluate_op
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES
from fuse_opt.tools.watching.units import digits, distances, is_float, units, wide

Array = npt.NDArray[Any]

RUNS = 6
_BLOCK = 1 << 15
"""Elements that are moved at a time, so that caches hold what moves them."""
SAFETY = 8.0
"""Times what the runs show: a bound on what they do not."""
_OWN = 0.5
"""Units of the last place that an op loses whose bound says that it is rounded once."""
_ADDED = 1 / 4
"""Of the root of its length, what a sum loses in units: partial sums are many, and errors of both signs."""


def allowed_differences(
    kernel: OutlinedOp, operands: Sequence[Array], expected: Sequence[Array], got: Sequence[Array]
) -> list[Array]:
    """
    For each result, how far each of its elements may be from what the reference gives, `expected`; infinity for integers and
    booleans that hang on the last place of a float. Where all that came out is within what the ops lose one by one, that.
    """
    lost = _lost_in_all(kernel)
    floors = [lost * units(wide(a), a.dtype) if is_float(a.dtype) else np.zeros(a.shape) for a in expected]
    pairs = zip(got, expected, floors, strict=True)
    if all(bool((distances(a, b) <= floor).all()) for a, b, floor in pairs):
        return floors
    with np.errstate(all="ignore"):
        exact = _Run(None).results(kernel, operands)
        runs = [_Run(np.random.default_rng([seed, len(operands)])).results(kernel, operands) for seed in range(RUNS)]
    return [
        _allowed(expected[number], exact[number], [run[number] for run in runs], floors[number])
        for number in range(len(expected))
    ]


def allowed_in_function(function: FuncOp, arrays: Sequence[Array], expected: Sequence[Array]) -> list[Array]:
    """The same for the results of a function of graph ops and kernels on dense values of known extents."""
    ops = list(function.body.block.ops)
    last = ops.pop()
    floors = [np.zeros(array.shape) for array in expected]

    def results(run: _Run) -> list[Array]:
        values: dict[SSAValue, Array] = {
            value: wide(array) if is_float(array.dtype) else array
            for value, array in zip(function.body.block.args, arrays, strict=True)
        }
        run.take(ops, values)
        return [values[value] for value in last.operands]

    with np.errstate(all="ignore"):
        exact, *runs = [results(_Run(None)), *(results(_Run(np.random.default_rng([n, 1]))) for n in range(RUNS))]
    return [
        _allowed(expected[number], exact[number], [run[number] for run in runs], floors[number])
        for number in range(len(expected))
    ]


def _allowed(expected: Array, exact: Array, runs: Sequence[Array], floor: Array) -> Array:
    moved = reduce(np.maximum, (distances(run, exact) for run in runs))
    if not is_float(expected.dtype):
        return np.where(moved > 0, np.inf, 0.0)
    moved = np.maximum(moved, distances(wide(expected), exact))
    finite = np.isfinite(moved)
    return np.where(np.isfinite(wide(expected)) | ~finite, np.maximum(SAFETY * moved, floor), 0.0)


class _Run:
    """One evaluation in f64; without a source of chance nothing is moved."""

    def __init__(self, random: np.random.Generator | None) -> None:
        self._random = random

    def results(self, kernel: OutlinedOp, operands: Sequence[Array]) -> list[Array]:
        values: dict[SSAValue, Array] = {
            value: wide(array) if is_float(array.dtype) else array
            for value, array in zip(kernel.block.args, operands, strict=True)
        }
        self.take(kernel.ops(), values)
        return [values[value] for value in kernel.yielded()]

    def take(self, ops: Sequence[Operation], values: dict[SSAValue, Array]) -> None:
        """Puts the results of ops to the values that they take."""
        for op in ops:
            if isinstance(op, OutlinedOp):
                found = self._inner(op.ops(), op.block.args, op.operands, op.yielded(), values)
            elif isinstance(op, CompositeOp):
                made = op.expansion()
                found = self._inner(list(made.block.ops), made.block.args, op.operands, made.results, values)
            else:
                assert isinstance(op, GraphOp)
                found = self._evaluated(op, [values[operand] for operand in op.operands])
            values.update(zip(op.results, found, strict=True))

    def _inner(
        self,
        ops: Sequence[Operation],
        arguments: Sequence[SSAValue],
        operands: Sequence[SSAValue],
        results: Sequence[SSAValue],
        values: dict[SSAValue, Array],
    ) -> list[Array]:
        inner = {argument: values[operand] for argument, operand in zip(arguments, operands, strict=True)}
        self.take(ops, inner)
        return [inner[result] for result in results]

    def _evaluated(self, op: GraphOp, operands: Sequence[Array]) -> list[Array]:
        """The results of an op, each moved by what the op may lose."""
        length = _length(op)
        if length > 1 and self._random is not None:
            by = max(sqrt(length) * _ADDED, 1.0)
            operands = [
                self._moved(array, by * _epsilon(value)) if is_float(array.dtype) else array
                for array, value in zip(operands, op.operands, strict=True)
            ]
        results = _wide_results(op, operands)
        if self._random is None or not (lost := _lost(op)):
            return results
        return [
            self._with_slack(self._moved(array, lost * _epsilon(value)), op, operands, value)
            if is_float(array.dtype)
            else array
            for array, value in zip(results, op.results, strict=True)
        ]

    def _moved(self, array: Array, relative: float) -> Array:
        flat, found = array.reshape(-1), np.empty(array.size)
        for begin in range(0, array.size, _BLOCK):
            part = slice(begin, begin + _BLOCK)
            factors = self._parts(flat[part].shape)
            factors *= relative
            factors += 1.0
            np.multiply(flat[part], factors, out=found[part])
        return found.reshape(array.shape)

    def _with_slack(self, array: Array, op: GraphOp, operands: Sequence[Array], value: SSAValue) -> Array:
        """Also moved by what does not shrink with the result."""
        if _length(op) > 1 or not (slack := op.error_bound().slack):
            return array
        sizes = [1.0, *(np.nan_to_num(np.abs(x), posinf=0.0) for x in (*operands, array) if is_float(x.dtype))]
        try:
            size = np.max(np.stack(np.broadcast_arrays(*sizes)), axis=0)
        except ValueError:
            size = np.float64(1.0)
        if np.shape(size) != array.shape:
            size = np.float64(max(float(np.max(x, initial=0.0)) for x in sizes))
        return array + slack * _epsilon(value) * size * self._parts(array.shape)

    def _parts(self, extents: Sequence[int]) -> Array:
        """From half of the whole to all of it, of either sign."""
        assert self._random is not None
        drawn = self._random.random(tuple(extents), np.float32)  # as exact as chance has to be, and quick
        drawn -= 0.5
        return np.copysign(0.5, drawn, dtype=np.float64) + drawn


def _lost_in_all(kernel: OutlinedOp) -> float:
    """Units of the last place that the ops of a kernel lose together where none makes the errors of others larger."""
    waiting: list[Operation] = list(kernel.ops())
    total = 0.0
    while waiting:
        op = waiting.pop()
        if isinstance(op, CompositeOp):
            waiting += op.expansion().block.ops
        elif isinstance(op, GraphOp):
            total += _lost(op)
    return total


def _wide_results(op: GraphOp, operands: Sequence[Array]) -> list[Array]:
    """In f64 where the op is one on f64, too, else as it is."""
    try:
        found = evaluate_op(op.on_types([_widened(value) for value in op.operands]), operands)
    except (EvaluationError, VerifyException):
        given = [converted(a, NUMPY_DTYPES[dtype(v)]) for a, v in zip(operands, op.operands, strict=True)]
        found = evaluate_op(op, given)
    return [wide(array) if is_float(array.dtype) else array for array in found]


def _widened(value: SSAValue) -> Attribute:
    type_ = tensor(value)
    return TensorType(f64, type_.get_shape(), type_.encoding) if dtype(value).is_float else type_


def _length(op: GraphOp) -> int:
    """How many terms it adds up or multiplies, as far as that is known; 1 where it does neither."""
    if isinstance(op, StructuredOp):
        return prod(op.reduced_extents()) if op.COMBINE in ("add", "mul") else 1
    found = op.contraction() if isinstance(op, OpaqueOp) else None
    return found.depth if found is not None else max(int(op.error_bound().slack) ** 2 // 4, 1)


def _lost(op: GraphOp) -> float:
    """Units of the last place of its result that it may lose by itself; 0 where it only moves elements."""
    if not any(dtype(value).is_float for value in op.results):
        return 0.0
    if isinstance(op, StructuredOp) and not op.COMBINE:
        return 0.0 if _only_moves(op) else max(op.error_bound().ulps, _OWN)
    if (length := _length(op)) > 1:
        return _OWN + sqrt(length) * _ADDED
    return 0.0 if isinstance(op, StructuredOp) else max(op.error_bound().ulps, _OWN)


def _only_moves(op: StructuredOp) -> bool:
    if op.stored_value() is not None:
        return True
    same = {dtype(value) for value in (*op.operands, *op.results)}
    return op.body().function in ("operand", "constant") and len(same) == 1


def _epsilon(value: SSAValue) -> float:
    """The unit of the last place at 1."""
    return 2.0 ** -digits(NUMPY_DTYPES[dtype(value)])[0] if dtype(value).is_float else 0.0
