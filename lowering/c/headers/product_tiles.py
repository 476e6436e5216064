"""Tiles of matrix products held in vector registers, written out for a number of rows and of columns.

A tile is as many sums as registers hold. Each step along the contracted dimension loads one row of the right operand, and
for each row of the tile one element of the left one; the sums stay where they are (Goto and van de Geijn 2008: anatomy of
high-performance matrix multiplication). Where vectors are shorter than a cache line the tile is gone through in parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from typing import Literal

from fuse_opt.lowering.c.headers.tile_steps import Bounds, ask_for_sums, even_parts, vectors_of_columns, written_out

_NAME = re.compile(r"fo_(tile|taps|windows)_(f32|f64)_(\d+)x(\d+)(t?)(r?)")
_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
_LINE = 64
"""Bytes of a vector of the widest kind."""
_FEW_USES = 4
"""Rows of a tile for each of which gcc would load the right operand's elements again, as part of the multiplication."""
_WAITING_ROWS = 3
"""Rows of a tile that waits for the right operand whatever it does."""
_AHEAD = 8
"""Rows of the right operand that a tile asks for before it is at them: each may lie in another page."""
_NARROW = 32
"""Bytes of a vector where there are sixteen registers."""
_PART_ROWS = (6, 4)
"""Rows at a time where vectors are shorter, at most: what sixteen registers hold of two, or of three, beside each other."""
_PART_VECTORS = {1: 8, 2: 4, 3: 3, 4: 3, 5: 2, 6: 2}
"""By rows at a time: such vectors beside each other."""
_MORE_VECTORS = {1: 8, 2: 8, 3: 6, 4: 5, 5: 4, 6: 3}
"""The same where there are thirty-two registers of 16 bytes, as NEON has; of larger parts gcc spills some."""
_LATENCY = 8
"""Sums that are added to while the first of them is not ready; fewer take as long."""

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
  a += a_at, b += b_at, c += c_at;
#if defined(__AVX512F__)
{wide}#else
{narrow}#endif
}}
"""


def vector_elements(name: str) -> int:
    """Elements of a vector of a tile of that element type."""
    return _LINE // _TYPES[name][1]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The loops of a tile, around what they do for a row of b: where that lies, and an element of a's first row."""

    parameters: str
    over: str
    more: str
    loops: tuple[str, ...]
    row: str
    element: str
    line: str = ""
    """What counts elements of a line of a, of which rows of a tile lie apart."""
    shift: str = ""
    """Added to places in a."""
    prefetch: str = ""
    """At the begin of a step, where vectors are as long as lines."""


_STEPS = {
    "tile": _Steps("", "", "", ("for (long p = 0; p < k; p++) {",), "{p} * b_step", "{p}"),
    "taps": _Steps(
        ",\n    long a_block, const long *taps, long n",
        " and n taps",
        " and as far from there as a tap says; elements of k are a_block apart in a, those of taps side by side",
        ("for (long p = 0; p < k; p++) {", "for (long t = 0; t < n; t++) {"),
        "p * b_step + taps[t]",
        "p * a_block + t",
        "t",
    ),
    "windows": _Steps(
        ",\n    const long *taps, long n, long ahead",
        " and n taps",
        ",\n   n for each of k; a is read as far from there as a tap says; each step asks for a line that lies `ahead` in b",
        ("for (long p = 0; p < k; p++) {", "for (long t = 0; t < n; t++) {"),
        "(p * n + t) * b_step",
        "p",
        shift=" + taps[t]",
        prefetch=f"__builtin_prefetch(b + ahead + (p * n + t) * ({_LINE} / (long)sizeof *b), 0, 2);",
    ),
}


def tile_name(
    element: str,
    rows: int,
    columns: int,
    transposed: bool = False,
    kind: Literal["tile", "taps", "windows"] = "tile",
    is_far: bool = False,
) -> str:
    """
    The function for so many rows and columns; transposed: whose left operand has the rows of a tile side by side; `is_far`:
    whose right one may be in no near cache, so that it is asked for.
    """
    return f"fo_{kind}_{element}_{rows}x{columns}{'t' * transposed}{'r' * is_far}"


