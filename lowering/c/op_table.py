"""How C-family languages spell one op: rows of data, and the rows that C and CUDA share.

A table is keyed by the op's name, with its predicate, dimension or mode where it has one (`arith.cmpf olt`,
`gpu.thread_id x`), then by a type: of the result, of the operands for comparisons, `source>target` for casts. `*`
stands for any type, and for either side of a cast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Level(IntEnum):
    """How tightly an expression binds; operands that bind less than a row asks for get parentheses."""

    TERNARY = 0
    BITS = 1
    LOOSE = 2
    ADD = 3
    MUL = 4
    UNARY = 5
    ATOM = 6


_PLACE = re.compile(r"\{(\d)\}")


@dataclass(frozen=True, slots=True)
class Row:
    """One spelling. In `text`, {0} {1} {2} are operands; {T} {U} {t} the result's type, its unsigned twin and its name in
    the IR; {S} {V} {s} the same of the first operand; {f} is `f` for f32; {mask} is the result's bits less one."""

    text: str
    level: Level
    operands: tuple[Level, ...]
    inline: bool = False
    """Cheap: may be written inside the one expression that uses it."""
    repeated: frozenset[int] = field(init=False)
    """Operands that occur twice, and so must be names or literals."""

    def __post_init__(self) -> None:
        places = [int(place) for place in _PLACE.findall(self.text)]
        object.__setattr__(self, "repeated", frozenset(place for place in places if places.count(place) > 1))


Rows = Mapping[str, Mapping[str, Row]]

FLOATS = ("f32", "f64")
NARROW = ("i8", "i16")
WORDS = ("i32", "i64")
INTEGERS = (*NARROW, *WORDS, "index")


def infix(symbol: str, level: Level, *, inline: bool = False) -> Row:
    """A left-associative operator."""
    return Row(f"{{0}} {symbol} {{1}}", level, (level, Level(level + 1)), inline)


def loose(text: str, *, inline: bool = False) -> Row:
    """An operator among others: parenthesised in every larger expression, as are its operands."""
    return Row(text, Level.LOOSE, (Level.UNARY,) * 3, inline)


def bits(symbol: str) -> Row:
    """An operator on bits: clang warns of one without parentheses in front of `?`."""
    return Row(f"{{0}} {symbol} {{1}}", Level.BITS, (Level.UNARY,) * 3, inline=True)


def compare(text: str) -> Row:
    return Row(text, Level.LOOSE, (Level.ADD,) * 2, inline=True)


def prefix(text: str, *, inline: bool = False) -> Row:
    """A cast or sign in front of operands that bind as tightly."""
    return Row(text, Level.UNARY, (Level.UNARY,) * 3, inline)


def call(text: str) -> Row:
    return Row(text, Level.ATOM, (Level.TERNARY,) * 3)


def choose(text: str, *, inline: bool = False) -> Row:
    return Row(text, Level.TERNARY, (Level.LOOSE, Level.BITS, Level.BITS), inline)


def over(types: Iterable[str], row: Row) -> dict[str, Row]:
    return dict.fromkeys(types, row)


