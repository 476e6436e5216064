"""Encodings of tensor types: how the elements of a tensor lie in memory, where that is not row by row.

A tensor type has at most one encoding, made of parts. A part implements `EncodingPart`; so does one of a user's own, which
everything else asks by that interface alone. What has no encoding is dense and in row-major order.

```mlir
tensor<4x64x56x56xf32, #graph.order<0, 2, 3, 1>>                     // axes from outermost to innermost in memory: NHWC
tensor<384x1536xf32, #graph.panel<axis = 1, width = 64>>            // [24][384][64]
tensor<384x1536xi8, #graph.panel<axis = 1, width = 64, group = 4>>   // [24][96][64][4]
tensor<384x1536xf32, #graph.encoding<#graph.order<1, 0>, #graph.panel<axis = 1, width = 64>>>
```
Of several parts, each is about the axes that the parts before it leave, from outermost to innermost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar, TypeVar, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntAttr, NoneAttr, TensorType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.types.index_expr import Index, strides

Extents = tuple[int, ...]
_T = TypeVar("_T")


class EncodingPart(ABC):
    """The interface of an encoding, to be derived from beside an attribute's class."""

    STORAGE_KIND: ClassVar[str] = "dense"
    """What is stored: `dense` for each element once; others need ops and implementations that know them."""
    PLACE: ClassVar[int] = 100
    """Where the part stands among several: those of lower numbers come first."""
    IS_LAYOUT: ClassVar[bool] = True
    """Whether it is about places in memory; if not, values in row-major order may have it."""

    @property
    def storage_kind(self) -> str:
        """What is stored: `STORAGE_KIND`, of several parts that which is not dense."""
        return self.STORAGE_KIND

    @abstractmethod
    def problem(self, extents: Sequence[int]) -> str | None:
        """Why a tensor of these extents (-1 or less: not known) cannot have it, as the rest of a sentence; None where it can."""

    @abstractmethod
    def memory_extents(self, extents: Sequence[int]) -> Extents:
        """The extents of a row-major array of the same bytes."""

    @abstractmethod
    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        """Where in that array an element of the tensor is."""

    @abstractmethod
    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        """Which element of the tensor a place of that array holds: the inverse of `to_memory`."""

    def is_default(self, extents: Sequence[int]) -> bool:
        """Whether the elements lie as they would without it."""
        return False

    def strides(self, extents: Sequence[int]) -> Extents | None:
        """By axis, how many elements neighbours lie apart; None where that differs along an axis."""
        return None

    def buffers(self, type_: TensorType[Attribute]) -> tuple[tuple[Attribute, Extents], ...]:
        """Element types and extents of the row-major arrays that hold the tensor."""
        return ((type_.element_type, self.memory_extents(type_.get_shape())),)


