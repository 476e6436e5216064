"""Tiles of matrix products whose operands have the contracted dimension side by side: vectors of partial sums along it.

Each sum is a vector, which is joined at the end, so few rows or columns do not leave vectors empty, and a transposed operand is
read where it lies, narrow floats too: they are widened in registers. The order of sums follows from the extents of the tile and
the machine's vectors.
"""

from __future__ import annotations

import re
from functools import cache

from fuse_opt.lowering.c.headers.tile_steps import Bounds, even_parts

FAR, NEAR, LONG = "r", "n", "l"
"""
What a name ends in: where no near cache is known to hold the right operand, which is asked for (1.5 to 2.8 times as fast, where
one does .85 to .95; Zen 4, with either width of vectors), and where the last one is known to, from which processors ask for it in
time (1.0 to 1.25 times as fast as the former): of rows that a first cache keeps while columns pass by one after another (.85 to
1.05 of the time of four at a time), and of longer ones (four at a time take .65 to .9 of the time).
"""
_NAME = re.compile(rf"fo_dot_(f32|f64|bf16|f16)_(\d+)x(\d+)([{FAR}{NEAR}{LONG}]?)")
_F32 = ("float", "fo_i32", 4)
_TYPES = {"f32": _F32, "f64": ("double", "fo_i64", 8), "bf16": _F32, "f16": _F32}
"""By the right operand's element type, of those it is computed in: their name in C, an integer of their size, and their bytes."""
NARROW = ("bf16", "f16")
"""Right operands that are widened as they are read; left ones are wide."""
_CHAINS = 8
"""Sums that wait for nothing: where a tile has fewer, each is of several vectors in turn."""
_ROW_CHAINS = 3
"""The same of a single row's sum with a column: enough for one column after another, and sixteen registers hold those of four."""
_STRETCH = 1008
"""Elements of a single row, about, after which its sums are added to others: rounding errors are those of so many."""
_PARTS = ((2, 4), (3, 3), (4, 2), (1, 8), (8, 1))
"""Rows and columns at a time, at most, where vectors are shorter than 64 bytes: what sixteen registers hold."""

