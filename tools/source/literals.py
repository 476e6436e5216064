"""Reads numbers, and attributes that are written as such: each spelling once where programs repeat it."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    BytesAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    Float80Type,
    Float128Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    RankedStructure,
    TensorType,
)
from xdsl.ir import Attribute
from xdsl.irdl import AttrConstraint, base
from xdsl.parser import AttrParser, Parser
from xdsl.utils.mlir_lexer import MLIRTokenKind

_SPLAT = re.compile(r"<[ \t\n]*(?:-?[0-9][\w.]*(?:(?<=[eE])[+-][0-9]+)?|true|false)[ \t\n]*>")
_SMALL_ATTRIBUTE = re.compile(
    r"array<i[0-9]{1,2}(?:: [0-9, -]{1,100})?>|"
    r"dense<-?[0-9][\w.]{,30}(?:(?<=[eE])[+-][0-9]+)?> : tensor<[0-9x]{,4}[a-z][a-z0-9]*>"
)
"""Attributes that programs repeat, of at most 999 elements."""
_MOST_ATTRIBUTES = 10_000
_LARGEST_CONSTANT = 1 << 29
"""Bytes."""
_UNREADABLE = (Float80Type, Float128Type)
"""Types of floats whose numbers xDSL neither packs nor prints."""
_ATTRIBUTES: dict[str, Attribute] = {}
"""By spelling, as the types."""


@cache
def _literal_types() -> AttrConstraint[RankedStructure[IntegerType | IndexType | AnyFloat | ComplexType]]:
    """What a dense literal may be of: xDSL makes this anew for each, which takes longer than to read the literal."""
    return base(RankedStructure[IntegerType | IndexType | AnyFloat | ComplexType])


class LiteralParser(Parser):
    """xDSL's parser for numbers and constants: it accepts the same, but for what cannot be kept, in less time."""

    def parse_optional_attribute(self) -> Attribute | None:
        start = self._current_token.span.start
        match = _SMALL_ATTRIBUTE.match(self.lexer.input.content, start)
        if match is None or self._current_token.kind is not MLIRTokenKind.BARE_IDENT:
            return super().parse_optional_attribute()
        spelling = match.group()
        known = _ATTRIBUTES.get(spelling)
        if known is not None:
            self._resume_from(match.end())
            return known
        known = super().parse_optional_attribute()
        if known is not None and self._current_token.span.start >= match.end():
            if len(_ATTRIBUTES) >= _MOST_ATTRIBUTES:
                _ATTRIBUTES.clear()
            _ATTRIBUTES[spelling] = known
        return known

    def _parse_dense_literal_type(self) -> RankedStructure[IntegerType | IndexType | AnyFloat | ComplexType]:
        type_ = self.expect(self.parse_optional_type, "Dense attribute must be typed!")
        if not _literal_types().verifies(type_):
            self.raise_error("Expected memref, vector or tensor type of integer, index, float, or complex type")
        if DYNAMIC_INDEX in type_.get_shape():
            self.raise_error("Dense literal attribute should have a static shape.")
        return type_

    def parse_optional_builtin_int_or_float_attr(self) -> IntegerAttr | FloatAttr | None:
        found = super().parse_optional_builtin_int_or_float_attr()
        if isinstance(found, FloatAttr) and isinstance(found.type, _UNREADABLE):
            self.raise_error(
                f"a number of '{found.type}' cannot be kept; expected f64 or narrower", max(self.pos - 1, 0)
            )
        return found

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        """As xDSL does; of one number for all elements, bytes are repeated, and not a list of Python's numbers."""
        if type is not None or not _SPLAT.match(self.lexer.input.content, self._current_token.span.start):
            return super().parse_dense_int_or_fp_elements_attr(type)
        self.parse_punctuation("<")
        element = self._parse_tensor_literal_element()
        self.parse_punctuation(">")
        self.parse_punctuation(":")
        dense = cast("TensorType[AnyFloat]", self._parse_dense_literal_type())
        count = prod(dense.get_shape())
        if count * dense.element_type.compile_time_size > _LARGEST_CONSTANT:
            message = f"a constant of {count} elements is too large to be kept; graph.full makes one from nothing"
            self.raise_error(message, position_of(self, self.lexer.input.content))
        single = TensorType(dense.element_type, [1])
        value = cast(float, element.to_type(self, dense.element_type))
        data = DenseIntOrFPElementsAttr.from_list(single, [value]).data.data
        return DenseIntOrFPElementsAttr(dense, BytesAttr(data * count))

    def _parse_tensor_literal_element(self) -> Parser._TensorLiteralElement:
        is_hexadecimal = self._current_token.text[:2] in ("0x", "0X")
        element = super()._parse_tensor_literal_element()
        return _Hexadecimal(element.is_negative, element.value, element.span) if is_hexadecimal else element


class _Hexadecimal(Parser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """
    An element of a dense literal in hexadecimal: among floats the bits of one, as the printer writes infinities, NaN and
    what decimals would not give back. xDSL reads the number that the digits spell instead.
    """

    def to_type(
        self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType
    ) -> float | int | tuple[float, float] | tuple[int, int]:
        if not isinstance(type, AnyFloat) or not isinstance(self.value, int):
            return super().to_type(parser, type)
        if self.value >> 8 * type.compile_time_size:
            parser.raise_error(f"the bits do not fit '{type}'", self.span.start, self.span.end)
        return next(iter(type.unpack(self.value.to_bytes(type.compile_time_size, "little"), 1)))


def position_of(parser: Parser | None, text: str) -> int:
    """Where the parser stands: behind the last token that it took."""
    return 0 if parser is None else max(len(text[: parser.pos].rstrip()) - 1, 0)
