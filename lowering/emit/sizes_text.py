"""The function of a program for any sizes that says what a call of some extents has: in C, so that Python computes nothing.

    int fuse_sizes(const int64_t *symbols, int64_t *numbers)

gives 0 and fills `numbers`, or gives 1 where the program is not for these extents: Python then says why, or compiles another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from textwrap import fill

import numpy as np

from fuse_opt.dialects.analysis.place_orders import Order, PlaceOrders
from fuse_opt.dialects.interfaces.symbols import NOTHING_STATED, Stated
from fuse_opt.dialects.types.extents import estimate, is_symbol, symbols
from fuse_opt.dialects.types.polynomial import Atom, Monomial
from fuse_opt.dialects.types.size import Extent, Extreme, Floor, Size
from fuse_opt.dialects.types.symbol import Symbol
from fuse_opt.lowering.emit.c_program import SizeTable
from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, Launch, Loop, Segment, SizesLayout

FUNCTION = "fuse_sizes"

_HEAD = """\
#include <stdint.h>
static inline int64_t fuse_times(int64_t a, int64_t b, int *bad) {
  int64_t found;
  *bad |= __builtin_mul_overflow(a, b, &found);
  return found;
}
static inline int64_t fuse_plus(int64_t a, int64_t b, int *bad) {
  int64_t found;
  *bad |= __builtin_add_overflow(a, b, &found);
  return found;
}
static inline int64_t fuse_floor(int64_t a, int64_t b) { return a / b - (a % b < 0); }
"""
_ORDER = """\
static void fuse_align(int64_t *bytes, long places, int64_t alignment, int *bad) {
  for (long k = 0; k < places; k++) bytes[k] = fuse_times(-fuse_floor(-bytes[k], alignment), alignment, bad);
}
/* Where places begin: one above another behind it. Gives the end of all. */
static int64_t fuse_order(const uint16_t *pairs, long count, const int64_t *bytes, long places, int64_t *begin, int *bad) {
  int64_t end = 0;
  for (long k = 0; k < places; k++) begin[k] = 0;
  for (long k = 0; k < count; k++) {
    int64_t above = fuse_plus(begin[pairs[2 * k]], bytes[pairs[2 * k]], bad);
    if (above > begin[pairs[2 * k + 1]]) begin[pairs[2 * k + 1]] = above;
  }
  for (long k = 0; k < places; k++) {
    int64_t last = fuse_plus(begin[k], bytes[k], bad);
    if (last > end) end = last;
  }
  return end;
}
"""
VALUE = -1
"""In the place of an axis: the argument's value is the symbol."""
_MOST_PLACES = 1 << 16


def sizes_layout(
    buffers: Sequence[Buffer],
    steps: Sequence[object],
    table: SizeTable,
    arena: Extent,
    orders: PlaceOrders | None,
    limits: Sequence[tuple[Size, int]],
    stated: Stated = NOTHING_STATED,
) -> tuple[SizesLayout, list[Extent]]:
    """Where a call's numbers are, and what they are."""
    fixed = [buffer for buffer in buffers if buffer.kind in ("argument", "result")]
    loops = [loop for step in steps if isinstance(step, Segment) for phase in step.phases for loop in phase]
    places = () if orders is None else orders.symbols()[: len(orders.places) + 1]  # with the end of all
    parts: list[Sequence[Extent]] = [
        table.sizes,
        [loop.tasks for loop in loops],
        [max((one.work for one in _cut(loop)), key=estimate, default=0) for loop in loops],
        [extent for buffer in fixed for extent in buffer.shape],
        [prod(b.shape) * np.dtype(NUMPY_NAMES[b.dtype]).itemsize for b in fixed],
        places,
        [arena],
    ]
    tasks, works, extents, nbytes, offsets, last, _ = accumulate(map(len, parts))
    bound = {name: (number, VALUE) for number, name in stated.of_values.items()}
    for name, place in _bound_names(buffers).items():
        bound.setdefault(name, place)
    known = () if orders is None else orders.names
    sizes = [*(extent for part in parts for extent in part), *(size for size, _ in limits), *_bounds(stated)]
    found = symbols([*sizes, *(() if orders is None else orders.places)])
    others = [one.name for one in found if one.name not in bound and one.name not in known]
    layout = SizesLayout(
        names=(*bound, *others),
        places=tuple(bound.values()),
        buffer=table.buffer,
        tasks=tasks,
        works=works,
        extents=extents,
        nbytes=nbytes,
        offsets=offsets,
        arena=last,
        grains=tuple(loop.grain for loop in loops),
        chunks=tuple(min((one.chunk for one in _cut(loop)), default=0) for loop in loops),
        offset_names=known[: len(places)],
    )
    return layout, [extent for part in parts for extent in part]


