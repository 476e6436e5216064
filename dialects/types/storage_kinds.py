"""Storage kinds: encodings of tensors that are not stored with all their elements. What is absent is zero.

```mlir
tensor<1024x512xf32, #graph.csr<capacity = 5000>>         // rows of stored entries
tensor<50000x256xf32, #graph.row_sparse<capacity = 512>>  // some whole rows
```
A value of such a type is made of parts, which are dense: a pattern (`indptr`, `indices`), that says where the stored elements
are, and `values`. Columns (rows) ascend within a row (the tensor) and none occurs twice. `capacity` is the extent of the
parts; how many of it are stored is data: the last element of `indptr`. Behind these, `indices` holds zeros and `values`
anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar, Self, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, IntAttr, TensorType, i32
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.types.encodings import EncodingPart, Extents
from fuse_opt.dialects.types.index_expr import Index

PARTS = ("indptr", "indices", "values")
"""The parts of a value, in order; the last one has the elements."""

MOST_ENTRIES = 2**31
"""Positions are 32-bit integers."""


class StorageKind(EncodingPart):
    """The interface of a storage kind, to be derived from beside an attribute's class; it has `capacity`."""

    PLACE: ClassVar[int] = 3
    capacity: IntAttr

    @classmethod
    def of(cls, capacity: int) -> Self:
        return cls(IntAttr(capacity))  # pyright: ignore[reportCallIssue]

    @abstractmethod
    def entries(self, extents: Sequence[int]) -> int:
        """What a tensor of these extents has at most of what is stored or not."""

    @abstractmethod
    def part_extents(self, extents: Sequence[int]) -> tuple[Extents, Extents, Extents]:
        """The extents of the parts of a tensor of these extents."""

    def parts(self, type_: TensorType[Attribute]) -> tuple[TensorType[Attribute], ...]:
        """The types of the parts."""
        indptr, indices, values = self.part_extents(type_.get_shape())
        return TensorType(i32, indptr), TensorType(i32, indices), TensorType(type_.element_type, values)

    def buffers(self, type_: TensorType[Attribute]) -> tuple[tuple[Attribute, Extents], ...]:
        return tuple((part.element_type, tuple(part.get_shape())) for part in self.parts(type_))

    def bounded(self, extents: Sequence[int], *capacities: int) -> Self:
        """The kind with room for as many as these together, as far as a tensor of these extents has as many."""
        return self.of(min(sum(capacities), self.entries(extents)))

    def problem(self, extents: Sequence[int]) -> str | None:
        if DYNAMIC_INDEX in extents:
            return f"expected known extents of a tensor that is stored as {self.STORAGE_KIND}"
        if max(extents, default=0) >= MOST_ENTRIES - 1 or self.capacity.data >= MOST_ENTRIES:
            return f"expected extents and a capacity below {MOST_ENTRIES - 1}, as positions are 32-bit integers"
        if self.capacity.data > (most := self.entries(extents)):
            return f"expected a capacity of at most {most}, as many as there are, got {self.capacity.data}"
        return None

    def memory_extents(self, extents: Sequence[int]) -> Extents:
        """Those of the values."""
        return self.part_extents(extents)[2]

    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        raise VerifyException(f"'{self}': where an element is depends on data; convert by graph.to_storage")

    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        raise VerifyException(f"'{self}': which element is at a place depends on data; convert by graph.to_storage")

    def verify(self) -> None:
        if self.capacity.data < 0:
            raise VerifyException(f"expected a capacity of 0 or more, got {self.capacity.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        why = f": '#graph.{cls.STORAGE_KIND}' states how many entries it has room for, as in <capacity = 100>"
        parser.parse_punctuation("<", why)
        parser.parse_keyword("capacity", why)
        parser.parse_punctuation("=", why)
        capacity = IntAttr(parser.parse_integer(allow_boolean=False))
        parser.parse_punctuation(">", why)
        return (capacity,)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<capacity = {self.capacity.data}>")


@irdl_attr_definition
class CsrAttr(StorageKind, ParametrizedAttribute):
    """`#graph.csr<capacity = N>`: of a matrix up to N entries, row by row; `indptr` says where each row begins."""

    name = "graph.csr"
    STORAGE_KIND: ClassVar[str] = "csr"
    capacity: IntAttr

    def entries(self, extents: Sequence[int]) -> int:
        return prod(extents)

    def part_extents(self, extents: Sequence[int]) -> tuple[Extents, Extents, Extents]:
        return (extents[0] + 1,), (self.capacity.data,), (self.capacity.data,)

    def problem(self, extents: Sequence[int]) -> str | None:
        if len(extents) != 2:
            return f"expected a matrix to be stored as csr, got a tensor of {len(extents)} axes; graph.reshape it"
        return super().problem(extents)


@irdl_attr_definition
class RowSparseAttr(StorageKind, ParametrizedAttribute):
    """`#graph.row_sparse<capacity = N>`: up to N rows (along axis 0); `indices` names them, `indptr` is 0 and their number."""

    name = "graph.row_sparse"
    STORAGE_KIND: ClassVar[str] = "row_sparse"
    capacity: IntAttr

    def entries(self, extents: Sequence[int]) -> int:
        return extents[0] if prod(extents) else 0

    def part_extents(self, extents: Sequence[int]) -> tuple[Extents, Extents, Extents]:
        return (2,), (self.capacity.data,), (self.capacity.data, *extents[1:])

    def problem(self, extents: Sequence[int]) -> str | None:
        if not extents:
            return "expected a tensor of rows to be stored as row_sparse, got a scalar"
        return super().problem(extents)


STORAGE_KINDS = (CsrAttr, RowSparseAttr)
"""The storage kinds of the `graph` dialect."""


def stored_as(type_: Attribute) -> StorageKind | None:
    """The storage kind of a tensor type; None for a dense one, and for another type."""
    if not isinstance(type_, TensorType):
        return None
    encoding = cast(TensorType[Attribute], type_).encoding
    return encoding if isinstance(encoding, StorageKind) else None


def part_types(type_: Attribute) -> tuple[Attribute, ...]:
    """The types of what a value of this type is made of: of a dense one, itself."""
    kind = stored_as(type_)
    return (type_,) if kind is None else kind.parts(cast(TensorType[Attribute], type_))
