"""The tokens of MLIR text, found with one pattern: xDSL's lexer, several times faster and linear on broken input."""

from __future__ import annotations

import re

from xdsl.utils.lexer import Input, Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

_PUNCTUATION = {kind.value: kind for kind in MLIRTokenKind if isinstance(kind.value, str)}
_PREFIXED = {
    "%": MLIRTokenKind.PERCENT_IDENT,
    "#": MLIRTokenKind.HASH_IDENT,
    "^": MLIRTokenKind.CARET_IDENT,
    "!": MLIRTokenKind.EXCLAMATION_IDENT,
}
_TOKEN = re.compile(
    r"""
    (?: [ \t\n\r\f\v]++ | //[^\n]*+ )*+         # white space and comments
    (?: ([a-zA-Z_][a-zA-Z0-9_$.]*+)             # 1: bare identifier
    |   ([:,()}\[\]<>=+/*?|] | ->?+ | \{(?!-\#))  # 2: punctuation that needs no look-ahead, and `->`
    |   ([%\#^!])(?:[0-9]++ | [a-zA-Z$._-][a-zA-Z0-9$._-]*+)(?<!\#-)  # 3: identifier with a prefix
    |   ([0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?+)  # 4: float
    |   (0x[0-9a-fA-F]++ | [0-9]++)             # 5: integer
    )
    """,
    re.VERBOSE | re.ASCII,
)


class FastLexer(MLIRLexer):
    """
    Gives the tokens that xDSL's lexer gives; strings, symbols and whatever is wrong are left to that one. A string with
    escapes that spell UTF-8 is text, as its printer writes text beyond ASCII; only what is no text at all is bytes.
    """

    # The original backtracks: an unterminated string takes exponential time.
    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')
    _whitespace_regex = re.compile(r"(?:[ \t\n\r\f\v]++|//[^\n]*+)*+")

    def _lex_string_literal(self, start_pos: int) -> MLIRToken:
        token = super()._lex_string_literal(start_pos)
        if token.kind is MLIRTokenKind.BYTES_LIT and _is_text(StringLiteral.from_span(token.span).bytes_contents):
            return Token(MLIRTokenKind.STRING_LIT, token.span)
        return token

    def lex(self) -> MLIRToken:
        source: Input[str] = self.input
        match = _TOKEN.match(source.content, self.pos)
        if match is None:
            return super().lex()
        group = match.lastindex
        match group:
            case 1:
                kind = MLIRTokenKind.BARE_IDENT
            case 2:
                kind = _PUNCTUATION[match[2]]
            case 3:
                kind = _PREFIXED[match[3]]
            case 4:
                kind = MLIRTokenKind.FLOAT_LIT
            case _:
                group, kind = 5, MLIRTokenKind.INTEGER_LIT
        start, self.pos = match.start(group), match.end()
        return Token(kind, Span(start, self.pos, source))


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