@cache
def tile_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    steps, (kind, size) = _STEPS[found[1]], _TYPES[found[2]]
    tile = _Tile(kind, size, bool(found[5]), bool(found[6]), steps)
    rows, columns = int(found[3]), int(found[4])
    return _TILE.format(
        name=name,
        rows=rows,
        columns=columns,
        lines="columns" if tile.transposed else "rows",
        c=kind,
        over=steps.over,
        more=steps.more,
        parameters=steps.parameters,
        wide=tile.sums(_LINE, rows, columns, ("a", "b", "c"), "  "),
        narrow=tile.parts(rows, columns),
    )


def _best_parts(rows: int, vectors: int, beside: Mapping[int, int]) -> tuple[Bounds, Bounds]:
    """The parts of a tile's rows, and of its vectors, so many side by side by the rows, which are done soonest."""
    cuts = [
        (found, even_parts(vectors, beside[found[0][1]])) for found in (even_parts(rows, most) for most in _PART_ROWS)
    ]
    return min(cuts, key=lambda cut: sum(_part_time(b - a, d - c) for a, b in cut[0] for c, d in cut[1]))


def _part_time(rows: int, vectors: int) -> int:
    """Of a step along the contracted dimension, in multiplications; two begin in a cycle, and two loads."""
    return max(rows * vectors, rows + vectors, _LATENCY)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Text for elements of a C type of so many bytes."""

    kind: str
    size: int
    transposed: bool
    is_far: bool
    """Whether the right operand may be far away."""
    steps: _Steps

    def sums(
        self, width: int, rows: int, columns: int, pointers: tuple[str, str, str], indent: str, asks_ahead: bool = True
    ) -> str:
        """
        Those of some rows and columns in vectors of so many bytes at most, from what the pointers to a, b and c point to;
        `asks_ahead` for the right operand where vectors are shorter than lines; else a tile does that has time to load more.
        """
        kind, (a, b, c) = self.kind, pointers
        lanes, starts = vectors_of_columns(columns, width // self.size)
        vector = f"vector_size({lanes} * sizeof({kind})), " if lanes > 1 else ""
        lines = [f"typedef {kind} fo_v __attribute__(({vector}aligned(sizeof({kind})), may_alias));"]
        names = [[f"s{i}_{j}" for j in range(len(starts))] for i in range(rows)]
        lines.append("fo_v " + ", ".join(f"{s} = {{0}}" for row in names for s in row) + ";")
        single = len(self.steps.loops) == 1
        ahead = [f"  __builtin_prefetch(q + {_AHEAD} * b_step + {at});" for at in starts]
        if width == _LINE and single and rows > _WAITING_ROWS:
            asks = ask_for_sums(rows, starts, c)
            if not self.transposed:
                asks += self._ask_for_next_rows(rows, a, "p", "0")
            far = self.is_far and rows + 2 * len(starts) <= rows * len(starts)
            step = self._step(width, names, starts, ("u", a, b), ahead if far else [])
            lines += written_out(asks, step, ((a, "a_step" if self.transposed else "1"), (b, "b_step")))
        else:
            asks = []
            if width == _LINE and single and len(starts) > 2:
                asks = ahead
            elif width == _NARROW and asks_ahead and single:
                places = range(0, columns, lanes * 2)
                asks = [f"  __builtin_prefetch(q + {_AHEAD // 2} * b_step + {at});" for at in places]
            elif width == _LINE:
                asks = [f"  {self.steps.prefetch}"] if self.steps.prefetch else []
                if rows > _WAITING_ROWS and self.steps.line:
                    asks += self._ask_for_next_rows(rows, a, self.steps.line, self.steps.element)
            lines += [
                *self.steps.loops,
                *self._step(width, names, starts, ("p", a, b), asks),
                "}" * len(self.steps.loops),
            ]
        pairs = [(s, i, at) for i, row in enumerate(names) for s, at in zip(row, starts, strict=True)]
        places = [(s, f"*(fo_v *)({c} + {i} * c_step + {at})") for s, i, at in pairs]
        lines += ["if (add) {", *(f"  {s} += {place};" for s, place in places), "}"]
        lines += [f"{place} = {s};" for s, place in places]
        return "".join(f"{'' if line.startswith('#') else indent}{line}\n" for line in lines)

    def _step(
        self, width: int, names: list[list[str]], starts: list[int], at: tuple[str, str, str], asks: list[str]
    ) -> list[str]:
        """What is added to all sums for a row of b: that of a number, from the pointers to a and b."""
        kind, (number, a, b) = self.kind, at
        lines = [f"  const {kind} *restrict q = {b} + {self.steps.row.format(p=number)};"]
        lines.append("  fo_v " + ", ".join(f"b{j} = *(const fo_v *)(q + {at})" for j, at in enumerate(starts)) + ";")
        lines += asks
        if width >= _NARROW and 1 < len(names) <= _FEW_USES:
            kept = [f'  __asm__("" : "+v"(b{j}));' for j in range(len(starts))]
            # clang has no register for vectors of 8 bytes, nor the need
            lines += ["#if !defined(__clang__)", *kept, "#endif"]
        element = self.steps.element.format(p=number)
        for i, row in enumerate(names):
            lines.append(f"  const {kind} x{i} = {a}[{self._place(str(i), element)}{self.steps.shift}];")
            lines.append("  " + " ".join(f"{s} += x{i} * b{j};" for j, s in enumerate(row)))
        return lines

    def _ask_for_next_rows(self, rows: int, a: str, number: str, at: str) -> list[str]:
        """Prefetches of the rows of a behind the tile's, a line at a time: they lie far from each other, and may be far away."""
        return [
            f"  if ({number} % {_LINE // self.size} == 0) {{",
            *(f"    __builtin_prefetch({a} + {self._place(str(i + rows), at)}, 0, 2);" for i in range(rows)),
            "  }",
        ]

    def parts(self, rows: int, columns: int) -> str:
        """The same for vectors of 32 or 16 bytes, part by part; those that are as wide as others are gone through by a loop."""
        parts: list[str] = []
        kinds = (
            ("#if defined(__AVX__)\n", _NARROW, _PART_VECTORS),
            ("#elif defined(__aarch64__)\n", 16, _MORE_VECTORS),
            ("#else\n", 16, _PART_VECTORS),
        )
        for condition, width, beside in kinds:
            lanes = width // self.size
            of_rows, of_vectors = _best_parts(rows, -(-columns // lanes), beside)
            starts = [first * lanes for first, _ in of_vectors]
            sides = [end - start for start, end in pairwise([*starts, columns])]
            parts.append(condition)
            for side, group in groupby(zip(sides, starts, strict=True), lambda part: part[0]):
                found = [start for _, start in group]
                if len(found) == 1:
                    parts += self._row_parts(width, of_rows, side, str(found[0]), "  ")
                    continue
                parts.append(f"  for (long j = {found[0]}; j < {found[-1] + side}; j += {side}) {{\n")
                parts += [*self._row_parts(width, of_rows, side, "j", "    "), "  }\n"]
        return "".join(parts) + "#endif\n"

    def _row_parts(self, width: int, bounds: Bounds, columns: int, at: str, indent: str) -> list[str]:
        parts: list[str] = []
        for first, end in bounds:
            pointers = f"(a + {self._place(str(first), '0')})", f"(b + {at})", f"(c + {first} * c_step + {at})"
            sums = self.sums(width, end - first, columns, pointers, indent + "  ", first == 0)
            parts += [f"{indent}{{\n", sums, f"{indent}}}\n"]
        return parts

    def _place(self, row: str, depth: str) -> str:
        """Of an element of the left operand."""
        far, near = (depth, row) if self.transposed else (row, depth)
        return f"{far} * a_step + {near}"