def _cut(loop: Loop) -> list[Launch]:
    """The launches whose tasks threads share."""
    return [] if loop.whole else [launch for bundle in loop.bundles for launch in bundle]


def _bounds(stated: Stated) -> list[Extent]:
    return [extent for each in stated.limits for extent in (each.limit.least, each.limit.most)]


def _bound_names(buffers: Sequence[Buffer]) -> dict[str, tuple[int, int]]:
    """The symbols that extents of arguments are, with the first such argument and its axis."""
    names: dict[str, tuple[int, int]] = {}
    for number, buffer in enumerate(buffer for buffer in buffers if buffer.kind == "argument"):
        for axis, extent in enumerate(buffer.shape):
            if (one := is_symbol(extent)) is not None:
                names.setdefault(one.name, (number, axis))
    return names


def sizes_text(
    layout: SizesLayout,
    numbers: Sequence[Extent],
    orders: PlaceOrders | None,
    limits: Sequence[tuple[Size, int]],
    stated: Stated = NOTHING_STATED,
) -> str | None:
    """The function; None for more places than it has room to number."""
    places = () if orders is None else orders.places
    if len(places) >= _MOST_PLACES:
        return None
    words = _Words({name: f"symbols[{k}]" for k, name in enumerate(layout.names)})
    lines = _checks(layout, [*numbers, *places, *(size for size, _ in limits), *_bounds(stated)], stated.equal)
    for each in stated.limits:
        least, most = each.limit.least, each.limit.most
        lines += [*words.lines(least), *words.lines(most)]
        lines.append(f"  if ({words.of(least)} > {words.of(most)}) return 1;\n")
    if orders is not None:
        lines += _arena(orders, words)
    for size, most in limits:
        lines += words.lines(size)
        lines.append(f"  if ({words.of(size)} > {most}) return 1;\n")
    known = [0 if isinstance(extent, Size) else extent for extent in numbers]
    if any(known):  # a compiler takes three times as long for a store of each
        words.tables.append(fill(f"static const int64_t fuse_known[] = {{{', '.join(map(str, known))}}};", 110) + "\n")
        lines.append("  __builtin_memcpy(numbers, fuse_known, sizeof fuse_known);\n")
    for number, extent in enumerate(numbers):
        if isinstance(extent, Size) or not any(known):
            lines += words.lines(extent)
            lines.append(f"  numbers[{number}] = {words.of(extent)};\n")
    head = f"{_HEAD}{_ORDER if orders else ''}{''.join(words.tables)}"
    body = "".join(lines)
    return (
        f"{head}int {FUNCTION}(const int64_t *symbols, int64_t *numbers) {{\n  int bad = 0;\n{body}  return bad;\n}}\n"
    )


