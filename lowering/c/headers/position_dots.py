"""Dot products of a row of positions with what each tap of a window reads, summed up in vectors of positions."""

from __future__ import annotations

import re
from functools import cache

_NAME = re.compile(r"fo_(dots_(f32|f64)_(\d+)|totals_(f32|f64))")
_TYPES = {"f32": ("float", "int"), "f64": ("double", "long")}

_DOTS = """\
/* {name}: adds to {taps} vectors of c, 64 bytes apart, products of rows of b with those of a, from the places on that the
   first of so many taps say. What lies behind a row is read, and does not count; a product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(long rows, long columns, const {c} *a, long a_at, long a_row,
    const long *taps, long first, const {c} *b, long b_at, long b_row, {c} *c, long c_at) {{
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
#if defined(__AVX512F__)
  enum {{ bytes = 64 }};
#elif defined(__AVX__)
  enum {{ bytes = 32 }};
#else
  enum {{ bytes = 16 }};
#endif
  enum {{ lanes = bytes / sizeof({c}), step = 64 / sizeof({c}) }};
  typedef {c} fo_v __attribute__((vector_size(bytes), aligned(sizeof({c})), may_alias));
  typedef {i} fo_m __attribute__((vector_size(bytes), aligned(sizeof({c})), may_alias));
  a += a_at, b += b_at, c += c_at, taps += first;
  const long whole = columns / lanes * lanes;
  fo_m inside;
  for (long l = 0; l < lanes; l++) inside[l] = l < columns - whole ? -1 : 0;
  fo_v {loads};
  for (long r = 0; r < rows; r++) {{
    const {c} *p = b + r * b_row, *q = a + r * a_row;
    const {c} {places};
    for (long j = 0; j < whole; j += lanes) {{
      const fo_v w = *(const fo_v *)(p + j);
      {steps}
    }}
    if (whole < columns) {{
      const fo_v w = (fo_v)(*(const fo_m *)(p + whole) & inside);
      {rest}
    }}
  }}
  {stores}
}}
"""

_TOTALS = """\
/* {name}: n sums of the 64 bytes of each of as many vectors, halves first. */
static __attribute__((noinline, unused)) void {name}(long n, const {c} *a, long a_at, {c} *c, long c_at) {{
  enum {{ lanes = 64 / sizeof({c}) }};
  for (long i = 0; i < n; i++) {{
    const {c} *q = a + a_at + i * lanes;
    {c} t[lanes / 2];
    for (long l = 0; l < lanes / 2; l++) t[l] = q[l] + q[l + lanes / 2];
    for (long half = lanes / 4; half > 0; half /= 2)
      for (long l = 0; l < half; l++) t[l] += t[l + half];
    c[c_at + i] = t[0];
  }}
}}
"""


def dots_name(element: str, taps: int) -> str:
    """The function for so many taps."""
    return f"fo_dots_{element}_{taps}"


def totals_name(element: str) -> str:
    """The function that makes sums of vectors."""
    return f"fo_totals_{element}"


@cache
def position_dots_text(name: str) -> str | None:
    """The function of that name; None where it is none of these."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    c, integer = _TYPES[found[2] or found[4]]
    if found[3] is None:
        return _TOTALS.format(name=name, c=c)
    count = range(int(found[3]))
    return _DOTS.format(
        name=name,
        c=c,
        i=integer,
        taps=len(count),
        loads=", ".join(f"s{k} = *(const fo_v *)(c + {k} * step)" for k in count),
        places=", ".join(f"*q{k} = q + taps[{k}]" for k in count),
        steps=" ".join(f"s{k} += *(const fo_v *)(q{k} + j) * w;" for k in count),
        rest=" ".join(f"s{k} += (fo_v)(*(const fo_m *)(q{k} + whole) & inside) * w;" for k in count),
        stores=" ".join(f"*(fo_v *)(c + {k} * step) = s{k};" for k in count),
    )
