"""What ops of views and movement share: their bases, and the arithmetic of slices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.op import GraphOp, Limit
from fuse_opt.dialects.interfaces.partial_reads import PartialRead
from fuse_opt.dialects.interfaces.properties import int_array, ints, normalize_axis, shape_attribute, stated_extents
from fuse_opt.dialects.interfaces.shapes import AnyTensor, is_sized, is_static, shape, tensor, tensor_type
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.extents import is_decided, is_number
from fuse_opt.dialects.types.size import Extent, SizeRefusal, symbol
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr

_LIMIT = "'{name}', axis {axis}: the axis has {{most}} elements, got {{least}} as the stop"
_END = (1 << 63) - 1
"""A stop that is behind the end of any axis."""


class AxisOp(GraphOp):
    """Works along one `axis` of its first operand."""

    DEFAULT_AXIS: ClassVar[int] = 0
    axis = opt_prop_def(IntegerAttr)

    def checked_axis(self) -> int:
        """The axis, not negative; raises VerifyException when it is out of range."""
        return axis_of(self.axis, len(shape(self._operands[0])), self.DEFAULT_AXIS)


class MovingOp(StructuredOp):
    """Elements that come from other places. Where they come from is known once all extents are."""

    def _is_static(self) -> bool:
        return all(map(is_static, (*self._operands, *self.results)))

    def _is_sized(self) -> bool:
        return all(map(is_sized, (*self._operands, *self.results)))

    def _kind(self) -> FusionKind:
        return super()._kind() if self._is_sized() else FusionKind.OPAQUE

    def is_alias(self) -> bool:
        return self._is_sized() and super().is_alias()

    def simplified(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> GraphOp | None:
        """A new op in place of this one; None when less would be known of its result's extents."""
        op = op_type.build_op(*operands, **properties)
        if op.results[0].type == self.results[0].type:
            return op
        op.erase()
        return None


class ViewOp(MovingOp):
    """One operand, moved and not computed with."""

    def scalar(self, x: Scalar) -> Scalar:
        return x

    @abstractmethod
    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        """The result's shape; raises VerifyException when the properties do not fit the operand."""

    def infer_types(self) -> Sequence[AnyTensor]:
        (x,) = self._operands
        return (tensor_type(tensor(x).element_type, self.view_shape(shape(x))),)


class SlicingOp(MovingOp, PartialRead):
    """About the first operand's elements from starts to stops in steps (1), one of each for every axis."""

    starts = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)
    stops = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)
    steps = opt_prop_def(DenseArrayBase[IntegerType])

    def stated(self) -> list[tuple[int, int, int]]:
        """For each axis start, stop and step; sizes stand for numbers, as in `shape`. Raises VerifyException."""
        count = len(shape(self._operands[0]))
        starts, stops = stated_extents(self.starts), stated_extents(self.stops)
        steps = ints(self.steps, [1] * count)
        if not len(starts) == len(stops) == len(steps) == count:
            raise VerifyException(f"expected {count} starts, stops and steps, one for each axis of the operand")
        if 0 in steps:
            raise VerifyException(f"attribute 'steps': expected steps other than 0, got {list(steps)}")
        return list(zip(starts, stops, steps, strict=True))

    def call_limits(self) -> Sequence[Limit]:
        found: list[Limit] = []
        for axis, (stated, extent) in enumerate(zip(self.stated(), shape(self._operands[0]), strict=True)):
            if all(map(is_number, stated)) or extent == DYNAMIC_INDEX:
                continue
            span = span_of(*stated, extent)
            found.append(Limit(_LIMIT.format(name=self.name, axis=axis), span.start + span.count, extent))
        return found

    def has_numbers(self) -> bool:
        """Whether all starts and stops are."""
        return not isinstance(self.starts, ShapeAttr) and not isinstance(self.stops, ShapeAttr)

    def ranges(self) -> list[range]:
        """The positions on each axis; none on one of unknown extent. Raises VerifyException."""
        limits = zip(self.stated(), shape(self._operands[0]), strict=True)
        if not self.has_numbers():
            raise VerifyException(f"'{self.name}': expected starts and stops that are numbers, got sizes")
        return [range(*slice(*stated).indices(max(n, 0))) for stated, n in limits]

    def spans(self) -> list[Span]:
        """
        The positions on each axis, also of one whose extent is a size, as far as starts and stops are proven to be on it for all
        values. Raises VerifyException, and SizeRefusal.
        """
        source = shape(self._operands[0])
        if self.has_numbers() and all(map(is_number, source)):
            return [Span(r.start, r.step, len(r)) if r else Span(0, 1, 0) for r in self.ranges()]
        return [span_of(*stated, n) for stated, n in zip(self.stated(), source, strict=True)]

    def has_known_starts(self) -> bool:
        if not self.is_view() or not self.has_numbers():
            return False
        try:
            spans = self.spans()
        except SizeRefusal:
            return False  # who generates code of it says why
        extents = shape(self._operands[0])
        return all(span.step == 1 and span.count for span in spans) and any(map(_is_part, spans, extents))

    def part(self) -> tuple[int, range] | None:
        if not self.has_known_starts():
            return None
        spans = list(enumerate(zip(self.spans(), shape(self._operands[0]), strict=True)))
        parts = [(axis, span) for axis, (span, extent) in spans if _is_part(span, extent)]
        axis, span = parts[0]
        return (axis, range(span.start, span.start + span.count)) if len(parts) == 1 else None

    def free_starts(self, name: Callable[[], str]) -> dict[str, int]:
        found: dict[str, int] = {}
        starts: list[Extent] = []
        stops: list[Extent] = []
        for (start, stop, _), span, extent in zip(self.stated(), self.spans(), shape(self._operands[0]), strict=True):
            if _is_part(span, extent):
                found[chosen := name()] = span.start
                starts.append(symbol(chosen, 0, extent - span.count))
                stops.append(starts[-1] + span.count)
            else:
                starts.append(start)
                stops.append(stop)
        self.starts, self.stops = shape_attribute(starts), shape_attribute(stops)
        return found