def arithmetic_rows(wraps: bool) -> dict[str, dict[str, Row]]:
    """Integer addition and the like; `wraps` says that signed overflow is defined, else it is done unsigned."""
    rows: dict[str, dict[str, Row]] = {}
    for name, symbol, level, on_bits in (
        ("addi", "+", Level.ADD, "^"),
        ("subi", "-", Level.ADD, "^"),
        ("muli", "*", Level.MUL, "&"),
    ):
        plain = infix(symbol, level, inline=True)
        narrow = Row(f"({{T}})({plain.text})", Level.UNARY, plain.operands, inline=True)
        unsigned = prefix(f"({{T}})(({{U}}){{0}} {symbol} ({{U}}){{1}})", inline=True)
        rows[f"arith.{name}"] = {
            "index": plain,
            **over(WORDS, plain if wraps else unsigned),
            **over(NARROW, narrow),
            "i1": bits(on_bits),
        }
    for name, symbol in (("div", "/"), ("rem", "%")):
        plain = infix(symbol, Level.MUL, inline=True)
        narrow = Row(f"({{T}})({plain.text})", Level.UNARY, plain.operands, inline=True)
        rows[f"arith.{name}si"] = {**over((*WORDS, "index"), plain), **over(NARROW, narrow)}
        unsigned = prefix(f"({{T}})(({{U}}){{0}} {symbol} ({{U}}){{1}})", inline=True)
        rows[f"arith.{name}ui"] = over(INTEGERS, unsigned)
        rows[f"arith.{name}ui"]["index"] = prefix(f"({{T}})(({{U}}){{0}} {symbol} {{1}})", inline=True)
    rounded = "({{T}})({{0}} / {{1}} {} ({{0}} % {{1}} != 0 && ({{0}} < 0) {} ({{1}} < 0)))"
    rows["arith.floordivsi"] = over(INTEGERS, prefix(rounded.format("-", "!=")))
    rows["arith.ceildivsi"] = over(INTEGERS, prefix(rounded.format("+", "==")))
    rows["arith.ceildivui"] = over(INTEGERS, prefix("({T})(({U}){0} / ({U}){1} + (({U}){0} % ({U}){1} != 0))"))
    return rows


def bit_rows() -> dict[str, dict[str, Row]]:
    """Bitwise ops, shifts (amounts are masked: too large ones are poison in the IR, undefined in C), extrema."""
    rows: dict[str, dict[str, Row]] = {}
    for name, symbol in (("andi", "&"), ("ori", "|"), ("xori", "^")):
        rows[f"arith.{name}"] = over((*INTEGERS, "i1"), bits(symbol))
    for name, text in (
        ("shli", "({{T}})(({{U}}){{0}} << {})"),
        ("shrui", "({{T}})(({{U}}){{0}} >> {})"),
        ("shrsi", "({{T}})({{0}} >> {})"),
    ):
        rows[f"arith.{name}"] = over(INTEGERS, prefix(text.format("({1} & {mask})"), inline=True))
        rows[f"arith.{name} constant"] = over(INTEGERS, prefix(text.format("{1}"), inline=True))
    for name, symbol, on_bits in (("max", ">", "|"), ("min", "<", "&")):
        signed = f"{{0}} {symbol} {{1}} ? {{0}} : {{1}}"
        unsigned = f"({{U}}){{0}} {symbol} ({{U}}){{1}} ? {{0}} : {{1}}"
        rows[f"arith.{name}si"] = over(INTEGERS, choose(signed))
        rows[f"arith.{name}ui"] = {
            **over(INTEGERS, choose(unsigned)),
            "i1": bits(on_bits),
        }
    return rows


def comparison_rows() -> dict[str, dict[str, Row]]:
    """Every predicate; an ordered comparison is false and an unordered one true where an operand is NaN."""
    rows: dict[str, dict[str, Row]] = {"arith.select": {"*": choose("{0} ? {1} : {2}", inline=True)}}
    for predicate, symbol in (("eq", "=="), ("ne", "!=")):
        rows[f"arith.cmpi {predicate}"] = over((*INTEGERS, "i1"), compare(f"{{0}} {symbol} {{1}}"))
    for predicate, symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        plain = compare(f"{{0}} {symbol} {{1}}")
        unsigned = loose(f"({{V}}){{0}} {symbol} ({{V}}){{1}}", inline=True)
        rows[f"arith.cmpi s{predicate}"] = over(INTEGERS, plain)
        rows[f"arith.cmpi u{predicate}"] = {**over(INTEGERS, unsigned), "i1": plain}
        rows[f"arith.cmpf o{predicate}"] = over(FLOATS, plain)
    for predicate, text in {
        "oeq": "{0} == {1}",
        "one": "{0} < {1} || {0} > {1}",
        "ord": "{0} == {0} && {1} == {1}",
        "ueq": "!({0} < {1} || {0} > {1})",
        "ugt": "!({0} <= {1})",
        "uge": "!({0} < {1})",
        "ult": "!({0} >= {1})",
        "ule": "!({0} > {1})",
        "une": "{0} != {1}",
        "uno": "{0} != {0} || {1} != {1}",
        "false": "0 && {0} == {1}",  # names its operands, so that compilers see them used
        "true": "1 || {0} == {1}",
    }.items():
        rows[f"arith.cmpf {predicate}"] = over(FLOATS, compare(text))
    return rows


