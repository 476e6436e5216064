"""The bits of integers and of floats: shifts of zeros, counts, and other readings of the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Binary, Unary
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, tensor_type
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.dtypes import DType, Kind, dtype_of

_WHOLE = (Kind.INT, Kind.UINT)


@irdl_op_definition
class ShiftRightLogicalOp(Binary):
    """The bits of x moved down by y places, zeros behind them: floor(x / 2**y) of x read without sign, of integers.

    Where y is negative or not below the width of x in bits all is shifted out: 0.
    """

    name = "graph.shift_right_logical"
    ACCEPTS: ClassVar[tuple[Kind, ...]] = _WHOLE

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        unsigned = x.dtype.unsigned
        return sc.cast(sc.shift_right(sc.cast(x, unsigned), sc.cast(y, unsigned)), x.dtype)


@irdl_op_definition
class BitwiseCountOp(Unary):
    """How many bits of an integer are set, negative ones read as two's complement (StableHLO popcnt); the type is kept."""

    name = "graph.bitwise_count"
    ACCEPTS: ClassVar[tuple[Kind, ...]] = _WHOLE

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cast(bits_set(sc.cast(x, x.dtype.unsigned)), x.dtype)


@irdl_op_definition
class CountLeadingZerosOp(Unary):
    """How many bits above the highest one set an integer has: its width for 0, none for negative ones; the type is kept."""

    name = "graph.count_leading_zeros"
    ACCEPTS: ClassVar[tuple[Kind, ...]] = _WHOLE

    def scalar(self, x: Scalar) -> Scalar:
        filled, step = sc.cast(x, x.dtype.unsigned), 1
        while step < x.dtype.bits:
            filled = filled | sc.shift_right(filled, step)
            step *= 2
        return sc.cast(bits_set(~filled), x.dtype)


def bits_set(x: Scalar) -> Scalar:
    """How many bits of an unsigned number are set: those of each pair, of each four, of each byte, of all."""
    bits = x.dtype.bits
    ones = sum(1 << at for at in range(0, bits, 8))
    x = x - (sc.shift_right(x, 1) & (0x55 * ones))
    x = (x & (0x33 * ones)) + (sc.shift_right(x, 2) & (0x33 * ones))
    x = (x + sc.shift_right(x, 4)) & (0x0F * ones)
    return sc.shift_right(x * ones, bits - 8)


@irdl_op_definition
class BitcastOp(Unary):
    """The bits of x read as elements of `dtype`, a type of the same width (torch `view(dtype)`, StableHLO bitcast_convert).

    Not of i1. Of f16, bf16 and the 8-bit floats, which are computed in f32, every NaN is the positive quiet one, whatever its
    bits; of f32 and f64 the sign and the payload of a NaN that was computed depend on the backend.
    """

    name = "graph.bitcast"
    dtype = prop_def(Attribute)
    ACCEPTS: ClassVar[tuple[Kind, ...]] = (*_WHOLE, Kind.FLOAT)

    def target(self) -> DType:
        if (found := dtype_of(self.dtype)) is None:
            raise VerifyException(f"attribute 'dtype': element type '{self.dtype}' is not supported")
        return found

    def infer_types(self) -> Sequence[AnyTensor]:
        self._refuse_kinds()
        source, target = dtype(self.x), self.target()
        if source.bits != target.bits or target.kind is Kind.BOOL:
            raise VerifyException(
                f"attribute 'dtype': expected a type of {source.bits} bits like '{self.x.type}', got {target}; "
                "graph.astype converts values"
            )
        return (tensor_type(self.dtype, shape(self.x)),)

    def scalar(self, x: Scalar) -> Scalar:
        source, target = dtype(self.x), self.target()
        if source is target:
            return x
        bits = bits_of(x, source) if source.is_float else x
        return number_of(bits, target) if target.is_float else sc.bitcast(bits, target)


def bits_of(x: Scalar, element: DType) -> Scalar:
    """The pattern of a float, as it is computed with, in its own type, as an unsigned integer."""
    if element.compute is element:
        return sc.bitcast(x, element.unsigned)
    return _with_one_nan(sc.bitcast(sc.cast(x, element), element.unsigned), element)


def number_of(bits: Scalar, element: DType) -> Scalar:
    """The float with that pattern in its own type, as it is computed with."""
    if element.compute is element:
        return sc.bitcast(bits, element)
    pattern = _with_one_nan(sc.bitcast(bits, element.unsigned), element)
    return sc.cast(sc.bitcast(pattern, element), element.compute)


def _with_one_nan(pattern: Scalar, element: DType) -> Scalar:
    """The pattern of a float, of NaN the positive quiet one."""
    magnitude = pattern & ((1 << element.bits - 1) - 1)
    return sc.where(magnitude > element.largest_pattern, element.quiet_nan, pattern)
