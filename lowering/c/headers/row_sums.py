"""Products of few rows with a matrix that is read once, as it comes from memory: eight of its rows at a time, as streams.

All columns of eight rows of the right operand are gone through before the next eight, a line or two of each at a time: processors
ask ahead for that many streams, which are as long as rows are, where a tile of few columns reads a line or two of each row. Where
they come from memory, lines of the next eight are asked for beside them, as rows are too short for processors to find their pace
(1.1 to 1.6 times as fast; Zen 4). Sums of some rows are in a first cache, and join those of all with the last eight of them: no
stream waits for that, and rounding errors stay those of short sums (Higham 1993: the accuracy of floating point summation, on
blocks).
"""

from __future__ import annotations

import re
from functools import cache

from fuse_opt.lowering.c.headers.product_dots import FAR, NARROW, loaded, narrow_types
from fuse_opt.lowering.c.headers.tile_kinds import LINE

_ELEMENT = "(f32|f64|bf16|f16)"
_NAME = re.compile(rf"fo_streamed_{_ELEMENT}_{_ELEMENT}_(\d)({FAR}?)")
_TYPES = {"f32": ("float", 4), "f64": ("double", 8), "bf16": ("unsigned short", 2), "f16": ("unsigned short", 2)}
STREAMS = 8
"""Rows of the right operand at a time."""
DEPTH, LONG_DEPTH, LONG = 32, 128, 256
"""
Such rows whose sums join those of all: their sums wait in memory that a first cache holds. The second of more rows than the third
where sums of eight are in two halves, so that rounding errors are no larger; joining less often is 1.01 to 1.03 times as fast
(Zen 4).
"""
HALVED_ROWS = 3
"""Rows of the result up to which there are registers for halves."""
SUMS_BYTES = 16 << 10
"""Of the sums of a row of the result at most."""
ALL_SUMS_BYTES = 24 << 10
"""Of the sums of all rows at most."""
_BYTES, _WIDE_BYTES = 32, LINE
"""Of a vector: those of sixteen registers, and of thirty-two. No bit depends on it."""
_PAIRED_ROWS = {_BYTES: (1, 4), _WIDE_BYTES: (2, 3)}
"""
By the bytes of a vector: rows of the result, the fewest and the most, of whose sums two vectors are side by side, else there is
one. Streams whose lines are met in turn are read the fastest: with four or eight vectors, one to eight rows take 1.0 to 1.4 times
as long, and from memory one line at a time is the best (measured on Zen 4).
"""

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
  const long depth = {depth};
  for (long from = 0; from < k || from == 0; from += depth) {{
    const long last = k - from < depth ? k : from + depth;
    long u = from;
    int has_part = (last - u) % {streams} || u == last;
    if (has_part)
      for (long i = 0; i < {rows}; i++)
        for (long j = 0; j < n; j++) part[i][j] = 0;
    for (; (last - u) % {streams}; u++)
      for (long i = 0; i < {rows}; i++) {{
        const {c} y = {last_left};
        const {b} *restrict q = b + u * b_step;
        {c} *restrict sums = part[i];
        for (long j = 0; j < n; j++) sums[j] += y * {last_right};
      }}
    if (u == last)
      for (long i = 0; i < {rows}; i++)
        for (long j = 0; j < n; j++) c[i * c_step + j] = from == 0 ? part[i][j] : c[i * c_step + j] + part[i][j];
    for (; u < last; u += {streams}, has_part = 1) {{
      const {b} *q = b + u * b_step;
      const int joins = u + {streams} == last && from != 0;
      {c} *to = u + {streams} == last ? c : part[0];
      const long to_step = u + {streams} == last ? c_step : {most};
      for (long s = 0; s < {streams}; s++)
        for (long i = 0; i < {rows}; i++) x[s][i] = {left};
      long j = 0;
#if defined(__AVX512F__)
{wide}#else
{narrow}#endif
      for (; j < n; j++) {{
{elements}      }}
    }}
  }}
}}
"""


def streamed_name(left: str, right: str, rows: int, place: str) -> str:
    """
    The function for so many rows of elements of a type, and for a right operand of one; narrow floats are widened as they are
    read. `place`: FAR, or empty where a cache holds the right one.
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
        depth=f"k > {LONG} ? {LONG_DEPTH} : {DEPTH}" if rows <= HALVED_ROWS else DEPTH,
        left=_widened(left, "a[i * a_step + (u + s) * a_beside]"),
        last_left=_widened(left, "a[i * a_step + u * a_beside]"),
        last_right=_widened(right, "q[j]"),
        wide=_loops(rows, right, _WIDE_BYTES, size, is_far=found[4] == FAR),
        narrow=_loops(rows, right, _BYTES, size, is_far=found[4] == FAR),
        elements=_step(rows, 1, "fo_c", [f"  const fo_c b0 = {_widened(right, 'q[{s} * b_step + j]')};"], 1),
    )


