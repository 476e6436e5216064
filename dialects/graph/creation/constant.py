"""Constants: a splat is a scalar that kernels compute with; any other is stored with the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, result_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar.bits import packed
from fuse_opt.dialects.scalar.evaluate import Number, converted
from fuse_opt.dialects.types.dtypes import BOOL, DType, Kind, dtype_of
from fuse_opt.dialects.types.index_expr import Index


@irdl_op_definition
class ConstantOp(StructuredOp):
    """Elements known at compile time; exact for every element type."""

    name = "graph.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        type_ = self.value.type
        if not isinstance(type_, TensorType) or dtype_of(type_.element_type) is None:
            raise VerifyException(f"expected dense elements of a supported tensor type, got '{type_}'")
        return (type_,)

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        raise VerifyException("has no operand")

    def scalar(self, *operands: sc.Scalar) -> sc.Scalar:
        element = dtype_of(self.value.get_element_type())
        if element is None or not is_splat(self.value):
            raise VerifyException("is stored in memory and has no scalar meaning")
        value = next(iter(self.value.iter_values()), 0)
        if isinstance(value, tuple):
            raise VerifyException("complex elements are not supported")
        if element is BOOL:
            value = bool(value)
        elif element.kind is Kind.UINT:
            value = int(value) % 2**element.bits
        return sc.constant(value, element.compute)

    def fusion_kind(self) -> FusionKind:
        return FusionKind.ELEMENTWISE if is_splat(self.value) else FusionKind.OPAQUE

    def stored_value(self) -> DenseIntOrFPElementsAttr | None:
        return None if is_splat(self.value) else self.value

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        attributes = parser.parse_optional_attr_dict()
        position = parser.pos
        attribute = parser.parse_attribute()
        if not isinstance(attribute, DenseIntOrFPElementsAttr):
            parser.raise_error("'graph.constant': expected 'dense<...> : tensor<...>'", position, parser.pos)
        value = cast(DenseIntOrFPElementsAttr, attribute)
        return cls.create(result_types=(value.type,), properties={"value": value}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        if self.attributes:
            printer.print_string(" ")
            printer.print_attr_dict(self.attributes)
        printer.print_string(" ")
        printer.print_attribute(self.value)


def is_splat(value: DenseIntOrFPElementsAttr) -> bool:
    """Whether one scalar says all, bit for bit: 0.0 and -0.0 are two, xDSL's `is_splat` compares them as equal."""
    data, element = value.data.data, dtype_of(value.get_element_type())
    return element is None or data == data[: element.itemsize] * (len(data) // element.itemsize)


def scalar_constant(builder: GraphBuilder, value: float, like: SSAValue) -> SSAValue:
    """A 0-d constant of the element type of `like`, a float; what is too large for it is infinite."""
    element = tensor(like).element_type
    kind = dtype_of(element)
    assert isinstance(element, AnyFloat) and kind is not None
    number = float(converted(float(value), kind))
    return builder(ConstantOp, value=DenseIntOrFPElementsAttr.from_list(TensorType(element, []), [number]))


def number_constant(builder: GraphBuilder, value: Number, like: SSAValue) -> SSAValue:
    """A 0-d constant of any element type, that of `like`; integers wrap, floats are rounded."""
    type_ = cast(TensorType[AnyFloat], TensorType(tensor(like).element_type, []))
    element = dtype_of(type_.element_type)
    assert element is not None
    data = packed([converted(value, element)], element)
    return builder(ConstantOp, value=DenseIntOrFPElementsAttr(type_, BytesAttr(data)))


def number_of(name: str, attribute: Attribute | None, element: DType, default: int = 0) -> int | float | bool:
    """An attribute's number as an element of a type; raises VerifyException when it is none."""
    if attribute is None:
        attribute = IntegerAttr(default, 64)
    if element.is_float and isinstance(attribute, FloatAttr):
        return cast(FloatAttr, attribute).value.data
    if not isinstance(attribute, IntegerAttr):
        wanted = "a number" if element.is_float else "an integer"
        raise VerifyException(f"attribute '{name}': expected {wanted} for elements of {element}, got {attribute}")
    value = int(cast(IntegerAttr, attribute).value.data)
    if element.is_float:
        return float(value)
    if element is BOOL and value in (-1, 0, 1):
        return value != 0
    low = -(1 << element.bits - 1) if element.kind is Kind.INT else 0
    high = (1 << element.bits - (element.kind is Kind.INT)) - 1
    if not low <= value <= high:
        raise VerifyException(f"attribute '{name}': expected {low} to {high} for elements of {element}, got {value}")
    return value
