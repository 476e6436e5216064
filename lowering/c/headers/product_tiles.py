"""Tiles of matrix products held in vector registers, written out for a number of rows and of columns.

A tile is as many sums as registers hold. Each step along the contracted dimension loads one row of the right operand, and
for each row of the tile one element of the left one; the sums stay where they are (Goto and van de Geijn 2008: anatomy of
high-performance matrix multiplication). Where vectors are shorter than a cache line the tile is gone through in parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from typing import Literal

from fuse_opt.lowering.c.headers.tile_kinds import KINDS, LINE, TRANSPOSED, Steps
from fuse_opt.lowering.c.headers.tile_steps import (
    STEPS,
    Bounds,
    Vectors,
    ask_for_sums,
    best_parts,
    in_stretches,
    parted_vectors,
    written_out,
)

_NAME = re.compile(r"fo_(tile|taps|chosen|windows)_(f32|f64)_(\d+)x(\d+)(t?)(r?)(c?)(l?)(?:n(\d+)x(\d+))?")
_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
_FEW_USES = 4
"""
Rows of a tile for each of which gcc would load the right operand's elements again, as part of the multiplication: if they are no
more, and of any number where vectors are shorter and a loop over few taps inside of another is written out (half the speed).
"""
_WAITING_ROWS = 3
"""Rows of a tile that waits for the right operand whatever it does."""
_AHEAD = 8
"""Rows of the right operand that a tile asks for before it is at them: each may lie in another page."""
_NARROW = 32
"""Bytes of a vector where there are sixteen registers."""
_STRETCH, _SHORTER, _HALVED = 256, 144, 400
"""
Steps that such a tile sums at a time at most, and of more, up to the last number, in about equal stretches: rounding errors are
no larger than OpenBLAS's, which adds up 320 on processors with such vectors, and halves of 321 to 639 (measured).
"""
_SETS_BYTES = 4096
"""Of rows at a multiple of this distance lines lie in one set of a first cache of 32 KiB."""
_PART_VECTORS = {1: 8, 2: 4, 3: 3, 4: 3, 5: 2, 6: 2}
"""By rows at a time: such vectors beside each other."""
_MORE_VECTORS = {1: 8, 2: 8, 3: 6, 4: 5, 5: 4, 6: 3}
"""The same where there are thirty-two registers of 16 bytes, as NEON has; of larger parts gcc spills some."""
_REGISTERS = 32
"""For sums, a row of the right operand, and an element of the left one: a tile that fills them is gone through step by step, as
gcc loads elements of later steps into more."""

_Pointers = tuple[str, str, str, str, str]
"""To elements of a, b and c, to those of a copy of b's rows, and to lines that are asked for; "" where there are none."""

_TILE = """\
/* {name}: {rows} rows of c, c_step apart, become or (where `add` is not 0) are added to sums over k{over} of elements of a,
   whose {lines} lie a_step apart, times rows of {columns} elements of b, b_step apart{more}; a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(long k, const {c} *a, long a_at, long a_step,
    const {c} *b, long b_at, long b_step, {c} *c, long c_at, long c_step, long add{parameters}) {{
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  a += a_at, b += b_at, c += c_at{moves};
#if defined(__AVX512F__)
{wide}#else
{narrow}#endif
}}
"""


def vector_elements(name: str) -> int:
    """Elements of a vector of a tile of that element type."""
    return LINE // _TYPES[name][1]


def tile_name(
    element: str,
    rows: int,
    columns: int,
    transposed: bool = False,
    kind: Literal["tile", "taps", "chosen", "windows"] = "tile",
    is_far: bool = False,
    copies: bool = False,
    lines: bool = False,
    asks: tuple[int, int] | None = None,
) -> str:
    """
    The function for so many rows and columns; transposed: whose left operand has the rows of a tile side by side; `is_far`:
    whose right one may be in no near cache, so that it is asked for; `copies`: that leaves a copy of what it reads of that;
    `lines`: that asks for where what follows its sums is stored; `asks`: how many rows, and lines of each, it asks for at a time
    of what is read after it.
    """
    ahead = "" if asks is None else f"n{asks[0]}x{asks[1]}"
    return f"fo_{kind}_{element}_{rows}x{columns}{'t' * transposed}{'r' * is_far}{'c' * copies}{'l' * lines}{ahead}"