def _types(kind: str, right: str, width: int) -> str:
    vector = f"typedef {kind} fo_c, fo_v __attribute__((vector_size({width}), aligned(sizeof({kind})), may_alias));"
    return "".join(f"  {line}\n" for line in (vector, *narrow_types(right, width)))


def _widened(element: str, place: str) -> str:
    return f"fo_{element}_to_f32({place})" if element in NARROW else place


def _loops(rows: int, right: str, width: int, size: int, *, is_far: bool) -> str:
    """
    Over columns, some vectors of so many bytes at a time, then one by one, with sums of elements of a size; from far away they
    ask for what the next streams have there (asking for what the last cache has makes them .75 to 1.0 times as fast; Zen 4).
    """
    text, lanes, line = "", width // size, LINE // _TYPES[right][1]
    fewest, last = _PAIRED_ROWS[width]
    most = 2 if fewest <= rows <= last else 1
    beside = max(1, min(most, line // lanes)) if is_far else most
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
        sums = _step(rows, vectors, "fo_v", [*loads, *ahead * is_far], lanes)
        text += f"      for (; j + {vectors * lanes} <= n; j += {vectors * lanes}) {{\n{sums}      }}\n"
    return text


def _step(rows: int, vectors: int, kind: str, loads: list[str], lanes: int) -> str:
    """What is added to sums of all rows at a column, or vectors of these; {s} is a stream."""
    pairs = [(i, v) for i in range(rows) for v in range(vectors)]
    halves = "sr" if rows <= HALVED_ROWS else "s"
    lines = [f"  {kind} " + ", ".join(f"{half}{i}_{v} = {{0}}" for half in halves for i, v in pairs) + ";"]
    for s in range(STREAMS):
        half = halves[s * len(halves) // STREAMS]
        lines += ["  {", *(f"  {load.replace('{s}', str(s))}" for load in loads)]
        for i in range(rows):
            lines.append(f"    const fo_c y{i} = x[{s}][{i}];")
            lines.append("    " + " ".join(f"{half}{i}_{v} += y{i} * b{v};" for v in range(vectors)))
        lines.append("  }")

    def each(text: str) -> list[str]:
        return [text.format(i=i, v=v, at=f"j + {v * lanes}", kind=kind) for i, v in pairs]

    lines += each("  s{i}_{v} += r{i}_{v};") if len(halves) > 1 else []
    for holds, place in (("has_part", "part[{i}] + {at}"), ("joins", "c + {i} * c_step + {at}")):
        lines += [f"  if ({holds}) {{", *each("    s{i}_{v} = *({kind} *)(" + place + ") + s{i}_{v};"), "  }"]
    lines += each("  *({kind} *)(to + {i} * to_step + {at}) = s{i}_{v};")
    return "".join(line.strip() + "\n" if line.strip().startswith("#") else f"      {line}\n" for line in lines)
