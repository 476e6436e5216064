"""Sizes in types: the part of an encoding that says what the `?` of a tensor are, and the text of sizes.

```mlir
tensor<?x256xf32, #graph.shape<past{least = 0} + seq{most = 512}, 256>>
```
A size is written as in affine maps (`+`, `-`, `*`, `floordiv`, `max(a, b)`, `min(a, b)`). What is known of a symbol stands behind
its name, wherever that is: a type means the same in any function, and nothing proven of it depends on where it was met.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, NoneAttr, TensorType
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.types.encodings import EncodingPart, Extents, part_of, with_encoding
from fuse_opt.dialects.types.extents import is_decided, largest, smallest, symbols
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.dialects.types.size import Extent, Size, symbol

FACTS = ("least", "most", "multiple", "typical")
"""What may be said of a symbol."""


@irdl_attr_definition
class SizeAttr(Data[Extent]):
    """`#graph.size<4*batch*seq>`: a size, or a number."""

    name = "graph.size"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Extent:
        with parser.in_angle_brackets():
            return parse_size(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


@irdl_attr_definition
class ShapeAttr(ParametrizedAttribute, EncodingPart):
    """`#graph.shape<seq, 256>`: the extents of a tensor, one for each axis, of which one or more is no number."""

    name = "graph.shape"
    PLACE = 0
    IS_LAYOUT = False
    extents: ArrayAttr[SizeAttr]

    @staticmethod
    def of(extents: Sequence[Extent]) -> ShapeAttr:
        return ShapeAttr(ArrayAttr(SizeAttr(extent) for extent in extents))

    @property
    def sizes(self) -> tuple[Extent, ...]:
        """The extents."""
        known = vars(self)  # of an attribute, which never changes and is asked again and again
        if (found := known.get("_sizes")) is None:
            found = known["_sizes"] = tuple([extent.data for extent in self.extents.data])
        return found

    def verify(self) -> None:
        if not any(isinstance(extent, Size) for extent in self.sizes):
            raise VerifyException(
                f"'#{self.name}': expected a size that is no number; leave it out of a type without '?'"
            )
        ranges: dict[str, str] = {}
        for found in symbols(self.sizes):
            if ranges.setdefault(found.name, found.text) != found.text:
                raise VerifyException(f"'#{self.name}': expected one range of symbol '{found.name}', got {self}")
        for extent in self.sizes:
            if not is_decided(lambda extent=extent: extent >= 0):
                raise VerifyException(f"'#{self.name}': expected sizes that are never negative, got '{extent}'")

    def problem(self, extents: Sequence[int]) -> str | None:
        if len(extents) != len(self.sizes):
            return f"expected sizes of {len(extents)} axes, got {len(self.sizes)}"
        for axis, (given, size) in enumerate(zip(extents, self.sizes, strict=True)):
            if given != (DYNAMIC_INDEX if isinstance(size, Size) else size) and given != size:
                known = "?" if given == DYNAMIC_INDEX else str(given)
                return f"expected '{known}' as the extent of axis {axis}, as the type has it, got '{size}'"
        return None

    def memory_extents(self, extents: Sequence[int]) -> Extents:
        return tuple(extents)

    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        return index

    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        return place

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        sizes = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, lambda: SizeAttr(parse_size(parser)))
        return (ArrayAttr(sizes),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string("<" + ", ".join(map(str, self.sizes)) + ">")


def extents_of(type_: TensorType[Attribute]) -> tuple[Extent, ...]:
    """The extents of a tensor type: numbers, sizes where it has them, and DYNAMIC_INDEX for any other `?`."""
    encoding = type_.encoding
    if type(encoding) is ShapeAttr:  # a class of xDSL is an abstract one, which isinstance asks long
        return encoding.sizes
    if isinstance(encoding, NoneAttr):
        return tuple([extent.data for extent in type_.shape.data])
    found = part_of(type_, is_layout=False)
    return found.sizes if isinstance(found, ShapeAttr) else tuple(type_.get_shape())


def tensor_type(element: Attribute, extents: Sequence[Extent]) -> TensorType[Attribute]:
    """The type of tensors in row-major order; raises VerifyException for sizes that may be negative."""
    if not any(isinstance(extent, Size) for extent in extents):
        return _of_numbers(element, tuple(cast(Sequence[int], extents)))
    return TensorType(element, [n if isinstance(n, int) else DYNAMIC_INDEX for n in extents], ShapeAttr.of(extents))


@lru_cache(maxsize=4096)
def _of_numbers(element: Attribute, extents: tuple[int, ...]) -> TensorType[Attribute]:
    """Types are costly to make, and what is remembered of them by their ids is found again."""
    return TensorType(element, extents)


def with_extents(type_: TensorType[Attribute], extents: Sequence[Extent]) -> TensorType[Attribute]:
    """The type with other extents, and its elements where they lie; raises VerifyException for sizes that may be negative."""
    layout = None if isinstance(type_.encoding, NoneAttr) else part_of(type_, is_layout=True)
    plain = tensor_type(type_.element_type, extents)
    return plain if layout is None else with_encoding(plain, layout)


def parse_size(parser: AttrParser) -> Extent:
    """A sum of products; raises ParseError."""
    total: Extent = -_product(parser) if parser.parse_optional_punctuation("-") else _product(parser)
    while True:
        if parser.parse_optional_punctuation("+"):
            total = total + _product(parser)
        elif parser.parse_optional_punctuation("-"):
            total = total - _product(parser)
        else:
            return total


def _product(parser: AttrParser) -> Extent:
    total = _factor(parser)
    while True:
        if parser.parse_optional_punctuation("*"):
            total = total * _factor(parser)
        elif parser.parse_optional_keyword("floordiv"):
            divisor = parser.parse_integer(allow_boolean=False, allow_negative=False)
            if divisor == 0:
                parser.raise_error("expected a divisor of 1 or more")
            total = total // divisor
        else:
            return total


def _factor(parser: AttrParser) -> Extent:
    if parser.parse_optional_punctuation("("):
        inner = parse_size(parser)
        parser.parse_punctuation(")")
        return inner
    if (number := parser.parse_optional_integer(allow_boolean=False, allow_negative=False)) is not None:
        return number
    for word, join in (("max", largest), ("min", smallest)):
        if parser.parse_optional_keyword(word):
            first, second = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_size(parser))
            return join(first, second)
    name = parser.parse_optional_str_literal() or parser.parse_optional_identifier()
    if name is None:
        parser.raise_error("expected a size: a number, a symbol, 'max', 'min' or '('")
    return _symbol(parser, name)


def _symbol(parser: AttrParser, name: str) -> Size:
    start = parser.pos
    facts: dict[str, int] = {}

    def fact() -> None:
        key = parser.parse_identifier()
        if key not in FACTS or key in facts:
            parser.raise_error(f"symbol '{name}': expected each of {', '.join(FACTS)} at most once, got '{key}'")
        parser.parse_punctuation("=")
        facts[key] = parser.parse_integer(allow_boolean=False)

    parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, fact)
    try:
        return symbol(name, **facts)
    except ValueError as error:
        parser.raise_error(str(error), start)
