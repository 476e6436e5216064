"""Sums of products of bytes in pairs of 16 bits, for machines whose instructions multiply and add these (pmaddwd of AVX2).

Groups of four bytes lie as everywhere in panels; shifts of 16 bits take the first and third of each apart, then the second and
fourth, with their signs. A tile takes its rows of the left operand apart into the same pairs before it begins, so many groups
at a time as a first cache holds. All of it is exact: pmaddubsw, of half as many steps, saturates sums of two products.
"""

from __future__ import annotations

from itertools import pairwise
from textwrap import indent

from fuse_opt.lowering.c.headers.tile_steps import vectors_of_columns

MOST_ROWS = 6
"""Of a part: two vectors beside each other and six rows leave registers for elements of both operands."""
_GROUPS = 256
"""Of a row that are taken apart at a time."""
_VECTOR = 32
_FEWEST_LANES = 4
"""Of a vector for which there is an instruction."""
_HALVES = ((0, "({} << 8) >> 8", ("{} << 24 >> 24", "{} << 8 >> 24")), (1, "{} >> 8", ("{} << 16 >> 24", "{} >> 24")))
"""Of a group: the number of the pair, that as lanes of 16 bits, and its elements as lanes of 32 bits."""


_APART = """\
  typedef {half} __attribute__((may_alias, aligned(1))) fo_half;
  fo_half pairs[2][{rows}][{halves}];
  for (; k > 0; k -= {groups}, a += 4 * {groups}, b += {groups} * b_step, add = 1) {{
    const long n = k < {groups} ? k : {groups};
    for (long i = 0; i < {rows}; i++) {{
      const fo_half *row = (const fo_half *)(a + i * a_step);
      for (long p = 0; p < 2 * n; p++) pairs[0][i][p] = (fo_half)(row[p] << 8) >> 8, pairs[1][i][p] = row[p] >> 8;
    }}
"""


def byte_pairs(left: str, rows: int, columns: int) -> str:
    """The statements of a tile, of which `a`, elements of that C type, `b` and `c` are where it begins."""
    half = "unsigned short" if left.startswith("unsigned") else "short"
    parts = [
        _part(some_rows, some_columns)
        for some_rows in _even_parts(rows)
        for some_columns in _column_parts(rows, columns)
    ]
    apart = _APART.format(half=half, rows=rows, halves=2 * _GROUPS, groups=_GROUPS)
    return "".join([apart, *(indent(part, "  ") for part in parts), "  }\n"])


def _even_parts(rows: int) -> list[range]:
    parts = -(-rows // MOST_ROWS)
    bounds = [rows * part // parts for part in range(parts + 1)]
    return [range(first, last) for first, last in pairwise(bounds)]


def _column_parts(rows: int, columns: int) -> list[range]:
    """Of few rows, which wait for memory, twice as many side by side."""
    side = _VECTOR // 4 * (4 if rows <= 2 else 2)
    return [range(first, min(first + side, columns)) for first in range(0, columns, side)]


def _part(rows: range, columns: range) -> str:
    lanes, starts = vectors_of_columns(len(columns), _VECTOR // 4)
    starts = [columns.start + start for start in starts]
    names = {i: [f"s{i}_{j}" for j in range(len(starts))] for i in rows}
    lines = [
        f"typedef int __attribute__((vector_size({4 * lanes}), aligned(4), may_alias)) fo_s;",
        "typedef {} __attribute__((vector_size({}), aligned(1), may_alias)) {};".format(*_loaded(lanes)),
        "fo_s " + ", ".join(f"{s} = {{0}}" for row in names.values() for s in row) + ";",
        "for (long p = 0; p < n; p++) {",
        "  const fo_group *restrict q = b + p * b_step;",
    ]
    for half in _HALVES:
        lines += _half(half, names, starts, lanes)
    lines.append("}")
    places = [
        (s, f"*(fo_s *)(c + {i} * c_step + {at})")
        for i, row in names.items()
        for s, at in zip(row, starts, strict=True)
    ]
    lines += ["if (add) {", *(f"  {s} += {place};" for s, place in places), "}"]
    lines += [f"{place} = {s};" for s, place in places]
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _loaded(lanes: int) -> tuple[str, int, str]:
    """What vectors of the right operand are loaded as: element, bytes, name."""
    return ("short" if lanes >= _FEWEST_LANES else "int"), 4 * lanes, ("fo_h" if lanes >= _FEWEST_LANES else "fo_y")


def _half(
    half: tuple[int, str, tuple[str, str]], names: dict[int, list[str]], starts: list[int], lanes: int
) -> list[str]:
    """One pair of each group: what is loaded of both operands, and the sums that it is added to."""
    number, pair, elements = half
    has_instruction, kind = lanes >= _FEWEST_LANES, _loaded(lanes)[2]
    loaded = (f"*(const {kind} *)(q + {at})" for at in starts)
    given = [pair.format(y) if has_instruction else y for y in loaded]
    lines = ["  {", f"    const {kind} " + ", ".join(f"y{j} = {y}" for j, y in enumerate(given)) + ";"]
    for i, row in names.items():
        lines.append(f"    const int x{i} = (int)((const fo_group *)pairs[{number}][{i}])[p];")
        if has_instruction:
            call = f"__builtin_ia32_pmaddwd{'128' if lanes == _FEWEST_LANES else '256'}"
            lines.append(f"    const fo_h v{i} = (fo_h)((fo_s){{0}} + x{i});")
            for j, s in enumerate(
                row
            ):  # kept apart: gcc would add up products before it adds them to sums, in more registers
                lines.append(f'    {s} += (fo_s){call}(v{i}, y{j}); __asm__("" : "+x"({s}));')
        else:
            first, second = elements
            lines += [
                f"    {s} += (int)(short)x{i} * ({first.format(f'y{j}')}) + (x{i} >> 16) * ({second.format(f'y{j}')});"
                for j, s in enumerate(row)
            ]
    return [*lines, "  }"]
