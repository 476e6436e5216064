"""What records of views and movement share: their bases, and the arithmetic of slices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.op import FusionKind, GraphOp, StructuredOp
from fuse_opt.dialects.interfaces.properties import int_array, normalize_axis
from fuse_opt.dialects.interfaces.shapes import AnyTensor, is_static, shape, tensor
from fuse_opt.dialects.scalar import Scalar


class MovingOp(StructuredOp):
    """Elements that come from other places. Where they come from is known once all extents are."""

    def _is_static(self) -> bool:
        return all(map(is_static, (*self._operands, *self.results)))

    def fusion_kind(self) -> FusionKind:
        return super().fusion_kind() if self._is_static() else FusionKind.OPAQUE

    def is_alias(self) -> bool:
        return self._is_static() and super().is_alias()

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
        return (TensorType(tensor(x).element_type, self.view_shape(shape(x))),)


def axis_of(attribute: IntegerAttr | None, rank: int, default: int = 0) -> int:
    """A non-negative axis; raises VerifyException when it is out of range."""
    return normalize_axis(default if attribute is None else attribute.value.data, rank)


def slice_ranges(
    source: Sequence[int], starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> list[range]:
    """The positions that a slice reads on each axis; none on one of unknown extent. Raises VerifyException."""
    if not len(starts) == len(stops) == len(steps) == len(source):
        raise VerifyException(f"expected {len(source)} starts, stops and steps, one for each axis of the operand")
    if 0 in steps:
        raise VerifyException(f"attribute 'steps': expected steps other than 0, got {list(steps)}")
    limits = zip(starts, stops, steps, source, strict=True)
    return [range(*slice(start, stop, step).indices(max(n, 0))) for start, stop, step, n in limits]


def slice_properties(positions: Sequence[range], source: Sequence[int]) -> dict[str, DenseArrayBase[IntegerType]]:
    """The properties of a slice that reads these positions of axes of known extents."""
    stops = [r.stop if r.stop >= 0 else -n - 1 for r, n in zip(positions, source, strict=True)]
    starts, steps = [r.start for r in positions], [r.step for r in positions]
    found = [(a, b, c) if r else (0, 0, 1) for a, b, c, r in zip(starts, stops, steps, positions, strict=True)]
    names = ("starts", "stops", "steps")
    return {name: int_array([limits[k] for limits in found]) for k, name in enumerate(names)}