@cache
def tile_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    steps, (kind, size) = KINDS[found[1]], _TYPES[found[2]]
    if found[5] and found[1] == "tile":
        steps = TRANSPOSED
    copies, has_lines = bool(found[7]), bool(found[8])
    if has_lines:
        steps = steps.with_lines()
    if copies:
        steps = steps.with_copy()
    if found[9]:
        steps = steps.with_next(int(found[9]), int(found[10]))
    tile = _Tile(kind, size, bool(found[5]), bool(found[6]), steps, copies)
    rows, columns = int(found[3]), int(found[4])
    return _TILE.format(
        name=name,
        rows=rows,
        columns=columns,
        lines="columns" if tile.transposed else "rows",
        c=kind,
        over=steps.over,
        more=steps.more,
        parameters=steps.parameters.format(c=kind),
        moves=", d += d_at" * copies
        + ", lines += lines_at" * has_lines
        + ", next += next_at" * bool(found[9])
        + ";\n  (void)lines, (void)lines_step" * has_lines
        + ";\n  (void)next, (void)next_step, (void)asked" * bool(found[9]),
        wide=tile.sums(LINE, rows, columns, ("a", "b", "c", "d" * copies, "lines" * has_lines), "  "),
        narrow=tile.parts(rows, columns, has_lines),
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    """Text for elements of a C type of so many bytes."""

    kind: str
    size: int
    transposed: bool
    is_far: bool
    """Whether the right operand may be far away."""
    steps: Steps
    copies: bool = False
    """Whether it leaves a copy of the right operand's rows."""

    def sums(
        self,
        width: int,
        rows: int,
        columns: int,
        pointers: _Pointers,
        indent: str,
        asks_ahead: bool = True,
        is_whole: bool = False,
    ) -> str:
        """
        Those of some rows and columns in vectors of so many bytes at most, from what the pointers to a, b and c point to, with
        a copy of b's rows where there is a pointer to one; `asks_ahead` for the right operand where vectors are shorter than
        lines; else a tile does that has time to load more. `is_whole` where they are all of a tile whose vectors are shorter.
        """
        kind, (a, b, c, d, _) = self.kind, pointers
        vectors = parted_vectors(columns, width // self.size, width == LINE and rows > 1)
        lanes, starts = vectors.lanes, vectors.starts
        names = [[f"s{i}_{j}" for j in range(len(starts) - vectors.is_paired)] for i in range(rows)]
        lines = [*vectors.types(kind), *vectors.declared(names)]
        of, single = self.steps, not self.steps.outer
        places = {"a": a, "b": b, "c": kind, "d": d, "depth": "a_step" if self.transposed else "1"}
        lines += [line.format(**places) for line in (*of.outer, *(of.prefetch[:1] if width == LINE else ()))]
        waits = rows <= _WAITING_ROWS
        ahead = [f"  __builtin_prefetch(q + {_AHEAD} * b_step + {end - 1});" for end in vectors.ends]
        is_worth = len(starts) > 2 if waits else rows + 2 * len(starts) <= rows * len(starts)
        far = single and self.is_far and is_worth
        asks = ahead if far and width == LINE else []
        if width == LINE:
            asks += of.prefetch[1:]
        by_stretches = is_whole and single and not waits and width == _NARROW
        rows_ahead = 0 if width != _NARROW or not single or not asks_ahead else _AHEAD // 2
        if by_stretches:
            rows_ahead = _AHEAD if self.is_far else 0
        if rows_ahead:
            asks = [f"  __builtin_prefetch(q + {rows_ahead} * b_step + {at});" for at in range(0, columns, 2 * lanes)]
        if rows == 1 and single and not d:
            lines += in_stretches(names[0], lambda sums: self._step(width, [sums], vectors, places, asks))
            return self._stored(lines, names, vectors, c, indent)
        step = self._step(width, names, vectors, places, asks)
        if by_stretches:
            return self._in_stretches(lines, names, vectors, pointers, step, indent)
        first = [] if width != LINE or waits else self._asks_of_tile(rows, starts, pointers)
        first += self._asks_for_next() if width == LINE else []
        if width == LINE and not waits and of.written > 1 and (rows + 1) * len(starts) < _REGISTERS:
            lines += written_out(first, step, of.moves, of.count, of.number, of.written)
        else:
            lines += [f"for (long {of.number} = 0; {of.number} < {of.count}; {of.number}++) {{"]
            lines += [f"  const long u = {of.number};", *first, *step, "}"]
        lines += ["}"] * bool(of.outer)
        return self._stored(lines, names, vectors, c, indent)

    @staticmethod
    def _stored(lines: list[str], names: list[list[str]], vectors: Vectors, c: str, indent: str) -> str:
        """The text of lines, and of sums that are stored, or added to what is there."""
        pairs = [(s, i, each) for i, row in enumerate(names) for s, each in zip(row, vectors.placed(), strict=False)]
        places = [(s, f"*({of} *)({c} + {i} * c_step + {at})") for s, i, (of, at) in pairs]
        last_added, last_stored = vectors.rows_of_pairs(len(names), c)
        lines = [*lines, "if (add) {", *(f"  {s} += {place};" for s, place in places), *last_added, "}"]
        lines += [*(f"{place} = {s};" for s, place in places), *last_stored]
        return "".join(f"{'' if line.startswith('#') else indent}{line}\n" for line in lines)

    def _step(
        self, width: int, names: list[list[str]], vectors: Vectors, places: dict[str, str], asks: list[str]
    ) -> list[str]:
        """What is added to all sums for a row of b."""
        kind, of = self.kind, self.steps
        lines = [f"  const {kind} *restrict q = {of.row.format(**places)};"]
        placed = list(enumerate(vectors.placed()))
        loads = [(of, f"b{j} = *(const {of} *)(q + {at})") for j, (of, at) in placed]
        lines += [
            f"  {of} {', '.join(load for _, load in group)};" for of, group in groupby(loads, lambda load: load[0])
        ]
        lines += asks
        if places["d"]:
            lines.append(f"  {kind} *restrict to = {places['d']} + u * d_step;")
            lines.append("  " + " ".join(f"*({of} *)(to + {at}) = b{j};" for j, (of, at) in placed))
        most = _FEW_USES if width == LINE or not of.outer else len(names)
        if width >= _NARROW and 1 < len(names) <= most:
            kept = [f'  __asm__("" : "+v"(b{j}));' for j, _ in placed]
            # clang has no register for vectors of 8 bytes, nor the need
            lines += ["#if !defined(__clang__)", *kept, "#endif"]
        lines += vectors.of_pairs()
        for i, row in enumerate(names):
            lines.append(f"  const {kind} x{i} = {of.element.format(row=self._place(str(i), '0'), **places)};")
            lines.append("  " + " ".join(f"{s} += x{i} * b{j};" for j, s in enumerate(row)))
            lines += vectors.paired(i, len(names))
        return lines

    def _asks_of_tile(self, rows: int, starts: list[int], pointers: _Pointers) -> list[str]:
        """
        Prefetches of where sums go, and of the rows of a behind the tile's, a line at a time: they lie far from each other, and
        may be far away.
        """
        number, single = self.steps.number, not self.steps.outer
        asked = (pointers[4], "lines_step") if pointers[4] else (pointers[2], "c_step")
        asks = ask_for_sums(rows, starts, *asked) if single else []
        if self.transposed or self.steps.prefetch:
            return asks
        a = pointers[0] if single else f"left + {number}"
        return [
            *asks,
            f"  if ({number} % {LINE // self.size} == 0) {{",
            *(f"    __builtin_prefetch({a} + {i + rows} * a_step, 0, 2);" for i in range(rows)),
            "  }",
        ]

    def _in_stretches(
        self,
        types: list[str],
        names: list[list[str]],
        vectors: Vectors,
        pointers: _Pointers,
        step: list[str],
        indent: str,
    ) -> str:
        """
        Sums, whose type and zeros are given, of a stretch of steps at a time, which join where sums go: rounding errors of a
        short one are small. A loop takes a line of a's rows at a time, and asks for the rows of a behind the tile's and for what
        is read later. Steps stay a loop, as gcc would add up addresses of those that are written out with too few registers.
        Rows whose distance is that of the sets of a first cache evict each other: there none behind the tile's are asked for.
        """
        (a, _, c, _, lines), line, rows = pointers, LINE // self.size, range(len(names))
        head = [types[0]]
        head += [
            f"__builtin_prefetch({lines or c} + {i} * {'lines' if lines else 'c'}_step + {at}, 1);"
            for i in rows
            for at in range(0, vectors.starts[-1] + 1, line)
        ]
        asks: list[str] = []
        if not self.transposed:
            head.append(f"const long behind = a_step % {_SETS_BYTES // self.size} ? {len(names)} * a_step : 0;")
            asks = [f"  __builtin_prefetch({a} + behind + {i} * a_step + p, 0, 2);" for i in rows]
        head += [
            f"const long most = k > {_STRETCH} && k <= {_HALVED} ? {_SHORTER} : {_STRETCH};",
            "const long parts = (k + most - 1) / most + !k;",
            f"const long stretch = ((k + parts - 1) / parts + {line - 1}) / {line} * {line};",
            "for (long from = 0; from < k; from += stretch, add = 1) {",
        ]
        body = [
            "const long last = k - from < stretch ? k : from + stretch;",
            *types[1:],
            f"for (long p = from; p < last; p += {line}) {{",
            *asks,
            *self._asks_for_next(line // STEPS),
            f"  const long end = last - p < {line} ? last : p + {line};",
            "#pragma GCC unroll 1",
            "  for (long u = p; u < end; u++) {",
            *(f"  {each}" for each in step),
            "  }",
            "}",
        ]
        text = "".join(f"{indent}{each}\n" for each in head)
        return text + self._stored(body, names, vectors, c, indent + "  ") + indent + "}\n"

    def _asks_for_next(self, times: int = 1) -> list[str]:
        """
        Prefetches, into a second cache, of some lines of what is read after the tile's own operands: a few at a time, as a
        processor waits for no more than about twelve lines at once, and has to have some left for those that it reads. Those of
        several times are asked for at once where the loop counts them together.
        """
        rows, lines = self.steps.asks
        rows *= times
        if not rows:
            return []
        last = LINE // self.size
        asked = [(row, line * last + last - 1) for row in range(rows) for line in range(lines)]
        return [
            f"  if (p % {times * STEPS} == 0 && p < asked) {{",
            *(f"    __builtin_prefetch(next + {row} * next_step + {at}, 0, 2);" for row, at in asked),
            f"    next += {rows} * next_step;",
            "  }",
        ]

    def parts(self, rows: int, columns: int, has_lines: bool) -> str:
        """The same for vectors of 32 or 16 bytes, part by part; those that are as wide as others are gone through by a loop."""
        parts: list[str] = []
        kinds = (
            ("#if defined(__AVX__)\n", _NARROW, _PART_VECTORS),
            ("#elif defined(__aarch64__)\n", 16, _MORE_VECTORS),
            ("#else\n", 16, _PART_VECTORS),
        )
        for condition, width, beside in kinds:
            lanes = width // self.size
            of_rows, of_vectors = best_parts(rows, -(-columns // lanes), beside)
            is_whole = len(of_rows) == len(of_vectors) == 1
            starts = [first * lanes for first, _ in of_vectors]
            sides = [end - start for start, end in pairwise([*starts, columns])]
            parts.append(condition)
            for side, group in groupby(zip(sides, starts, strict=True), lambda part: part[0]):
                found = [start for _, start in group]
                if len(found) == 1:
                    parts += self._row_parts(width, of_rows, side, str(found[0]), "  ", is_whole, has_lines)
                    continue
                parts.append(f"  for (long j = {found[0]}; j < {found[-1] + side}; j += {side}) {{\n")
                parts += [*self._row_parts(width, of_rows, side, "j", "    ", is_whole, has_lines), "  }\n"]
        return "".join(parts) + "#endif\n"

    def _row_parts(
        self, width: int, bounds: Bounds, columns: int, at: str, indent: str, is_whole: bool, has_lines: bool
    ) -> list[str]:
        parts: list[str] = []
        for first, end in bounds:
            to = f"(d + {at})" if self.copies and first == 0 else ""
            lines = f"(lines + {first} * lines_step + {at})" * has_lines
            sums = f"(c + {first} * c_step + {at})"
            pointers = f"(a + {self._place(str(first), '0')})", f"(b + {at})", sums, to, lines
            text = self.sums(width, end - first, columns, pointers, indent + "  ", first == 0, is_whole)
            parts += [f"{indent}{{\n", text, f"{indent}}}\n"]
        return parts

    def _place(self, row: str, depth: str) -> str:
        """Of an element of the left operand."""
        far, near = (depth, row) if self.transposed else (row, depth)
        return f"{far} * a_step + {near}"