@irdl_attr_definition
class OrderAttr(ParametrizedAttribute, EncodingPart):
    """`#graph.order<0, 2, 3, 1>`: the axes from outermost to innermost in memory."""

    name = "graph.order"
    PLACE = 1
    axes: ArrayAttr[IntAttr]

    @staticmethod
    def of(axes: Sequence[int]) -> OrderAttr:
        return OrderAttr(ArrayAttr(IntAttr(axis) for axis in axes))

    @property
    def order(self) -> Extents:
        return tuple([axis.data for axis in self.axes.data])

    def verify(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise VerifyException(
                f"'#{self.name}': expected each of the axes 0 to {len(self.order) - 1} once, got {list(self.order)}"
            )

    def problem(self, extents: Sequence[int]) -> str | None:
        if len(self.order) != len(extents):
            return f"expected an order of {len(extents)} axes, got one of {len(self.order)}"
        return None

    def memory_extents(self, extents: Sequence[int]) -> Extents:
        return tuple([extents[axis] for axis in self.order])

    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        return tuple([index[axis] for axis in self.order])

    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        order = self.order
        return tuple([place[order.index(axis)] for axis in range(len(order))])

    def is_default(self, extents: Sequence[int]) -> bool:
        return self.order == tuple(range(len(self.order)))

    def strides(self, extents: Sequence[int]) -> Extents | None:
        order, steps = self.order, strides(self.memory_extents(extents))
        return tuple([steps[order.index(axis)] for axis in range(len(order))])

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        axes = parser.parse_comma_separated_list(
            parser.Delimiter.ANGLE, lambda: parser.parse_integer(allow_boolean=False)
        )
        return (ArrayAttr(IntAttr(axis) for axis in axes),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<" + ", ".join(map(str, self.order)) + ">")


@irdl_attr_definition
class PanelAttr(ParametrizedAttribute, EncodingPart):
    """`#graph.panel<axis = 1, width = 64>`: an axis in panels of so many elements, one panel behind the other.

    With `group = 4` the innermost of the other axes is taken four elements at a time, which lie side by side for each element of
    a panel, as instructions read them that multiply and add bytes in fours: `[extent/64][rows/4][64][4]`.
    """

    name = "graph.panel"
    PLACE = 2
    axis: IntAttr
    width: IntAttr
    group: IntAttr

    @staticmethod
    def of(axis: int, width: int, group: int = 1) -> PanelAttr:
        return PanelAttr(IntAttr(axis), IntAttr(width), IntAttr(group))

    def verify(self) -> None:
        numbers = self.axis.data, self.width.data, self.group.data
        if numbers[0] < 0 or min(numbers[1:]) < 1:
            got = ", ".join(f"{name} = {n}" for name, n in zip(("axis", "width", "group"), numbers, strict=True))
            raise VerifyException(f"'#{self.name}': expected axis >= 0, width >= 1 and group >= 1, got {got}")

    def problem(self, extents: Sequence[int]) -> str | None:
        axis, width, group = self.axis.data, self.width.data, self.group.data
        if axis >= len(extents):
            return f"expected an axis below {len(extents)}, got {axis}"
        if extents[axis] == DYNAMIC_INDEX:
            return f"the extent of axis {axis} is not known"
        if extents[axis] % width:
            return f"expected an extent of axis {axis} that is a multiple of {width}, got {extents[axis]}; graph.pad it"
        if group > 1 and (len(extents) < 2 or self._others(extents)[-1] % group):
            found = self._others(extents)[-1:] or ["none"]
            return f"expected a multiple of {group} as extent of the innermost other axis, got {found[0]}; graph.pad it"
        return None

    def _others(self, values: Sequence[_T]) -> list[_T]:
        """Those of the other axes."""
        return [value for number, value in enumerate(values) if number != self.axis.data]

    def memory_extents(self, extents: Sequence[int]) -> Extents:
        width, group, others = self.width.data, self.group.data, self._others(extents)
        panels = extents[self.axis.data] // width
        return (panels, *others, width) if group == 1 else (panels, *others[:-1], others[-1] // group, width, group)

    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        width, group, others = self.width.data, self.group.data, self._others(index)
        panel, column = index[self.axis.data] // width, index[self.axis.data] % width
        if group == 1:
            return (panel, *others, column)
        return (panel, *others[:-1], others[-1] // group, column, others[-1] % group)

    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        axis, width, group = self.axis.data, self.width.data, self.group.data
        if group == 1:
            panel, *others, column = place
        else:
            panel, *others, row, column, inside = place
            others.append(row * group + inside)
        others.insert(axis, panel * width + column)
        return tuple(others)

    def is_default(self, extents: Sequence[int]) -> bool:
        axis, width = self.axis.data, self.width.data
        if self.group.data > 1 and width > 1:
            return False
        return (prod(extents[:axis]) == 1 and prod(extents[axis + 1 :]) == 1) or (width == 1 and axis == 0)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            found: list[Attribute] = []
            for name in ("axis", "width"):
                if found:
                    parser.parse_punctuation(",")
                found.append(_named_number(parser, name))
            is_grouped = parser.parse_optional_punctuation(",") is not None
            found.append(_named_number(parser, "group") if is_grouped else IntAttr(1))
        return found

    def print_parameters(self, printer: Printer) -> None:
        group = f", group = {self.group.data}" if self.group.data != 1 else ""
        printer.print_string(f"<axis = {self.axis.data}, width = {self.width.data}{group}>")


def _named_number(parser: AttrParser, name: str) -> IntAttr:
    parser.parse_keyword(name)
    parser.parse_punctuation("=")
    return IntAttr(parser.parse_integer(allow_boolean=False))


@irdl_attr_definition
class EncodingAttr(ParametrizedAttribute, EncodingPart):
    """`#graph.encoding<part, ...>`: several parts, in their fixed order; one alone stands without it."""

    name = "graph.encoding"
    parts: ArrayAttr[Attribute]

    @property
    def all_parts(self) -> tuple[EncodingPart, ...]:
        return tuple([part for part in self.parts.data if isinstance(part, EncodingPart)])

    @property
    def storage_kind(self) -> str:
        return next((part.storage_kind for part in self.all_parts if part.storage_kind != "dense"), "dense")

    def verify(self) -> None:
        parts = self.all_parts
        if len(parts) != len(self.parts.data):
            wrong = next(part for part in self.parts.data if not isinstance(part, EncodingPart))
            raise VerifyException(f"'#{self.name}': expected encodings, got '{wrong}'")
        if len(parts) < 2:
            raise VerifyException(f"'#{self.name}': expected two parts or more; write one without '#{self.name}'")
        if self.storage_kind != "dense":
            raise VerifyException(f"'#{self.name}': expected '#graph.{self.storage_kind}' to stand alone, got {self}")
        places = [part.PLACE for part in parts]
        if places != sorted(set(places)):
            raise VerifyException(
                f"'#{self.name}': expected parts of different kinds, orders before panels, got {self}"
            )

    def problem(self, extents: Sequence[int]) -> str | None:
        for part in self.all_parts:
            if (found := part.problem(extents)) is not None:
                return found
            extents = part.memory_extents(extents)
        return None

    def memory_extents(self, extents: Sequence[int]) -> Extents:
        for part in self.all_parts:
            extents = part.memory_extents(extents)
        return tuple(extents)

    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        for part in self.all_parts:
            index, extents = part.to_memory(index, extents), part.memory_extents(extents)
        return index

    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        stages: list[Sequence[int]] = [extents]
        for part in self.all_parts:
            stages.append(part.memory_extents(stages[-1]))
        for part, before in zip(reversed(self.all_parts), reversed(stages[:-1]), strict=True):
            place = part.from_memory(place, before)
        return place

    def is_default(self, extents: Sequence[int]) -> bool:
        for part in self.all_parts:
            if not part.is_default(extents):
                return False
            extents = part.memory_extents(extents)
        return True

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return (ArrayAttr(parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_attribute)),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<")
        printer.print_list(self.parts.data, printer.print_attribute)
        printer.print_string(">")


ENCODINGS = (OrderAttr, PanelAttr, EncodingAttr)
"""The encodings of the `graph` dialect."""


def encoding_of(type_: Attribute) -> EncodingPart | None:
    """How the elements of a tensor type lie; None for row-major order, for another type, and for what is no encoding."""
    if not isinstance(type_, TensorType):
        return None
    known = cast(TensorType[Attribute], type_)
    encoding = known.encoding
    if isinstance(encoding, NoneAttr) or (found := part_of(known, is_layout=True)) is None:
        return None
    return None if found.is_default(known.get_shape()) else found


def part_of(type_: TensorType[Attribute], is_layout: bool) -> EncodingPart | None:
    """The parts of a type's encoding that are about memory, as one; or the one that is not."""
    encoding = type_.encoding
    if not isinstance(encoding, EncodingAttr):
        return encoding if isinstance(encoding, EncodingPart) and is_layout == encoding.IS_LAYOUT else None
    return joined([part for part in encoding.all_parts if is_layout == part.IS_LAYOUT])


def joined(parts: Sequence[EncodingPart]) -> EncodingPart | None:
    """Parts as one encoding; None where there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return EncodingAttr(ArrayAttr(cast(Sequence[Attribute], parts)))


def has_default_encoding(type_: Attribute) -> bool:
    """Whether a tensor type has an encoding that says no more of memory than none would."""
    if not isinstance(type_, TensorType) or encoding_of(type_) is not None:  # pyright: ignore[reportUnknownArgumentType]
        return False
    return part_of(cast(TensorType[Attribute], type_), is_layout=True) is not None


def encoding_problem(type_: TensorType[Attribute]) -> str | None:
    """Why a tensor type cannot have the encoding that it has, as a sentence; None where it can, or has none."""
    encoding = type_.encoding
    if isinstance(encoding, NoneAttr):
        return None
    if not isinstance(encoding, EncodingPart):
        return (
            f"type '{type_}': expected an encoding such as #graph.order<1, 0>, got '{encoding}', which would be ignored; "
            "remove it, or register an attribute that implements EncodingPart"
        )
    found = encoding.problem(type_.get_shape())
    return None if found is None else f"type '{type_}': {found}"


def with_encoding(type_: TensorType[Attribute], encoding: EncodingPart | None) -> TensorType[Attribute]:
    """The type with its elements in other places, or in row-major order; what changes nothing is left out."""
    given = type_.encoding
    parts: list[EncodingPart] = [] if encoding is None or encoding.is_default(type_.get_shape()) else [encoding]
    if not isinstance(given, NoneAttr) and (kept := part_of(type_, is_layout=False)) is not None:
        parts = [kept, *(part for found in parts for part in parts_of(found))]
    if (found := joined(parts)) is None:
        return TensorType(type_.element_type, type_.get_shape())
    return TensorType(type_.element_type, type_.get_shape(), cast(Attribute, found))


def parts_of(encoding: EncodingPart) -> tuple[EncodingPart, ...]:
    """The parts of an encoding, which may be the only one."""
    return encoding.all_parts if isinstance(encoding, EncodingAttr) else (encoding,)
