"""Products of few rows with a matrix that is read once, as it comes from memory: eight of its rows at a time, as streams.

All columns of eight rows of the right operand are gone through before the next eight: processors ask ahead for that many streams,
which are as long as rows are, where a tile of few columns reads a line or two of each row. Lines of the next eight are asked for
beside them, as rows are too short for processors to find their pace (1.1 to 1.6 times as fast; Zen 4). Sums of some rows are in a
first cache, and join those of all after a number of rows, so rounding errors stay those of short sums (Higham 1993: the accuracy
of floating point summation, on blocks).
"""

from __future__ import annotations

import re
from functools import cache

from fuse_opt.lowering.c.headers.product_dots import NARROW, loaded, narrow_types
from fuse_opt.lowering.c.headers.tile_kinds import LINE

FAR, NEAR = "r", "n"
"""What a name ends in where no near cache, and where the last one is known to, hold the right operand."""
_ELEMENT = "(f32|f64|bf16|f16)"
_NAME = re.compile(rf"fo_streamed_{_ELEMENT}_{_ELEMENT}_(\d)([{FAR}{NEAR}]?)")
_NEAR_LINES = 8
"""Lines of a stream of which one is asked for where the last cache has them (Zen 4: 66 to 79 GB/s, from memory 20 to 18)."""
_TYPES = {"f32": ("float", 4), "f64": ("double", 8), "bf16": ("unsigned short", 2), "f16": ("unsigned short", 2)}
STREAMS = 8
"""Rows of the right operand at a time."""
DEPTH = 32
"""Such rows whose sums join those of all: their sums wait in memory that a first cache holds."""
SUMS_BYTES = 16 << 10
"""Of the sums of a row of the result at most."""
ALL_SUMS_BYTES = 24 << 10
"""Of the sums of all rows at most."""
_BYTES, _WIDE_BYTES = 32, LINE
"""Of a vector: those of sixteen registers, and of thirty-two. No bit depends on it."""
_SUMS = {1: 8, 2: 4, 3: 4, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1}
_WIDE_SUMS = {1: 8, 2: 8, 3: 4, 4: 4, 5: 4, 6: 4, 7: 2, 8: 2}
"""By rows of the result: vectors of its sums side by side, for which there are registers."""

_TEXT = """\
/* {name}: {rows} row(s) of n columns of c, c_step apart, become sums over k of elements of a, whose rows lie a_step apart and
   columns a_beside, times rows of b, b_step apart; n is {most} at most, and a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(long k, long n, const {a} *a, long a_at, long a_step, long a_beside,
    const {b} *b, long b_at, long b_step, {c} *c, long c_at, long c_step) {{
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
#if defined(__AVX512F__)
{wide_types}#else
{types}#endif
  {c} part[{rows}][{most}] __attribute__((aligned(64)));
  {c} x[{streams}][{rows}];
  a += a_at, b += b_at, c += c_at;
  for (long from = 0; from < k || from == 0; from += {depth}) {{
    const long last = k - from < {depth} ? k : from + {depth};
    long u = from;
    for (long i = 0; i < {rows}; i++)
      for (long j = 0; j < n; j++) part[i][j] = 0;
    for (; (last - u) % {streams}; u++)
      for (long i = 0; i < {rows}; i++) {{
        const {c} y = {last_left};
        const {b} *restrict q = b + u * b_step;
        {c} *restrict sums = part[i];
        for (long j = 0; j < n; j++) sums[j] += y * {last_right};
      }}
    for (; u < last; u += {streams}) {{
      const {b} *q = b + u * b_step;
      for (long s = 0; s < {streams}; s++)
        for (long i = 0; i < {rows}; i++) x[s][i] = {left};
      long j = 0;
#if defined(__AVX512F__)
{wide}#else
{narrow}#endif
      for (; j < n; j++) {{
{elements}      }}
    }}
    for (long i = 0; i < {rows}; i++) {{
      {c} *restrict to = c + i * c_step;
      if (from == 0)
        for (long j = 0; j < n; j++) to[j] = part[i][j];
      else
        for (long j = 0; j < n; j++) to[j] += part[i][j];
    }}
  }}
}}
"""


def streamed_name(left: str, right: str, rows: int, place: str) -> str:
    """
    The function for so many rows of elements of a type, and for a right operand of one; narrow floats are widened as they are
    read. `place`: where the right one is, FAR, NEAR, or empty for a near cache.
    """
    return f"fo_streamed_{left}_{right}_{rows}{place}"