_DOT = """\
/* {name}: {rows} x {columns} elements of c, whose rows lie c_step apart, become or (where `add` is not 0) are added to sums
   over k of products of rows of a, a_step apart, and of b, b_step apart; a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast", "tree-slp-vectorize")))  // the sums of vectors' elements, side by side
#endif
static __attribute__((noinline, unused)) void {name}(long k, const {c} *a, long a_at, long a_step,
    const {right} *b, long b_at, long b_step, {c} *c, long c_at, long c_step, long add) {{
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


def dot_name(element: str, rows: int, columns: int, place: str = "") -> str:
    """
    The function for so many rows and columns, and for a right operand of an element type; `place`: where that is, FAR, NEAR, or
    empty for a near cache.
    """
    return f"fo_dot_{element}_{rows}x{columns}{place}"


@cache
def dot_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of such a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    element, rows, columns, place = found[1], int(found[2]), int(found[3]), found[4]
    kind = _TYPES[element][0]
    cut = min(((even_parts(rows, r), even_parts(columns, c)) for r, c in _PARTS), key=_time)
    half, quarter = (
        "".join(
            _part(element, width, of_rows, of_columns, columns, place) for of_rows in cut[0] for of_columns in cut[1]
        )
        for width in (32, 16)
    )
    wide = _part(element, 64, (0, rows), (0, columns), columns, place)
    return _DOT.format(
        name=name,
        rows=rows,
        columns=columns,
        c=kind,
        right="unsigned short" if element in NARROW else kind,
        room=rows * columns,
        wide=wide,
        half=half,
        quarter=quarter,
    )


def _time(cut: tuple[Bounds, Bounds]) -> float:
    """Of a step of all parts, in multiplications; two begin in a cycle, and two loads."""
    sizes = [(b - a, d - c) for a, b in cut[0] for c, d in cut[1]]
    return sum(max(r * c, r + c, _CHAINS / max(1, _CHAINS // (r * c))) for r, c in sizes)


def _part(element: str, width: int, rows: tuple[int, int], columns: tuple[int, int], step: int, place: str) -> str:
    """
    The sums of some rows and columns in vectors of so many bytes, put into `sums`, whose rows lie `step` apart. A single row
    meets one column after another of those that the last cache has: processors read one stream faster than four.
    """
    kind, integer, size = _TYPES[element]
    count = width // size
    pairs = [(i, j) for i in range(*rows) for j in range(*columns)]
    is_single = rows == (0, 1)
    in_turn = is_single and place == NEAR
    chains = _ROW_CHAINS if is_single else max(1, _CHAINS // len(pairs))
    names = [f"s{i}_{j}_{n}" for i, j in pairs for n in range(chains)]
    lines = [
        f"typedef {kind} fo_v __attribute__((vector_size({width}), aligned(sizeof({kind})), may_alias));",
        f"typedef {integer} fo_m __attribute__((vector_size({width})));",
        *narrow_types(element, width),
        f"const fo_m last = (fo_m){{{', '.join(map(str, range(count)))}}} >= (fo_m){{0}} + ({integer})({count} - k % {count});",
        "fo_v " + ", ".join(f"{name} = {{0}}" for name in names) + ";",
        "long p;",
    ]
    for some in [[pair] for pair in pairs] if in_turn else [pairs]:
        lines += _sums(element, some, chains, width, count, place, is_single)
    lines += _folded(count, pairs, step)
    lines.append(f"for (; k < {count} && p < k; p++) {{")
    of_b = f"fo_{element}_to_f32({{}})" if element in NARROW else "{}"
    lines += [
        f"  sums[{i * step + j}] += a[{i} * a_step + p] * {of_b.format(f'b[{j} * b_step + p]')};" for i, j in pairs
    ]
    lines.append("}")
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _sums(
    element: str, pairs: list[tuple[int, int]], chains: int, width: int, count: int, place: str, stretches: bool
) -> list[str]:
    """
    All of the contracted dimension, by vectors of so many bytes and elements, in turn for sums of so many each, the first of
    which has all in the end; `stretches`: whether they are added up after every stretch.
    """
    sums, end = [f"{i}_{j}" for i, j in pairs], "end" if stretches else "k"
    joined = [f"s{name}_0 += s{name}_{n};" for n in range(1, chains) for name in sums]
    lines = ["p = 0;"]
    if stretches:
        lines.append("fo_v " + ", ".join(f"t{name} = {{0}}" for name in sums) + ";")
        stretch = _STRETCH // (chains * count) * chains * count
        lines += ["for (;;) {", f"long end = k - p < {stretch * 3 // 2} ? k : p + {stretch};"]
    if chains > 1:
        lines.append(f"for (; p + {chains * count} <= {end}; p += {chains * count}) {{")
        for n in range(chains):
            lines += _step(element, pairs, n, f"p + {n * count}", False, width, place)
        lines.append("}")
    if stretches:
        cleared = [f"s{name}_{n} = (fo_v){{0}};" for n in range(chains) for name in sums]
        lines += ["if (end == k) break;", *joined, *(f"t{name} += s{name}_0;" for name in sums), *cleared, "}"]
    lines.append(f"for (; p + {count} <= k; p += {count}) {{")
    lines += [*_step(element, pairs, 0, "p", False, width, place), "}"]
    lines.append(f"if (p < k && k >= {count}) {{")
    lines += [*_step(element, pairs, 0, f"k - {count}", True, width, place), "}", *joined]
    return lines + [f"s{name}_0 += t{name};" for name in sums if stretches]


def narrow_types(element: str, width: int) -> list[str]:
    """Vectors of narrow elements, which fill so many bytes once they are widened."""
    if element not in NARROW:
        return []
    stored = f"typedef unsigned short fo_n __attribute__((vector_size({width // 2}), aligned(2), may_alias, unused));"
    return [stored, f"typedef fo_u32 fo_w __attribute__((vector_size({width}), unused));"]


def loaded(element: str, name: str, place: str, width: int) -> list[str]:
    """A vector of the right operand, wide ones as they are."""
    if element not in NARROW:
        return [f"  fo_v {name} = *(const fo_v *)({place});"]
    if element == "bf16":
        return [f"  fo_v {name} = (fo_v)(__builtin_convertvector(*(const fo_n *)({place}), fo_w) << 16);"]
    elements = f"for (unsigned l = 0; l < sizeof {name} / 4; l++) {name}[l] = fo_f16_to_f32(({place})[l]);"
    if width < 32:
        return [f"  fo_v {name} = {{0}};", f"  {elements}"]
    instruction = f'__asm__("vcvtph2ps %1, %0" : "=v"({name}) : "m"(*(const fo_n *)({place})));'
    return [f"  fo_v {name} = {{0}};", "#if defined(__F16C__)", f"  {instruction}", "#else", f"  {elements}", "#endif"]


def _step(
    element: str, pairs: list[tuple[int, int]], chain: int, at: str, masked: bool, width: int, place: str
) -> list[str]:
    """A vector of each row and column, multiplied; masked: without what a vector before had; `place`: see `dot_name`."""
    rows, columns = sorted({i for i, _ in pairs}), sorted({j for _, j in pairs})
    lines: list[str] = []
    for name, numbers, kind in (("a", rows, "f32"), ("b", columns, element)):
        for n in numbers:
            lines += loaded(kind, f"{name}{n}_{chain}", f"{name} + {n} * {name}_step + {at}", width)
            if masked:
                lines.append(f"  {name}{n}_{chain} = (fo_v)((fo_m){name}{n}_{chain} & last);")
    is_wide = place != NEAR and (width == 64 or (place == FAR and width == 32))
    if is_wide and len(rows) <= len(columns) and not masked:
        # those of the next call; a first cache has no room for rows of many columns
        into = ", 0, 2" * (place == FAR)
        lines += [f"  __builtin_prefetch(b + {j + len(columns)} * b_step + {at}{into});" for j in columns]
    if width >= 32:  # gcc would load again for each multiplication
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