def _from_bool(sign: str) -> dict[str, Row]:
    """gcc vectorises this choice, but not the cast of a _Bool to a float."""
    texts = {"i1>f32": f"{{0}} ? {sign}1.0f : 0.0f", "i1>f64": f"{{0}} ? {sign}1.0 : 0.0"}
    return {cast: choose(text) for cast, text in texts.items()}


def cast_rows() -> dict[str, dict[str, Row]]:
    """Casts between integers, and between them and f32/f64. An i1 is 0 or 1 unsigned and 0 or -1 signed."""
    plain = prefix("({T}){0}", inline=True)
    negated = prefix("({T})-{0}", inline=True)
    zero_extended = prefix("({T})({V}){0}", inline=True)
    lowest_bit = loose("{0} & 1", inline=True)
    reinterpreted = {f"i{n}>ui{n}": plain for n in (8, 16, 32, 64)} | {f"ui{n}>i{n}": plain for n in (8, 16, 32, 64)}
    to_float = {f"{i}>{f}" for i in (*NARROW, *WORDS) for f in FLOATS}
    saturated = call("fo_cast_{s}_{t}({0})")
    return {
        "arith.extsi": {"i1>*": negated, "*": plain},
        "arith.extui": {"i1>*": plain, "*": zero_extended},
        "arith.trunci": {"*>i1": lowest_bit, "*": plain},
        "arith.index_cast": {"*>i1": lowest_bit, "i1>*": negated, "*": plain},
        "builtin.unrealized_conversion_cast": reinterpreted,
        "arith.sitofp": {**over(to_float, prefix("({T}){0}")), **_from_bool("-")},
        "arith.uitofp": {**over(to_float, prefix("({T})({V}){0}")), **_from_bool("")},
        "arith.fptosi": {f"{f}>{i}": saturated for f in FLOATS for i in (*NARROW, *WORDS)},
        "arith.fptoui": {
            f"{f}>{to}": prefix(f"({{T}})fo_cast_{{s}}_{by}({{0}})")
            for f in FLOATS
            for to, by in (("i8", "u8"), ("i16", "i32"), ("i32", "i64"))
        },
        "arith.extf": {"f32>f64": prefix("({T}){0}")},
        "arith.truncf": {"f64>f32": prefix("({T}){0}")},
    }


def float_rows() -> dict[str, dict[str, Row]]:
    """Arithmetic of f32 and f64: narrower types are computed in f32, as the IR must say."""
    first_number = "{{0}} {} {{1}} || {{1}} != {{1}} ? {{0}} : {{1}}"
    return {
        "arith.addf": over(FLOATS, infix("+", Level.ADD)),
        "arith.subf": over(FLOATS, infix("-", Level.ADD)),
        "arith.mulf": over(FLOATS, infix("*", Level.MUL)),
        "arith.divf": over(FLOATS, infix("/", Level.MUL)),
        "arith.negf": over(FLOATS, Row("-{0}", Level.UNARY, (Level.ATOM,))),
        "arith.maximumf": over(FLOATS, call("fo_max_{t}({0}, {1})")),
        "arith.minimumf": over(FLOATS, call("fo_min_{t}({0}, {1})")),
        "arith.maximumf bound": over(FLOATS, choose("{1} > {0} ? {1} : {0}")),
        "arith.minimumf bound": over(FLOATS, choose("{1} < {0} ? {1} : {0}")),
        "arith.maxnumf": over(FLOATS, choose(first_number.format(">"))),
        "arith.minnumf": over(FLOATS, choose(first_number.format("<"))),
    }


def shared_rows(wraps: bool) -> dict[str, dict[str, Row]]:
    """All of the above."""
    return {**arithmetic_rows(wraps), **bit_rows(), **comparison_rows(), **cast_rows(), **float_rows()}
