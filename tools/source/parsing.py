"""Reads MLIR text into a module: quickly, with a source location on every op, and with one kind of error for bad input."""

from __future__ import annotations

import re
from bisect import bisect_right
from codecs import BOM_UTF8
from difflib import get_close_matches

from xdsl.context import Context
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    FileLineColLoc,
    IntAttr,
    IntegerType,
    LocationAttr,
    ModuleOp,
    ShapedType,
    StringAttr,
)
from xdsl.ir import AttributeInvT, Operation, SSAValue, TypeAttribute
from xdsl.parser import ParserState, UnresolvedOperand
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.lexing import FastLexer
from fuse_opt.tools.source.literals import LiteralParser, position_of
from fuse_opt.tools.source.scopes import Mark, Scopes

_SHAPED_TYPE = re.compile(r"(?:tensor|memref|vector)<[0-9?x]*[a-z][a-z0-9]*>")
_LARGEST_EXTENT = 2**63 - 1
_WIDEST_INTEGER = 64
_UNDEFINED = "values used but not defined"
_IS_SYNTAX = re.compile(r"[^.]*expected|could not parse|in block definition", re.IGNORECASE)
"""Messages about the next token, as opposed to what was read before it."""
_CLEARER = {
    "Could not parse entire input!": "expected an operation",
    "in block definition": "expected an operation, a block label or '}'",
    "Expected suffix identifier after {first_char}": "expected a name or a number after the sigil",
    "End of file reached before closing string literal.": "the string is not closed, or has an escape that does not exist",
}
"""xDSL's messages that say too little, and what stands in their place."""


