"""C functions that are written once for several types.

A function whose comment names several types is a template, written for the first of them:

    /* fo_cosh_{f32|f64}: 1.6 ULP; h + 1 / (4 h) with h = exp(|x|) / 2. */
    FO_FN float fo_cosh_f32(float x) {
      FO_KEPT float high = {90.0f|711.0};
      ...

For each type, `{90.0f|711.0}` is the alternative of its number and `{LOG2_E}` a row of `_ROWS`; then what names the first type
names this one: `_f32`, and for f64 also `float`, `__builtin_fabsf` and `1.0f`. A comment that names two lists of types,
`fo_cast_{f32|f64}_{i8|i16|u8|u16}`, means every pair of them; the length of a list of alternatives says whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

_FUNCTION = re.compile(r"^/\* (fo_[\w{}|]+):.*?^}\n", re.MULTILINE | re.DOTALL)
"""A function: its comment, and its definition, which ends at the first brace in column 0."""
_ELEMENTS = {
    **dict.fromkeys(("i1", "ui8", "f8E4M3FN", "f8E5M2"), ("unsigned char", "8")),
    "i8": ("signed char", "8"),
    "i16": ("short", "16"),
    **dict.fromkeys(("ui16", "f16", "bf16"), ("unsigned short", "16")),
    "i32": ("int", "32"),
    "ui32": ("unsigned int", "32"),
    "f32": ("float", "32"),
    "i64": ("long", "64"),
    "ui64": ("unsigned long", "64"),
    "f64": ("double", "64"),
}
"""By element type: the C type of a buffer's element, and its bits."""
_ROWS = {
    "ELEMENT": tuple(_ELEMENTS),
    "ELEMENT_C": tuple(c for c, _ in _ELEMENTS.values()),
    "ELEMENT_BITS": tuple(bits for _, bits in _ELEMENTS.values()),
    # Of f32 and f64: a float's parts, and constants.
    "FRACTION_BITS": ("23", "52"),
    "EXPONENT": ("0xff800000u", "0xfff0000000000000u"),
    "SHIFTER": ("0x1.8p23f", "0x1.8p52"),  # x + SHIFTER has no bits for a fraction: x is rounded to an integer
    "LOG2_E": ("0x1.715476p+0f", "0x1.71547652b82fep+0"),
    "LOG_2": ("0x1.62e43p-1f", "0x1.62e42fefa39efp-1"),
    # log(2) as a sum; the upper part has so few digits that its products with exponents are exact.
    "LOG_2_HIGH": ("0x1.62e4p-1f", "0x1.62e42fefa3p-1"),
    "LOG_2_LOW": ("0x1.7f7d1cp-20f", "0x1.3de6af278ece6p-42"),
    "HALF_PI": ("0x1.921fb6p+0f", "0x1.921fb54442d18p+0"),
}
"""What templates call by name: an alternative for each type."""

_LIST = re.compile(r"\{([A-Z][A-Z0-9_]*|[^{}\n]*\|[^{}\n]*)\}")
_SINGLE = re.compile(r"\bfloat\b|(__builtin_\w+?)f(?=\()|\b(0x[\da-f]*\.?[\da-f]*p[+-]?\d+|\d+\.\d*)f\b")
"""What is of f32 besides names: its C type, builtins, and literals."""


def functions_in(text: str) -> Iterator[tuple[str, str]]:
    """Name, and text with its comment, of the functions in C text; of a template one for each of its types.

    Raises ValueError for a list of alternatives that fits none, or several, of the lists of types."""
    for match in _FUNCTION.finditer(text):
        if "{" in match[1]:
            yield from _instances(match[1], match[0])
        else:
            yield match[1], match[0]


def _instances(name: str, template: str) -> Iterator[tuple[str, str]]:
    lists = [_alternatives(match[1]) for match in _LIST.finditer(name)]
    lengths = [len(types) for types in lists]
    for positions in product(*map(range, lengths)):

        def pick(match: re.Match[str], positions: tuple[int, ...] = positions) -> str:
            alternatives = _alternatives(match[1])
            if lengths.count(len(alternatives)) != 1:
                raise ValueError(
                    f"{name}: {match[0]} has {len(alternatives)} alternatives, the lists of types {lengths}"
                )
            return alternatives[positions[lengths.index(len(alternatives))]]

        text = _LIST.sub(pick, template)
        for types, position in zip(lists, positions, strict=True):
            text = _renamed(text, types[0], types[position])
        yield _LIST.sub(pick, name), text


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if "|" in text else _ROWS[text]


def _renamed(text: str, first: str, other: str) -> str:
    """A text on one type as one on another."""
    if other == first:
        return text
    if (first, other) == ("f32", "f64"):
        text = _SINGLE.sub(lambda match: match[1] or match[2] or "double", text)
    return re.sub(rf"_{first}(?![a-zA-Z0-9])", f"_{other}", text)
