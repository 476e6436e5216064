"""Tensors made from nothing or little: filled, counted, with ones where an index says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    TensorType,
)
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.movement import axis_of
from fuse_opt.dialects.graph.creation.constant import number_constant, number_of
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.properties import int_value, stated_extents
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape, shape_text, tensor_type
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import BOOL, I64, DType, Kind, dtype_of
from fuse_opt.dialects.types.extents import is_decided
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.dialects.types.size import Size
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr, SizeAttr


def element_of(attribute: Attribute) -> DType:
    """The element type that an attribute names; raises VerifyException when tensors of it are not supported."""
    if (found := dtype_of(attribute)) is None:
        raise VerifyException(f"attribute 'dtype': expected a supported element type, got '{attribute}'")
    return found


class Creation(StructuredOp):
    """A tensor of a `shape`, numbers or sizes over the symbols of arguments, and of an element type `dtype`."""

    shape = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)
    dtype = prop_def(Attribute)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        extents = stated_extents(self.shape)
        if any(is_decided(lambda n=n: n < 0) for n in extents):
            raise VerifyException(f"attribute 'shape': expected static extents >= 0, got {shape_text(extents)}")
        return (tensor_type(element_of(self.dtype).attribute, extents),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return ()


@irdl_op_definition
class FullOp(Creation):
    """`value` everywhere: an integer, or for floats a number, that the element type `dtype` holds; or a size (`#graph.size<n>`).

    A size of symbols is what a call says of them, converted as `graph.astype` converts an i64.
    """

    name = "graph.full"
    value = prop_def(Attribute)

    def size(self) -> Size | None:
        """The value where it is a size of symbols."""
        found = self.value.data if isinstance(self.value, SizeAttr) else None
        return found if isinstance(found, Size) else None

    def number(self) -> int | float | bool:
        """The value where it is none. Raises VerifyException where the elements do not hold it."""
        value = int_value(cast(int, self.value.data)) if isinstance(self.value, SizeAttr) else self.value
        return number_of("value", value, element_of(self.dtype))

    def infer_types(self) -> Sequence[AnyTensor]:
        if self.size() is None:
            self.number()
        elif (element := element_of(self.dtype)) is BOOL or element.storage_only:
            raise VerifyException(f"attribute 'dtype': expected numbers to compute with for a size, got {element}")
        return super().infer_types()

    def scalar(self, *operands: Scalar) -> Scalar:
        element, size = element_of(self.dtype), self.size()
        if size is not None:
            return sc.cast(sc.constant(cast(int, size), I64), element.compute)
        return sc.constant(self.number(), element.compute)

    def canonical(self) -> GraphOp | None:
        """A single number is a constant, as it is written elsewhere, so that equal ones are found."""
        if stated_extents(self.shape) or self.size() is not None:
            return None
        builder = GraphBuilder()
        number_constant(builder, self.number(), self.result)
        return builder.ops[0]


@irdl_op_definition
class ReciprocalOfSizeOp(StructuredOp):
    """1 over a `size` (`#graph.size<n>`), as an element of the float type `dtype`: the factor of a mean over so many elements.

    A size of symbols is what a call says of them. 1 over 0 is NaN, the mean of nothing.
    """

    name = "graph.reciprocal_of_size"
    size = prop_def(SizeAttr)
    dtype = prop_def(Attribute)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        element = element_of(self.dtype)
        if not element.is_float or element.storage_only:
            raise VerifyException(f"attribute 'dtype': expected floats to compute with, got {element}")
        return (tensor_type(element.attribute, ()),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return ()

    def scalar(self, *operands: Scalar) -> Scalar:
        compute, count = element_of(self.dtype).compute, self.size.data
        if not isinstance(count, Size):
            return sc.constant(1.0 / count if count else float("nan"), compute)
        return 1.0 / sc.constant(cast(int, count), compute)


@irdl_op_definition
class IotaOp(Creation):
    """`start` (0) + `step` (1) * i, i being the position on `axis` (0): of rank 1, the array API's arange.

    Integers wrap. Floats are rounded once (of positions up to 2**24, or 2**53 for f64), `start` and `step` before that.
    """

    name = "graph.iota"
    axis = opt_prop_def(IntegerAttr)
    start = opt_prop_def(Attribute)
    step = opt_prop_def(Attribute)

    def _numbers(self) -> tuple[int | float, int | float]:
        element = element_of(self.dtype)
        if element is BOOL or element.storage_only:
            raise VerifyException(f"attribute 'dtype': expected integers or floats to count with, got {element}")
        return number_of("start", self.start, element), number_of("step", self.step, element, 1)

    def infer_types(self) -> Sequence[AnyTensor]:
        self._numbers()
        axis_of(self.axis, len(stated_extents(self.shape)))
        return super().infer_types()

    def scalar(self, *operands: Scalar) -> Scalar:
        element, (start, step) = element_of(self.dtype), self._numbers()
        position = sc.index(axis_of(self.axis, len(stated_extents(self.shape))), I64)
        if element.is_float:
            i = sc.cast(position, element.compute)
            return i if (start, step) == (0, 1) else sc.fma(i, step, start)
        scaled = position if step == 1 else position * int(step)
        return sc.cast(scaled if start == 0 else scaled + int(start), element)


@irdl_op_definition
class EyeOp(StructuredOp):
    """1 on the diagonal `k` (0) of an `n` by `m` (n) matrix, where column - row is k, and 0 elsewhere."""

    name = "graph.eye"
    n = prop_def(IntegerAttr)
    m = opt_prop_def(IntegerAttr)
    k = opt_prop_def(IntegerAttr)
    dtype = prop_def(Attribute)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        extents = [(self.n if n is None else n).value.data for n in (self.n, self.m)]
        if min(extents) < 0:
            raise VerifyException(f"attributes 'n' and 'm': expected integers >= 0, got {extents}")
        return (tensor_type(element_of(self.dtype).attribute, extents),)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return ()

    def scalar(self, *operands: Scalar) -> Scalar:
        element = element_of(self.dtype)
        k = 0 if self.k is None else self.k.value.data
        diagonal = sc.equal(sc.index(1, I64) - sc.index(0, I64), k)
        return diagonal if element is BOOL else sc.cast(diagonal, element.compute)


@irdl_op_definition
class OneHotOp(StructuredOp):
    """`on` (1) where the position on the new `axis` (-1, of extent `depth`) is the id in `x`, and `off` (0) elsewhere.

    An id outside of `0 <= id < depth` gives `off` everywhere; the values are of element type `dtype`.
    """

    name = "graph.one_hot"
    x = operand_def(TensorType)
    depth = prop_def(IntegerAttr)
    dtype = prop_def(Attribute)
    axis = opt_prop_def(IntegerAttr)
    on = opt_prop_def(Attribute)
    off = opt_prop_def(Attribute)
    result = result_def(TensorType)

    def _axis(self) -> int:
        return axis_of(self.axis, len(shape(self.x)) + 1, -1)

    def _values(self) -> tuple[Scalar, Scalar]:
        element = element_of(self.dtype)
        on, off = number_of("on", self.on, element, 1), number_of("off", self.off, element)
        return sc.constant(on, element.compute), sc.constant(off, element.compute)

    def infer_types(self) -> Sequence[AnyTensor]:
        self._values()
        if dtype(self.x).kind not in (Kind.INT, Kind.UINT):
            raise VerifyException(f"operand 'x': expected integer ids, got '{self.x.type}'")
        if (depth := self.depth.value.data) < 0:
            raise VerifyException(f"attribute 'depth': expected an integer >= 0, got {depth}")
        extents = list(shape(self.x))
        extents.insert(self._axis(), depth)
        return (tensor_type(element_of(self.dtype).attribute, extents),)

    def fusion_kind(self) -> FusionKind:
        return super().fusion_kind() if is_static(self.x) else FusionKind.OPAQUE

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return tuple(i for axis, i in enumerate(index) if axis != self._axis())

    def scalar(self, x: Scalar) -> Scalar:
        return sc.where(sc.equal(sc.cast(x, I64), sc.index(self._axis(), I64)), *self._values())