def decode(data: bytes, name: str) -> str:
    """The text of a file, without a byte order mark. Raises InputError when it is not UTF-8."""
    data = data.removeprefix(BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        col = error.start - data.rfind(b"\n", 0, error.start)
        message = f"the input is not text: byte 0x{data[error.start]:02x} is not UTF-8 here"
        raise InputError(name, line, col, message) from None


def parse_module(text: str, name: str, ctx: Context, first_line: int = 1) -> ModuleOp:
    """
    The module that `text` describes; a list of ops stands for a module of them, and no op at all for an empty one.

    `name` and `first_line` say where the text comes from; every op without a location of its own gets its place
    there. Raises InputError, whatever is wrong with the text.
    """
    lines = _Lines(text, name, first_line)
    parser: LocatingParser | None = None
    try:
        parser = LocatingParser(ctx, text, lines)
        return parser.parse_module()
    except ParseError as error:
        raise _explain(error, parser, lines, text) from error
    except RecursionError as error:
        raise lines.error(position_of(parser, text), "the input is nested too deeply") from error
    except Exception as error:  # xDSL's parser and verifiers of attributes raise all sorts on bad input
        is_unknown = isinstance(error, NotImplementedError) and not str(error)
        message = "xDSL knows no such value" if is_unknown else str(error) or f"invalid input ({type(error).__name__})"
        raise lines.error(position_of(parser, text), message) from error


def _explain(error: ParseError, parser: LocatingParser | None, lines: _Lines, text: str) -> InputError:
    position = error.span.start
    if parser is not None and error.msg.startswith(_UNDEFINED):
        span = parser.first_undefined_use() or error.span
        return lines.error(span.start, f"value '{span.text}' is used but not defined here")
    if parser is not None and position == parser.pos and not _IS_SYNTAX.match(error.msg.strip()):
        position = position_of(parser, text)  # the fault is in what was just read
    return lines.error(position, _CLEARER.get(error.msg.strip(), error.msg))


class LocatingParser(LiteralParser):
    """xDSL's parser with memoised shaped types, cheap scopes, and source locations; it accepts the same language."""

    def __init__(self, ctx: Context, text: str, lines: _Lines) -> None:
        super().__init__(ctx, "", lines.name)
        self._parser_state = ParserState(FastLexer(Input(text, lines.name)))
        self._lines = lines
        self._scopes = Scopes()
        self._first_uses: dict[str, Span] = {}

    @property
    def ssa_values(self) -> dict[str, tuple[SSAValue, ...]]:
        """
        The names in scope. The parser copies this dictionary where a region begins and puts the copy back where it ends,
        which costs the square of the number of regions; a copy here is a mark that names are dropped back to.
        """
        return self._scopes

    @ssa_values.setter
    def ssa_values(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, value: dict[str, tuple[SSAValue, ...]]
    ) -> None:
        if isinstance(value, Mark):
            self._scopes.drop_to(value)

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        is_empty = self._current_token.kind is MLIRTokenKind.EOF
        module = ModuleOp([]) if is_empty else super().parse_module(allow_implicit_module)
        if module.location is UNKNOWN_LOC:
            module.location = self._lines.location(0)
        return module

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        op = super().parse_operation()
        if op.location is UNKNOWN_LOC:
            op.location = self._lines.location(start)
        return op

    def _get_op_by_name(self, name: str) -> type[Operation]:
        if (op_type := self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)) is not None:
            return op_type
        position = max(self.lexer.input.content.rfind(name, 0, self.pos), 0)
        self.raise_error(self._unknown_op(name), position, position + len(name))

    def _unknown_op(self, name: str) -> str:
        prefix, dot, _ = name.partition(".")
        dialect = self.ctx.get_optional_dialect(prefix) if dot else None
        if dialect is None:
            return f"unknown operation '{name}'" + (f": there is no dialect '{prefix}'" if dot else "")
        close = get_close_matches(name[:100], [op.name for op in dialect.operations], 1, 0.75)
        return f"unknown operation '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")

    def parse_optional_type(self) -> TypeAttribute | None:
        state = self._parser_state
        token = state.current_token
        if token.kind is not MLIRTokenKind.BARE_IDENT:
            return self._checked(super().parse_optional_type())
        match = _SHAPED_TYPE.match(self.lexer.input.content, token.span.start)
        if match is None:
            return self._checked(super().parse_optional_type())
        spelling = match.group()
        known = _TYPES.get(spelling)
        if known is None:
            known = self._checked(super().parse_optional_type())
            if known is not None and self._current_token.span.start >= match.end():
                _TYPES[spelling] = known
            return known
        self._resume_from(match.end())
        return known

    def _checked(self, type_: TypeAttribute | None) -> TypeAttribute | None:
        if type_ is not None and (problem := _excess(type_)) is not None:
            self.raise_error(problem, max(self.pos - 1, 0))
        return type_

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        name = operand.operand_name
        if name not in self._scopes:
            self._first_uses.setdefault(name, operand.span)
        return super().resolve_operand(operand, type)

    def first_undefined_use(self) -> Span | None:
        """Where the textually first of the values that are nowhere defined is used."""
        spans = [self._first_uses[name] for name in self.forward_ssa_references if name in self._first_uses]
        return min(spans, key=lambda span: span.start, default=None)


def _excess(type_: TypeAttribute) -> str | None:
    """What is too large about a type; None for all but a few."""
    if isinstance(type_, ShapedType) and max(type_.get_shape(), default=0) > _LARGEST_EXTENT:
        return f"an extent in '{type_}' does not fit 64 bits"
    if isinstance(type_, IntegerType) and (bits := type_.bitwidth) > _WIDEST_INTEGER:
        return f"'{type_}' is an integer type of {bits} bits; expected {_WIDEST_INTEGER} bits or fewer"
    return None


_TYPES: dict[str, TypeAttribute] = {}
"""By spelling; of builtin types only, which are the same in every context."""


class _Lines:
    """Places in a text as lines and columns."""

    def __init__(self, text: str, name: str, first_line: int) -> None:
        self.name = name
        self._first = first_line
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        # A file may be called what is no text; locations are.
        self._file = StringAttr(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))

    def location(self, position: int) -> LocationAttr:
        line, col = self._line_and_column(position)
        return FileLineColLoc(self._file, IntAttr(line), IntAttr(col))

    def error(self, position: int, message: str) -> InputError:
        return InputError(self.name, *self._line_and_column(position), message)

    def _line_and_column(self, position: int) -> tuple[int, int]:
        line = bisect_right(self._starts, position) - 1
        return line + self._first, position - self._starts[line] + 1
