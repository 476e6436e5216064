"""Elementwise ops: NumPy broadcasting is implicit, promotion never is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, FloatAttr, TensorType
from xdsl.irdl import operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    NeedsEqual,
    dtype,
    extents_of,
    may_be_equal,
    shape,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types.dtypes import DTYPES, DType, Kind
from fuse_opt.dialects.types.index_expr import Index, constant


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """
    NumPy's broadcast shape; a dynamic extent meets any, and wins against 1. Raises VerifyException: NeedsEqual for sizes that may
    be equal.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        extents = [s[axis] for s in shapes if len(s) >= -axis]
        known = {n for n in extents if n not in (1, DYNAMIC_INDEX)}
        if len(known) > 1:
            refuse_unless_equal(known)
            names = ", ".join("x".join("?" if n == DYNAMIC_INDEX else str(n) for n in s) or "scalar" for s in shapes)
            raise VerifyException(
                f"operand shapes {names} do not broadcast: dimension {axis} has extents "
                f"{' and '.join(map(str, sorted(known)))}; make them equal or 1"
            )
        result.append(known.pop() if known else DYNAMIC_INDEX if DYNAMIC_INDEX in extents else 1)
    return tuple(result)


def refuse_unless_equal(extents: Collection[int]) -> None:
    """Raises NeedsEqual for sizes among extents that are not known to be equal, and may be."""
    first, *others = sorted(extents, key=str)
    if all(may_be_equal(first, other) for other in others):
        raise NeedsEqual(first, others[0])


class Elementwise(StructuredOp):
    """Operands of any shapes that broadcast to one; an op states its operands and `scalar`."""

    ACCEPTS: ClassVar[tuple[Kind, ...]] = tuple(Kind)
    """The kinds of elements of the operands, where the primitives of the scalar body would accept more."""
    REMEDY: ClassVar[str] = "insert graph.astype"
    """What to do about operands of other kinds."""

    def infer_types(self) -> Sequence[AnyTensor]:
        self._refuse_kinds()
        self._refuse_mixed_floats()
        element = self.result_dtype().attribute
        first = tensor(self._operands[0])
        if all(v.type == first for v in self._operands):
            return (first if first.element_type == element else tensor_type(element, extents_of(first)),)
        return (tensor_type(element, broadcast_shapes([shape(value) for value in self._operands])),)

    def _refuse_kinds(self) -> None:
        for number, value in enumerate(self._operands):
            if dtype(value).kind not in self.ACCEPTS:
                names = " ".join(d.name for d in DTYPES if d.kind in self.ACCEPTS and not d.storage_only)
                raise VerifyException(
                    f"operand {number}: expected elements of {names}, got '{value.type}'; {self.REMEDY}"
                )

    def _refuse_mixed_floats(self) -> None:
        """Types that are computed alike (f16 and f32) would mix without a primitive from the scalar body."""
        seen: dict[DType, DType] = {}
        for value in self._operands:
            given = dtype(value)
            if (other := seen.setdefault(given.compute, given)) is not given:
                raise VerifyException(f"operands mix {other} and {given}; insert graph.astype to make them one type")

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        extents = shape(self._operands[operand])
        if len(extents) == len(index) and 1 not in extents:
            return index
        trailing = index[len(index) - len(extents) :]
        zero = constant(0)
        return tuple(zero if n == 1 else i for n, i in zip(extents, trailing, strict=True))

    def fusion_kind(self) -> FusionKind:
        result = shape(self.results[0])
        same = all(shape(value) == result for value in self._operands)
        return FusionKind.ELEMENTWISE if same else FusionKind.BROADCAST


class Unary(Elementwise):
    """One operand `x`, and a result of its shape."""

    x = operand_def(TensorType)
    result = result_def(TensorType)


class Binary(Elementwise):
    """Operands `lhs` and `rhs`, and a result of the shape that they broadcast to."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)


class FloatUnary(Unary):
    ACCEPTS: ClassVar[tuple[Kind, ...]] = (Kind.FLOAT,)


class FloatBinary(Binary):
    ACCEPTS: ClassVar[tuple[Kind, ...]] = (Kind.FLOAT,)


def number(attribute: FloatAttr | None, default: float) -> float:
    """A parameter of a scalar body, which rounds it to the type that it computes in."""
    return default if attribute is None else attribute.value.data