def most_columns(rows: int, itemsize: int) -> int:
    """That such a function goes over."""
    return min(SUMS_BYTES, ALL_SUMS_BYTES // rows) // itemsize


@cache
def streamed_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of one."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    left, right, rows = found[1], found[2], int(found[3])
    kind, size = _TYPES["f32" if right in NARROW else right]
    return _TEXT.format(
        name=name,
        rows=rows,
        a=_TYPES[left][0],
        b=_TYPES[right][0],
        c=kind,
        most=most_columns(rows, size),
        wide_types=_types(kind, right, _WIDE_BYTES),
        types=_types(kind, right, _BYTES),
        streams=STREAMS,
        depth=DEPTH,
        left=_widened(left, "a[i * a_step + (u + s) * a_beside]"),
        last_left=_widened(left, "a[i * a_step + u * a_beside]"),
        last_right=_widened(right, "q[j]"),
        wide=_loops(rows, right, _WIDE_BYTES // size, _WIDE_SUMS[rows], found[4]),
        narrow=_loops(rows, right, _BYTES // size, _SUMS[rows], found[4]),
        elements=_step(
            rows, 1, "fo_c", [f"  const fo_c b0 = {_widened(right, 'q[{s} * b_step + j]')};"], "part[{i}][j]"
        ),
    )


def _types(kind: str, right: str, width: int) -> str:
    vector = f"typedef {kind} fo_c, fo_v __attribute__((vector_size({width}), aligned(sizeof({kind})), may_alias));"
    return "".join(f"  {line}\n" for line in (vector, *narrow_types(right, width)))


def _widened(element: str, place: str) -> str:
    return f"fo_{element}_to_f32({place})" if element in NARROW else place


def _loops(rows: int, right: str, lanes: int, beside: int, place: str) -> str:
    """
    Over columns, some vectors of so many elements at a time, then one by one; they ask for what the next streams have there, or
    for some lines of it, by where the right operand is.
    """
    text, line = "", LINE // _TYPES[right][1] * (_NEAR_LINES if place == NEAR else 1)
    for vectors in sorted({beside, 1}, reverse=True):
        ahead = [
            f"__builtin_prefetch(q + ({STREAMS} + {{s}}) * b_step + j + {at}, 0, 2);"
            for at in range(0, vectors * lanes, line)
        ]
        places = [f"q + {{s}} * b_step + j + {v * lanes}" for v in range(vectors)]
        loads = [text for v, place in enumerate(places) for text in loaded(right, f"b{v}", place, _BYTES)]
        kept = [f'__asm__("" : "+v"(b{v}));' for v in range(vectors)]
        if rows > 1:  # gcc would load it again for each row, from two lines where vectors lie across them
            loads += ["#if defined(__AVX__) && !defined(__clang__)", *kept, "#endif"]
        sums = _step(
            rows, vectors, "fo_v", [*loads, *ahead * bool(place)], "*(fo_v *)(part[{i}] + j + {v} * " + f"{lanes})"
        )
        text += f"      for (; j + {vectors * lanes} <= n; j += {vectors * lanes}) {{\n{sums}      }}\n"
    return text


def _step(rows: int, vectors: int, kind: str, loads: list[str], sums: str) -> str:
    """What is added to sums of all rows at a column, or vectors of these; {i}, {v} and {s} are a row, a vector and a stream."""
    pairs = [(i, v) for i in range(rows) for v in range(vectors)]
    lines = [f"  {kind} " + ", ".join(f"s{i}_{v} = {{0}}" for i, v in pairs) + ";"]
    for s in range(STREAMS):
        lines += ["  {", *(f"  {load.replace('{s}', str(s))}" for load in loads)]
        for i in range(rows):
            lines.append(f"    const fo_c y{i} = x[{s}][{i}];")
            lines.append("    " + " ".join(f"s{i}_{v} += y{i} * b{v};" for v in range(vectors)))
        lines.append("  }")
    lines += [f"  {sums.replace('{i}', str(i)).replace('{v}', str(v))} += s{i}_{v};" for i, v in pairs]
    return "".join(line.strip() + "\n" if line.strip().startswith("#") else f"      {line}\n" for line in lines)
