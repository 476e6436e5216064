"""Tiles of matrix products whose operands have the contracted dimension side by side: vectors of partial sums along it.

Each sum is a vector, which is joined at the end, so few rows or columns do not leave vectors empty, and a transposed operand is
read where it lies. The order of sums follows from the extents of the tile and the machine's vectors.
"""

from __future__ import annotations

import re
from functools import cache

from fuse_opt.lowering.c.headers.tile_steps import Bounds, even_parts

_NAME = re.compile(r"fo_dot_(f32|f64)_(\d+)x(\d+)")
_TYPES = {"f32": ("float", "fo_i32", 4), "f64": ("double", "fo_i64", 8)}
"""By element type: its name in C, an integer of its size, and its bytes."""
_CHAINS = 8
"""Sums that wait for nothing: where a tile has fewer, each is of several vectors in turn."""
_PARTS = ((2, 4), (3, 3), (4, 2), (1, 8), (8, 1))
"""Rows and columns at a time, at most, where vectors are shorter than 64 bytes: what sixteen registers hold."""

_DOT = """\
/* {name}: {rows} x {columns} elements of c, whose rows lie c_step apart, become or (where `add` is not 0) are added to sums
   over k of products of rows of a, a_step apart, and of b, b_step apart; a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast", "tree-slp-vectorize")))  // the sums of vectors' elements, side by side
#endif
static __attribute__((noinline, unused)) void {name}(long k, const {c} *a, long a_at, long a_step,
    const {c} *b, long b_at, long b_step, {c} *c, long c_at, long c_step, long add) {{
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  a += a_at, b += b_at, c += c_at;
  {c} sums[{room}];
#if defined(__AVX512F__)
{wide}#elif defined(__AVX__)
{half}#else
{quarter}#endif
  for (long i = 0; i < {rows}; i++)
    for (long j = 0; j < {columns}; j++) c[i * c_step + j] = (add ? c[i * c_step + j] : 0) + sums[i * {columns} + j];
}}
"""


def dot_name(element: str, rows: int, columns: int) -> str:
    return f"fo_dot_{element}_{rows}x{columns}"


@cache
def dot_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of such a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    element, rows, columns = found[1], int(found[2]), int(found[3])
    kind = _TYPES[element][0]
    cut = min(((even_parts(rows, r), even_parts(columns, c)) for r, c in _PARTS), key=_time)
    half, quarter = (
        "".join(_part(element, width, of_rows, of_columns, columns) for of_rows in cut[0] for of_columns in cut[1])
        for width in (32, 16)
    )
    wide = _part(element, 64, (0, rows), (0, columns), columns)
    return _DOT.format(
        name=name, rows=rows, columns=columns, c=kind, room=rows * columns, wide=wide, half=half, quarter=quarter
    )


