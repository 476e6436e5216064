"""Tiles of matrix products held in vector registers, written out for a number of rows and of vectors side by side.

A tile is as many sums as registers hold. Each step along the contracted dimension loads one row of the right operand, and
for each row of the tile one element of the left one; the sums stay where they are (Goto and van de Geijn 2008: anatomy of
high-performance matrix multiplication). Where vectors are shorter than a cache line the tile is gone through in parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

_NAME = re.compile(r"fo_(tile|taps)_(f32|f64)_(\d+)x(\d+)")
_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
_LINE = 64
"""Bytes of a vector of the widest kind, by which tiles are counted."""
_PART_ROWS = 6
"""Rows at a time where vectors are shorter: two of 32 bytes beside each other and six rows fill sixteen registers."""

_TILE = """\
/* {name}: {rows} rows of c, c_step apart, become or (where `add` is not 0) are added to sums over k{over} of elements of a,
   whose rows lie a_step apart, times rows of {columns} elements of b, b_step apart{more}; a product and a sum round once. */
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


_STEPS = {
    "tile": _Steps("", "", "", ("for (long p = 0; p < k; p++) {",), "p * b_step", "p"),
    "taps": _Steps(
        ",\n    long a_block, const long *taps, long n",
        " and n taps",
        " and as far from there as a tap says; elements of k are a_block apart in a, those of taps side by side",
        ("for (long p = 0; p < k; p++) {", "for (long t = 0; t < n; t++) {"),
        "p * b_step + taps[t]",
        "p * a_block + t",
    ),
}


def tile_name(element: str, rows: int, vectors: int, kind: Literal["tile", "taps"] = "tile") -> str:
    return f"fo_{kind}_{element}_{rows}x{vectors}"


@cache
def tile_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    steps, element, rows, vectors = _STEPS[found[1]], found[2], int(found[3]), int(found[4])
    kind, size = _TYPES[element]
    columns = vectors * _LINE // size
    return _TILE.format(
        name=name,
        rows=rows,
        columns=columns,
        c=kind,
        over=steps.over,
        more=steps.more,
        parameters=steps.parameters,
        wide=_tile(steps, kind, _LINE, rows, vectors, "a", "b", "c", "  "),
        narrow=_narrow(steps, kind, size, rows, columns),
    )


def _tile(steps: _Steps, kind: str, width: int, rows: int, vectors: int, a: str, b: str, c: str, indent: str) -> str:
    """The sums of some rows and vectors of `width` bytes, from what the pointers point to."""
    step = f"{width} / sizeof(*c)"
    lines = [f"typedef {kind} fo_v __attribute__((vector_size({width}), aligned(sizeof({kind})), may_alias));"]
    names = [[f"s{i}_{j}" for j in range(vectors)] for i in range(rows)]
    lines.append("fo_v " + ", ".join(f"{s} = {{0}}" for row in names for s in row) + ";")
    lines += steps.loops
    lines.append(f"  const {kind} *restrict q = {b} + {steps.row};")
    loads = ", ".join(f"b{j} = *(const fo_v *)(q + {j} * {step})" for j in range(vectors))
    lines.append(f"  const fo_v {loads};")
    for i, row in enumerate(names):
        lines.append(f"  const {kind} x{i} = {a}[{steps.element} + {i} * a_step];")
        lines.append("  " + " ".join(f"{s} += x{i} * b{j};" for j, s in enumerate(row)))
    lines.append("}" * len(steps.loops))
    store = "  *(fo_v *)({c} + {i} * c_step + {j} * {step}) {op} {s};"
    for op, head in (("+=", "if (add) {"), ("=", "} else {")):
        lines.append(head)
        lines += [
            store.format(c=c, i=i, j=j, step=step, op=op, s=s) for i, r in enumerate(names) for j, s in enumerate(r)
        ]
    lines.append("}")
    return "".join(f"{indent}{line}\n" for line in lines)


def _narrow(steps: _Steps, kind: str, size: int, rows: int, columns: int) -> str:
    """The same for vectors of 32 or 16 bytes, part by part."""
    parts: list[str] = []
    for condition, width in (("#if defined(__AVX__)\n", 32), ("#else\n", 16)):
        side = 2 * width // size
        parts.append(condition)
        parts.append(f"  for (long j = 0; j < {columns}; j += {side}) {{\n")
        for first in range(0, rows, _PART_ROWS):
            some = min(_PART_ROWS, rows - first)
            at = f"(a + {first} * a_step)", "(b + j)", f"(c + {first} * c_step + j)"
            parts += ["    {\n", _tile(steps, kind, width, some, 2, *at, "      "), "    }\n"]
        parts.append("  }\n")
    return "".join(parts) + "#endif\n"
