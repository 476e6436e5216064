"""Random numbers without a state: each follows from its position and a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.irdl import irdl_op_definition, opt_operand_def, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.creation.filled import Creation, element_of
from fuse_opt.dialects.interfaces.op import ErrorBound
from fuse_opt.dialects.interfaces.properties import stated_extents
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.scalar.philox import Words, words_at
from fuse_opt.dialects.types.dtypes import BOOL, F32, F64, I64, DType
from fuse_opt.dialects.types.index_expr import strides
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr


class RandomOp(Creation):
    """Numbers that follow from `seed`, the row-major position and `offset` only, by Philox-4x32-10.

    The optional operand, an i64 scalar, chooses another stream: a program that counts its steps there gets new numbers
    in each.
    """

    offset = opt_operand_def(TensorType)
    seed = prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        if self.offset is not None and tensor(self.offset) != TensorType(I64.attribute, []):
            raise VerifyException(f"operand 'offset': expected 'tensor<i64>', got '{self.offset.type}'")
        if isinstance(self.shape, ShapeAttr):
            raise VerifyException(
                f"attribute 'shape': expected numbers, as those of elements are drawn, got {self.shape}"
            )
        return super().infer_types()

    def element(self) -> DType:
        """The type of the numbers, floats that are computed with; raises VerifyException when it is another."""
        element = element_of(self.dtype)
        if not element.is_float or element.storage_only:
            raise VerifyException(f"attribute 'dtype': expected floats to compute with, got {element}")
        return element

    def number(self, name: str, attribute: FloatAttr | None, default: float) -> float:
        """A finite parameter of the distribution."""
        value = default if attribute is None else attribute.value.data
        if not math.isfinite(value):
            raise VerifyException(f"attribute '{name}': expected a finite number, got {value}")
        return value

    def words(self, operands: Sequence[Scalar]) -> Words:
        """The 128 random bits of the element."""
        extents = stated_extents(self.shape)
        position = sc.constant(0, I64)
        for axis, (n, stride) in enumerate(zip(extents, strides(extents), strict=True)):
            if n > 1:
                position = position + sc.index(axis, I64) * stride
        return words_at(position, operands[0] if operands else None, self.seed.value.data)


@irdl_op_definition
class RandomBitsOp(RandomOp):
    """All values of the integer type `dtype` (or of i1) with equal probability; see `graph.random_uniform`."""

    name = "graph.random_bits"

    def infer_types(self) -> Sequence[AnyTensor]:
        if element_of(self.dtype).is_float:
            raise VerifyException(f"attribute 'dtype': expected integers or i1, got {element_of(self.dtype)}")
        return super().infer_types()

    def scalar(self, *operands: Scalar) -> Scalar:
        element, words = element_of(self.dtype), self.words(operands)
        if element is BOOL:
            return sc.cast(words[0] & 1, BOOL)
        bits = sc.shift_left(words[1], 32) | words[0] if element.bits == 64 else words[0]
        return sc.cast(bits, element)


_DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""The binary digits of the multiples that `random_uniform` gives: each type holds them all, and none is rounded to 1."""


@irdl_op_definition
class RandomUniformOp(RandomOp):
    """Random numbers, uniform in [`low` (0), `high` (1)): multiples of 2**-53 (f64), 2**-24 (f32), 2**-11 (f16), 2**-8
    (bf16), times high - low plus low.

    Philox-4x32-10 (Salmon et al. 2011) with the key `seed`; the counter is the row-major position and, in its high half,
    the i64 scalar `offset`, an optional operand. The same bits on every backend. With other limits than the default,
    `high` itself may come out of the rounding.
    """

    name = "graph.random_uniform"
    low = opt_prop_def(FloatAttr)
    high = opt_prop_def(FloatAttr)

    def _limits(self) -> tuple[float, float]:
        low, high = self.number("low", self.low, 0.0), self.number("high", self.high, 1.0)
        if not low < high or not math.isfinite(high - low):
            raise VerifyException(f"attributes 'low' and 'high': expected low < high, got {low} and {high}")
        return low, high

    def infer_types(self) -> Sequence[AnyTensor]:
        self.element()
        self._limits()
        return super().infer_types()

    def scalar(self, *operands: Scalar) -> Scalar:
        element, words, (low, high) = self.element(), self.words(operands), self._limits()
        if element is F64:
            unit = unit_f64(words[0], words[1])
        else:
            digits = _DIGITS[element.name]
            unit = sc.cast(sc.shift_right(words[0], 32 - digits), F32) * 2.0**-digits
        return unit if (low, high) == (0, 1) else sc.fma(unit, high - low, low)

    def error_bound(self) -> ErrorBound:
        return ErrorBound()


@irdl_op_definition
class RandomNormalOp(RandomOp):
    """Random numbers of a normal distribution, of `mean` (0) and standard deviation `std` (1).

    Box and Muller 1958 of the words that `graph.random_uniform` would take; no number is further than 6.7 (f64: 8.6)
    deviations from the mean.
    """

    name = "graph.random_normal"
    mean = opt_prop_def(FloatAttr)
    std = opt_prop_def(FloatAttr)

    def _moments(self) -> tuple[float, float]:
        mean, std = self.number("mean", self.mean, 0.0), self.number("std", self.std, 1.0)
        if std < 0:
            raise VerifyException(f"attribute 'std': expected a number >= 0, got {std}")
        return mean, std

    def infer_types(self) -> Sequence[AnyTensor]:
        self.element()
        self._moments()
        return super().infer_types()

    def scalar(self, *operands: Scalar) -> Scalar:
        words, (mean, std) = self.words(operands), self._moments()
        if self.element() is F64:
            distance = unit_f64(words[0], words[1]) + 2.0**-53
            angle = (unit_f64(words[2], words[3]) - 0.5) * (2 * math.pi)
        else:
            distance = sc.cast(words[0] + 1, F32) * 2.0**-32
            angle = sc.cast(words[1] - 2**31, F32) * (math.pi * 2.0**-31)
        normal = sc.sqrt(-2.0 * sc.log(distance)) * sc.cos(angle)
        return normal if (mean, std) == (0, 1) else normal * std + mean

    def error_bound(self) -> ErrorBound:
        """Next to zero the angle's rounding counts, in proportion to the deviation."""
        mean, std = self._moments()
        return ErrorBound(8, 32 * max(std, abs(mean), 1.0))


def unit_f64(high: Scalar, low: Scalar) -> Scalar:
    """A multiple of 2**-53 in [0, 1) of the two words' upper bits."""
    return sc.cast(sc.shift_left(high, 21) | sc.shift_right(low, 11), F64) * 2.0**-53