def _checks(layout: SizesLayout, extents: Sequence[Extent], equal: Sequence[Sequence[str]]) -> list[str]:
    """What is not as symbols say."""
    found = {one.name: one for extent in extents if isinstance(extent, Size) for one in extent.symbols()}
    lines: list[str] = []
    for number, name in enumerate(layout.names):
        one, value = found[name], f"symbols[{number}]"
        rest = f" || {value} % {one.multiple}" if one.multiple > 1 else ""
        lines.append(f"  if ({value} < {one.least} || {value} > {one.most}{rest}) return 1; // {name!a}\n")
    for names in equal:
        first, *others = [name for name in names if name in layout.names] or [""]
        for other in others:
            a, b = layout.names.index(first), layout.names.index(other)
            lines.append(f"  if (symbols[{a}] != symbols[{b}]) return 1;\n")
    return lines


def _arena(orders: PlaceOrders, words: _Words) -> list[str]:
    """The offsets of places by the order with the smallest arena."""
    lines: list[str] = []
    count = len(orders.places)
    if not count:
        words.symbols[orders.names[0]] = "INT64_C(0)"
        return lines
    for place in orders.places:
        lines += words.lines(place)
    lines.append(f"  int64_t bytes[] = {{{', '.join(map(words.of, orders.places))}}};\n")
    lines.append(f"  fuse_align(bytes, {count}, {orders.alignment}, &bad);\n")
    lines.append(
        f"  int64_t begins[{len(orders.orders)}][{count}], arena = INT64_MAX, end;\n  const int64_t *begin = begins[0];\n"
    )
    for number, order in enumerate(orders.orders):
        words.tables.append(_pairs(number, order))
        lines.append(
            f"  end = fuse_order(fuse_pairs_{number}, {len(order)}, bytes, {count}, begins[{number}], &bad);\n"
        )
        lines.append(f"  if (end < arena) arena = end, begin = begins[{number}];\n")
    for number, name in enumerate(orders.names[:count]):
        words.symbols[name] = f"begin[{number}]"
    words.symbols[orders.names[count]] = "arena"
    return lines


def _pairs(number: int, order: Order) -> str:
    flat = ", ".join(str(place) for pair in order for place in pair) or "0"
    return f"static const uint16_t fuse_pairs_{number}[] = {{{flat}}};\n"


@dataclass
class _Words:
    """Expressions of sizes, each computed once."""

    symbols: dict[str, str]
    known: dict[Size, str] = field(default_factory=dict[Size, str])
    tables: list[str] = field(default_factory=list[str])

    def of(self, extent: Extent) -> str:
        return self.known[extent] if isinstance(extent, Size) else f"INT64_C({extent})"

    def lines(self, extent: Extent) -> list[str]:
        """Declarations of what is not known yet."""
        if not isinstance(extent, Size) or extent in self.known:
            return []
        lines: list[str] = []
        total = ""
        for monomial, coefficient in extent.terms.items():
            term = self._product(monomial, coefficient, lines)
            total = f"fuse_plus({total}, {term}, &bad)" if total else term
        self.known[extent] = f"v{len(self.known)}"
        lines.append(f"  const int64_t {self.known[extent]} = {total};\n")
        return lines

    def _product(self, monomial: Monomial, coefficient: int, lines: list[str]) -> str:
        found = f"INT64_C({coefficient})"
        for atom in monomial:
            factor = self._atom(atom, lines)
            found = factor if found == "INT64_C(1)" else f"fuse_times({found}, {factor}, &bad)"
        return found

    def _atom(self, atom: Atom, lines: list[str]) -> str:
        match atom:
            case Symbol():
                word = self.symbols[atom.name]
                return word if atom.multiple == 1 else f"({word} / {atom.multiple})"
            case Floor():
                lines += self.lines(atom.numerator)
                return f"fuse_floor({self.of(atom.numerator)}, {atom.divisor})"
            case Extreme():
                lines += [*self.lines(atom.a), *self.lines(atom.b)]
                a, b = self.of(atom.a), self.of(atom.b)
                return f"({a} {'>' if atom.is_largest else '<'} {b} ? {a} : {b})"
            case _:
                raise KeyError(atom.text)