@dataclass(frozen=True, slots=True)
class Span:
    """Positions on an axis: the first of them, the distance to the next one, and how many."""

    start: int
    step: int
    count: int


def _is_part(span: Span, extent: int) -> bool:
    """Whether these are some positions of an axis, all known."""
    return all(map(is_number, (span.start, span.count, extent))) and span.count < extent


def span_of(start: int, stop: int, step: int, extent: int) -> Span:
    """As a range of Python on an axis; starts and stops that are sizes are taken to be on it, which calls have to keep."""
    if all(map(is_number, (start, stop, extent))):
        found = range(*slice(start, stop, step).indices(max(extent, 0)))
        return Span(found.start, step, len(found)) if found else Span(0, 1, 0)
    if step < 1:
        raise SizeRefusal(f"an axis of the extent '{extent}' is read from '{start}' to '{stop}' in steps of {step}")
    first, last = (_place(place, extent) for place in (start, stop))
    if is_number(start) and is_number(stop) and not last >= first:
        return Span(first, step, 0)
    return Span(first, step, (last - first + step - 1) // step)


def _place(place: int, extent: int) -> int:
    """Where a start or a stop is on an axis, one of the two being a size; raises Undecided."""
    if is_decided(lambda: place >= extent):
        return extent
    if not is_number(place):
        return place
    found = place if place >= 0 else extent + place
    if is_number(extent):
        return max(found, 0)
    if found < 0 or found > extent:
        raise SizeRefusal(f"position {place} is on no axis of the unknown extent '{extent}'")
    return found


def axis_of(attribute: IntegerAttr | None, rank: int, default: int = 0) -> int:
    """A non-negative axis; raises VerifyException when it is out of range."""
    return normalize_axis(default if attribute is None else attribute.value.data, rank)


def whole_axis(extent: int) -> range:
    """The positions of a slice that leaves an axis as it is, also where its extent is a size."""
    return range(extent) if is_number(extent) else range(_END)


def position_on_axis(at: int, extent: int) -> range:
    """One position of an axis, counted from its end where it is negative."""
    if at < 0 and not is_number(extent):
        return range(at, at + 1 or _END)
    return range(at % extent, at % extent + 1)


def slice_properties(positions: Sequence[range], source: Sequence[int]) -> dict[str, DenseArrayBase[IntegerType]]:
    """The properties of a slice that reads these positions; of axes of unknown extents they may count from the end."""
    stops = [-n - 1 if r.stop < 0 and r.step < 0 else r.stop for r, n in zip(positions, source, strict=True)]
    starts, steps = [r.start for r in positions], [r.step for r in positions]
    found = [(a, b, c) if r else (0, 0, 1) for a, b, c, r in zip(starts, stops, steps, positions, strict=True)]
    names = ("starts", "stops", "steps")
    return {name: int_array([limits[k] for limits in found]) for k, name in enumerate(names)}