def _time(cut: tuple[Bounds, Bounds]) -> float:
    """Of a step of all parts, in multiplications; two begin in a cycle, and two loads."""
    sizes = [(b - a, d - c) for a, b in cut[0] for c, d in cut[1]]
    return sum(max(r * c, r + c, _CHAINS / max(1, _CHAINS // (r * c))) for r, c in sizes)


def _part(element: str, width: int, rows: tuple[int, int], columns: tuple[int, int], step: int) -> str:
    """The sums of some rows and columns in vectors of so many bytes, put into `sums`, whose rows lie `step` apart."""
    kind, integer, size = _TYPES[element]
    count, wide, pinned = width // size, width == 64, width >= 32
    pairs = [(i, j) for i in range(*rows) for j in range(*columns)]
    chains = max(1, _CHAINS // len(pairs))
    names = [f"s{i}_{j}_{n}" for i, j in pairs for n in range(chains)]
    lines = [
        f"typedef {kind} fo_v __attribute__((vector_size({width}), aligned(sizeof({kind})), may_alias));",
        f"typedef {integer} fo_m __attribute__((vector_size({width})));",
        f"const fo_m last = (fo_m){{{', '.join(map(str, range(count)))}}} >= (fo_m){{0}} + ({integer})({count} - k % {count});",
        "fo_v " + ", ".join(f"{name} = {{0}}" for name in names) + ";",
        "long p = 0;",
    ]
    if chains > 1:
        lines.append(f"for (; p + {chains * count} <= k; p += {chains * count}) {{")
        for n in range(chains):
            lines += _step(pairs, n, f"p + {n * count}", "", wide, pinned)
        lines.append("}")
    lines.append(f"for (; p + {count} <= k; p += {count}) {{")
    lines += [*_step(pairs, 0, "p", "", wide, pinned), "}"]
    lines.append(f"if (p < k && k >= {count}) {{")
    lines += [*_step(pairs, 0, f"k - {count}", "(fo_v)((fo_m)", wide, pinned), "}"]
    lines += [f"s{i}_{j}_0 += s{i}_{j}_{n};" for n in range(1, chains) for i, j in pairs]
    lines += _folded(count, pairs, step)
    lines.append(f"for (; k < {count} && p < k; p++) {{")
    lines += [f"  sums[{i * step + j}] += a[{i} * a_step + p] * b[{j} * b_step + p];" for i, j in pairs]
    lines.append("}")
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _step(pairs: list[tuple[int, int]], chain: int, at: str, masked: str, wide: bool, pinned: bool) -> list[str]:
    """A vector of each row and column, multiplied; masked: without what a vector before had."""
    end = " & last)" if masked else ""
    rows, columns = sorted({i for i, _ in pairs}), sorted({j for _, j in pairs})
    lines = [
        f"  fo_v {name}{n}_{chain} = {masked}*(const fo_v *)({name} + {n} * {name}_step + {at}){end};"
        for name, numbers in (("a", rows), ("b", columns))
        for n in numbers
    ]
    if wide and len(rows) <= len(columns) and not masked:  # those of the next call
        lines += [f"  __builtin_prefetch(b + {j + len(columns)} * b_step + {at});" for j in columns]
    if pinned:  # gcc would load again for each multiplication
        for name, numbers, others in (("a", rows, columns), ("b", columns, rows)):
            lines += [f'  __asm__("" : "+v"({name}{n}_{chain}));' for n in numbers if len(others) > 1]
    lines.append("  " + " ".join(f"s{i}_{j}_{chain} += a{i}_{chain} * b{j}_{chain};" for i, j in pairs))
    return lines


def _folded(count: int, pairs: list[tuple[int, int]], step: int) -> list[str]:
    """Sums of the elements of each vector: halves are added, those of two vectors at a time."""
    lines = ["#if defined(__clang__) || __GNUC__ >= 12"]
    known, size = [f"s{i}_{j}_0" for i, j in pairs], count
    while size > 1:
        halves: list[str] = []
        for number in range(0, len(known), 2):
            x, y = known[number], known[min(number + 1, len(known) - 1)]
            lower = [at for at in range(2 * count) if at % size < size // 2]
            first, second = (", ".join(str(at + shift) for at in lower) for shift in (0, size // 2))
            halves.append(f"h{size}_{number // 2}")
            lines.append(f"fo_v {halves[-1]} = __builtin_shufflevector({x}, {y}, {first})")
            lines.append(f"  + __builtin_shufflevector({x}, {y}, {second});")
        known, size = halves, size // 2
    for number, (i, j) in enumerate(pairs):
        lines.append(f"sums[{i * step + j}] = {known[number // count]}[{number % count}];")
    lines.append("#else")
    for i, j in pairs:
        lines.append(f"for (int h = {count // 2}; h; h /= 2)")
        lines.append(f"  for (int l = 0; l < h; l++) s{i}_{j}_0[l] += s{i}_{j}_0[l + h];")
        lines.append(f"sums[{i * step + j}] = s{i}_{j}_0[0];")
    lines.append("#endif")
    return lines
