"""Element types: one record per type that tensors may hold, with the type in which it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
)
from xdsl.ir import Attribute

_FLOAT_NAMES = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
"""Names of floats that do not follow from their width."""


_NARROW_PATTERNS = {
    "f8E4M3FN": (0x7E, 0x7F),
    "f8E5M2": (0x7C, 0x7E),
    "f16": (0x7C00, 0x7E00),
    "bf16": (0x7F80, 0x7FC0),
}


class Kind(Enum):
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: its spelling in the IR, what it is, and its width in bits."""

    name: str
    kind: Kind
    bits: int
    attribute: Attribute
    storage_only: bool = False
    """Whether tensors of it are only kept, moved and converted: arithmetic on them is refused."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; i1 takes a byte, as in NumPy."""
        return max(self.bits // 8, 1)

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def numpy_name(self) -> str:
        """The spelling of NumPy, ml_dtypes and PyTorch."""
        if self.kind is Kind.BOOL:
            return "bool"
        return _FLOAT_NAMES.get(self.name) or f"{self.kind.value}{self.bits}"

    @property
    def unsigned(self) -> DType:
        """The unsigned integers of its width."""
        return next(dtype for dtype in DTYPES if dtype.kind is Kind.UINT and dtype.bits == self.bits)

    @property
    def largest_pattern(self) -> int:
        """Of a narrow float type: the bits of the largest number, infinity where there is one; what lies above them is NaN."""
        return _NARROW_PATTERNS[self.name][0]

    @property
    def quiet_nan(self) -> int:
        """Of a narrow float type: the bits of the positive quiet NaN."""
        return _NARROW_PATTERNS[self.name][1]

    @property
    def compute(self) -> DType:
        """The type in which scalar bodies are evaluated: narrow floats in f32, rounded at each op's result."""
        return F32 if self.is_float and self.bits < 32 else self

    def __repr__(self) -> str:
        return self.name


BOOL = DType("i1", Kind.BOOL, 1, IntegerType(1))
I8 = DType("i8", Kind.INT, 8, IntegerType(8))
I16 = DType("i16", Kind.INT, 16, IntegerType(16))
I32 = DType("i32", Kind.INT, 32, IntegerType(32))
I64 = DType("i64", Kind.INT, 64, IntegerType(64))
U8 = DType("ui8", Kind.UINT, 8, IntegerType(8, Signedness.UNSIGNED))
U16 = DType("ui16", Kind.UINT, 16, IntegerType(16, Signedness.UNSIGNED))
U32 = DType("ui32", Kind.UINT, 32, IntegerType(32, Signedness.UNSIGNED))
U64 = DType("ui64", Kind.UINT, 64, IntegerType(64, Signedness.UNSIGNED))
F16 = DType("f16", Kind.FLOAT, 16, Float16Type())
BF16 = DType("bf16", Kind.FLOAT, 16, BFloat16Type())
F32 = DType("f32", Kind.FLOAT, 32, Float32Type())
F64 = DType("f64", Kind.FLOAT, 64, Float64Type())
F8E4M3 = DType("f8E4M3FN", Kind.FLOAT, 8, Float8E4M3FNType(), storage_only=True)
"""Without infinities: what is too large, and an infinity, becomes NaN."""
F8E5M2 = DType("f8E5M2", Kind.FLOAT, 8, Float8E5M2Type(), storage_only=True)

DTYPES: tuple[DType, ...] = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2)
_BY_ATTRIBUTE = {dtype.attribute: dtype for dtype in DTYPES}
_BY_CLASS: dict[type[Attribute], DType] = {type(dtype.attribute): dtype for dtype in DTYPES if dtype.kind is Kind.FLOAT}
"""Classes of which each is one type: to hash and to compare attributes takes its time."""


def signed_of(bits: int) -> DType:
    """The signed integers of a width."""
    return next(dtype for dtype in DTYPES if dtype.kind is Kind.INT and dtype.bits == bits)


def dtype_of(element_type: Attribute) -> DType | None:
    """The record of a builtin element type, or None when tensors of it are not supported."""
    return _BY_CLASS.get(type(element_type)) or _BY_ATTRIBUTE.get(element_type)
