"""Kernels of a convolution's gradient by its input where strides leave gaps, as code can be generated for them.

Elements of the input that are a stride apart are met by the same taps: each such phase is a convolution of its own, of the
result's gradient by some taps, whose results lie a stride apart (the sub-pixel view of Shi et al. 2016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import LARGEST_COPY, least_copy, sums_of
from fuse_opt.dialects.analysis.contractions.result_places import result_places
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable, member_ops, resolve, seen_through, trace
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.layouts import any_encoded
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types.dtypes import F32, F64, DType
from fuse_opt.dialects.types.extents import estimate, is_number
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr

MOST_LAUNCHES = 16
"""One for each phase of rows and planes."""
MOST_TAPS = 128
"""Of a window, whose places are tables."""


@dataclass(frozen=True, slots=True)
class InputGradient:
    """A gradient by an input, and what is stored of it: `epilogue` loads the gradient, `raw`, where it stores."""

    op: OpaqueOp
    contraction: WindowContraction
    """The convolution, merged: its input is the result here."""
    grad: SSAValue
    weight: SSAValue
    epilogue: LoopBody
    places: Mapping[Dim, IndexExpr]
    """The dimensions of the epilogue, by groups, channels and elements of the input."""

    @property
    def raw(self) -> SSAValue:
        return self.op.results[0]

    @property
    def sums(self) -> DType:
        """In which it is computed."""
        return sums_of(self.op)

    def contracted(self) -> set[SSAValue]:
        """What is read before the epilogue."""
        return {self.grad, self.weight}


@dataclass(frozen=True, slots=True)
class PhaseTaps:
    """Taps of the window that meet the elements of a phase: their numbers, and those in the window of its contraction."""

    taps: tuple[int, ...]
    seen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowPhase:
    """The elements of some rows of an input, a stride apart: convolutions over the same elements, one for each phase of a row."""

    plane: int
    row: int
    """The first plane and row of the phase."""
    contraction: WindowContraction
    """Its positions are those of a phase, its window has all taps; weights are counted in windows."""
    columns: tuple[PhaseTaps, ...]
    """By phase of a row."""


def input_product(of: WindowContraction) -> Contraction:
    """The product whose result is the gradient: for each group of each sample, of channels by elements."""
    zeros = (0, 0, 0, 0)
    return Contraction((of.batch, of.groups), of.channels, prod(of.extents), of.filters * of.taps, zeros, zeros)


def row_phases(of: WindowContraction) -> Iterator[RowPhase]:
    """The phases of rows of a merged contraction's input that have elements."""
    along = zip(of.extents[:2], of.strides, strict=False)
    for plane, row in product(*(range(min(n, s) if is_number(n) else s) for n, s in along)):
        yield _row_phase(of, plane, row)


def _row_phase(of: WindowContraction, plane: int, row: int) -> RowPhase:
    columns = [_met(of, 2, phase) for phase in range(of.strides[2])]
    met = [_met(of, 0, plane), _met(of, 1, row), [pair for phase in columns for pair in phase]]
    first = [min((shift for _, shift in pairs), default=0) for pairs in met]
    last = [max((shift for _, shift in pairs), default=0) for pairs in met]
    window = tuple(b - a + 1 for a, b in zip(first, last, strict=True))
    counts = (
        -(-(n - phase) // s) for n, phase, s in zip(of.extents, (plane, row, 0), of.strides, strict=True)
    )  # of a row, those of its first phase

    def taps(phase: Sequence[tuple[int, int]]) -> PhaseTaps:
        found = list(product(met[0], met[1], phase))
        numbers = (_number([tap for tap, _ in each], of.window) for each in found)
        seen = (_number([e - a for (_, e), a in zip(each, first, strict=True)], window) for each in found)
        return PhaseTaps(tuple(numbers), tuple(seen))

    ones, found = (1, 1, 1), tuple(map(taps, columns))
    seen = replace(
        of,
        filters=of.channels,
        channels=of.filters if any(phase.taps for phase in found) else 1,
        extents=of.positions,
        positions=tuple(counts),
        window=window,
        strides=ones,
        dilations=ones,
        begins=tuple(-a for a in first),
        group_step=of.filters * of.channels,
        filter_step=1,
        channel_step=of.channels,
    )
    return RowPhase(plane, row, seen, found)


def _met(of: WindowContraction, axis: int, phase: int) -> list[tuple[int, int]]:
    """Taps of an axis that meet elements of a phase, with how far the position lies from the element's number there."""
    stride, found = of.strides[axis], list[tuple[int, int]]()
    for tap in range(of.window[axis]):
        away = phase + of.begins[axis] - tap * of.dilations[axis]
        if away % stride == 0:
            found.append((tap, away // stride))
    return found


def _number(places: Sequence[int], extents: Sequence[int]) -> int:
    return (places[0] * extents[1] + places[1]) * extents[2] + places[2]


def input_gradient_problem(op: OpaqueOp) -> Unschedulable | None:
    """Why no code is generated for an op as a gradient by an input; None where it can be."""
    values = (*op.operands, *op.results)
    if not all(map(is_sized, values)):
        return Unschedulable("dynamic-shape", "it has unknown shapes", op)
    if (of := op.input_gradient()) is None:
        return Unschedulable("no-convolution", f"'{op.name}' is no gradient by an input", op)
    if any_encoded(values):
        return Unschedulable("layout", f"'{op.name}' reads or writes another order than the row-major one", op)
    if sums_of(op) not in (F32, F64) or len({dtype(value) for value in values}) > 1:
        return Unschedulable("element-type", f"'{op.name}' is of {dtype(op.results[0])}", op)
    of = of.merged()
    if not estimate(of.operations):
        return Unschedulable("extents", f"'{op.name}' sums up nothing", op)
    if of.taps > MOST_TAPS or prod(of.strides[:2]) > MOST_LAUNCHES or of.strides[2] > MOST_LAUNCHES:
        return Unschedulable("large-window", f"'{op.name}' has windows or strides of many elements", op)
    if of.has_any_extents:
        return None
    if (size := max(least_copy(each.contraction) for each in row_phases(of)) * sums_of(op).itemsize) > LARGEST_COPY:
        return Unschedulable("large-copy", f"'{op.name}' copies {size} bytes for a few positions", op)
    return None


def trace_input_gradient(results: Sequence[SSAValue], members: Collection[Operation]) -> InputGradient:
    """The gradient of a group that gives `results`, with what follows it. Raises Unschedulable."""
    ops, boundaries = member_ops(members), seen_through(members)
    opaque = [op for op in ops if isinstance(op, OpaqueOp)]
    if len(opaque) != 1 or len(opaque[0].results) != 1:
        raise Unschedulable("no-convolution", "it holds no gradient by an input, or several opaque ops")
    op = opaque[0]
    if (problem := input_gradient_problem(op)) is not None:
        raise problem
    grad, weight = (resolve(value, boundaries) for value in op.operands[:2])
    if grad.owner in ops or weight.owner in ops:
        raise Unschedulable("prologue", f"an operand of '{op.name}' is computed in the kernel", op)
    if not all(is_sized(value) for inner in ops for value in (*inner.operands, *inner.results)):
        raise Unschedulable("dynamic-shape", "it has unknown shapes", op)
    of = op.input_gradient()
    assert of is not None
    epilogue = trace(results, members, [op])
    places = result_places(epilogue, op.results[0], input_product(of.merged()))
    return InputGradient(op, of.merged(), grad, weight, epilogue, places)
