"""Tiles of sums over taps whose vectors are of neighbouring channels, each with a weight of its own, at some positions: of a copy
with zeros around it, or where the input lies, over those taps that are inside."""

from __future__ import annotations

import re
from functools import cache

_NAME = re.compile(r"fo_lanes_(f32|f64)_(\d+)")
_INSIDE_NAME = re.compile(r"fo_inner_lanes_(f32|f64)_(\d+)x(\d+)")
_TYPES = {"f32": "float", "f64": "double"}

_VECTOR = """\
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
#if defined(__AVX512F__)
  enum { bytes = 64 };
#elif defined(__AVX__)
  enum { bytes = 32 };
#else
  enum { bytes = 16 };
#endif
  typedef @ fo_v __attribute__((vector_size(bytes), aligned(sizeof(@)), may_alias));
"""
"""The first lines of a function: sums of products round once, and the vectors that the machine has of a type, which is @."""

_TILE = """\
/* {name}: sums of n channels at {positions} positions, c_step apart in c, over k taps: of elements of a, whose positions
   lie a_step apart, as far from there as a tap says, times those of b, whose taps lie b_step apart. n is a multiple of
   what 64 bytes hold; a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(long n, const {c} *a, long a_at, long a_step,
    const long *taps, long k, const {c} *b, long b_at, long b_step, {c} *c, long c_at, long c_step) {{
{vector}  a += a_at, b += b_at, c += c_at;
  for (long j = 0; j < n; j += bytes / (long)sizeof({c})) {{
    fo_v {zeros};
    for (long t = 0; t < k; t++) {{
      const {c} *restrict q = a + taps[t] + j;
      const fo_v w = *(const fo_v *)(b + t * b_step + j);
      {steps}
    }}
    {stores}
  }}
}}
"""

_INSIDE = """\
/* {name}: sums of n channels at {positions} positions, c_step apart in c, over the taps of windows that lie inside: so many rows,
   a_row apart in a and b_row in b, of {taps} elements, a_tap and b_tap apart. Positions lie a_step apart in a. n is a multiple
   of what 64 bytes hold; a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(long n, const {c} *a, long a_at, long a_step, long rows, long a_row,
    long side, long a_tap, const {c} *b, long b_at, long b_row, long b_tap, {c} *c, long c_at, long c_step) {{
{vector}  a += a_at, b += b_at, c += c_at;
  for (long j = 0; j < n; j += bytes / (long)sizeof({c})) {{
    fo_v {zeros};
    for (long r = 0; r < rows; r++) {{
      const {c} *restrict q = a + r * a_row + j, *restrict p = b + r * b_row + j;
      {steps}
    }}
    {stores}
  }}
}}
"""
_MOST_UNROLLED = 8
"""Taps of a row that are written one by one."""


def lanes_name(element: str, positions: int) -> str:
    """The function for so many positions."""
    return f"fo_lanes_{element}_{positions}"


def inside_lanes_name(element: str, positions: int, side: int) -> str:
    """The function for so many positions whose windows have so many taps in a row; a side of 0 stands for any number."""
    return f"fo_inner_lanes_{element}_{positions}x{side if side <= _MOST_UNROLLED else 0}"


@cache
def lanes_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of such a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return _inside_text(name)
    kind, count = _TYPES[found[1]], range(int(found[2]))
    return _TILE.format(
        vector=_VECTOR.replace("@", kind),
        name=name,
        c=kind,
        positions=len(count),
        zeros=", ".join(f"s{i} = {{0}}" for i in count),
        steps=" ".join(f"s{i} += *(const fo_v *)(q + {i} * a_step) * w;" for i in count),
        stores=" ".join(f"*(fo_v *)(c + {i} * c_step + j) = s{i};" for i in count),
    )


def _inside_text(name: str) -> str | None:
    found = _INSIDE_NAME.fullmatch(name)
    if found is None:
        return None
    kind, count, side = _TYPES[found[1]], range(int(found[2])), int(found[3])

    def step(tap: str) -> str:
        sums = " ".join(f"s{i} += *(const fo_v *)(q + {tap} * a_tap + {i} * a_step) * w;" for i in count)
        return f"{{ const fo_v w = *(const fo_v *)(p + {tap} * b_tap); {sums} }}"

    written = [step(str(tap)) for tap in range(side)]
    return _INSIDE.format(
        vector=_VECTOR.replace("@", kind),
        name=name,
        c=kind,
        positions=len(count),
        taps=side or "`side`",
        zeros=", ".join(f"s{i} = {{0}}" for i in count),
        steps="\n      ".join(written) if side else f"for (long t = 0; t < side; t++) {step('t')}",
        stores=" ".join(f"*(fo_v *)(c + {i} * c_step + j) = s{i};" for i in count),
    )
