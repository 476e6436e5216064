"""Sums over the taps of a window whose vectors are of neighbouring positions of a row of one plane, read where it lies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

_NAME = re.compile(r"fo_plane_f32_(\d+)x(\d+)s(\d+)x(\d+)")
LANES = 8
"""Of a vector of 32 bytes."""
STRIDES = (1, 2)
"""That a function may have: with 2 it takes the elements of a row apart as it reads them."""
MOST_TAPS = {1: 49, 2: 25}
"""By how far columns are apart. More make less of the processor than copies do, and compilers take long."""
_ROWS = 4
"""Rows of positions at a time; half as many where windows are two rows apart."""

_FUNCTION = """\
/* {name}: at rows `top` to `bottom` and columns `left` to `right`, sums over the {taps} taps of windows of {height} rows of
   {width} that are {down} rows and {right} columns apart. The first one begins `up` rows and `before` columns outside of a
   plane of `rows` rows of `count` elements, `row` apart, with zeros around it; rows of c are c_row apart. The same of so many
   planes, x_plane and c_plane apart, of which the first one is of a group of so many: one after the other has weights of its
   own. A product and a sum round once. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(const float *x, long x_at, long row, long rows, long count,
    const float *w, float *c, long c_at, long c_row, long up, long before, long top, long bottom, long left, long right,
    long planes, long x_plane, long c_plane, long group, long groups) {{
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  x += x_at, c += c_at;
  static const float zeros[{reach}] = {{0}};
  for (; planes > 0; planes--, x += x_plane, c += c_plane, group = group + 1 < groups ? group + 1 : 0) {{
  const float *of_group = w + group * {taps};
#if defined(__AVX2__) && defined(__GNUC__) && !defined(__clang__) /* with __builtin_shuffle */
  typedef float fo_r __attribute__((vector_size(32)));
  typedef float fo_v __attribute__((vector_size(32), aligned(4), may_alias));
  typedef float fo_4 __attribute__((vector_size(16), aligned(4), may_alias));
  typedef double fo_pairs __attribute__((vector_size(32)));
  typedef int fo_mask __attribute__((vector_size(32)));
  typedef long long fo_halves __attribute__((vector_size(32)));
  const fo_mask lane = {{0, 1, 2, 3, 4, 5, 6, 7}};
{masked}
#else
  typedef float fo_r __attribute__((vector_size(16)));
  typedef float fo_v __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int fo_words __attribute__((vector_size(16)));
  typedef int fo_word __attribute__((may_alias));
{portable}
#endif
  }}
}}
"""
_COLUMNS = """\
  const fo_r {weights};
  /* The last vector of a row begins earlier, where the row is as long: what it writes twice is the same. */
  for (long j = left; j < right; j += {lanes}) {{
    const long at = j + {lanes} > right && right - left >= {lanes} ? right - {lanes} : j;
    const long some = right - at < {lanes} ? right - at : {lanes}, first = at * {right} - before;
    if (first >= 0 && first + {reach} <= count && some == {lanes}) {{
{inside}
      continue;
    }}
{masks}{edge}
  }}"""
_MASKS = """\
    const fo_mask {masks};
    const int stored = (1 << some) - 1;
    (void)stored;
"""
_LAST = """\
#if defined(__AVX512VL__)
__builtin_ia32_storeups256_mask(q, {sum}, (unsigned char)stored);
#else
if (some == 8) *(fo_v *)q = {sum};
else {{
  const fo_r last = {sum};
  const float *from = (const float *)&last;
  if (some & 4) *(fo_4 *)q = *(const fo_4 *)from, from += 4, q += 4;
  if (some & 2) q[0] = from[0], q[1] = from[1], from += 2, q += 2;
  if (some & 1) q[0] = from[0];
}}
#endif"""


@dataclass(frozen=True, slots=True)
class _Window:
    """What a function of that name sums over, and in which order it does, in vectors that any compiler of GNU C has."""

    height: int
    width: int
    down: int
    right: int
    lanes: int = 4

    @property
    def taps(self) -> int:
        return self.height * self.width

    @property
    def at_a_time(self) -> int:
        """Rows of positions."""
        return _ROWS // self.down

    @property
    def reach(self) -> int:
        """Elements of a row of the plane that are read for a vector."""
        return (self.lanes - 1) * self.right + self.width

    def columns(self) -> str:
        """The loop over vectors along rows of positions."""
        return _COLUMNS.format(
            weights=",\n      ".join(
                f"w{t} = {{{', '.join([f'of_group[{t}]'] * self.lanes)}}}" for t in range(self.taps)
            ),
            lanes=self.lanes,
            right=self.right,
            reach=self.reach,
            masks=self._masks(),
            inside=_indented(self._body(is_edge=False), 6),
            edge=_indented(self._body(is_edge=True), 4),
        )

    def _body(self, is_edge: bool) -> str:
        """Rows of positions of a vector, and one that is left alone; at an edge of the plane what lies outside is not read."""
        several = f"for (; y + 1 < bottom; y += {self.at_a_time}) {{"
        return "\n".join(
            [
                "long y = top;",
                *(several, *self._rows(self.at_a_time, is_edge), "}"),
                *("if (y < bottom) {", *self._rows(1, is_edge), "}"),
            ]
        )

    def _rows(self, rows: int, is_edge: bool) -> Iterator[str]:
        yield f"  fo_r {', '.join(f's{o} = {{0}}' for o in range(rows))};"
        yield from self._sums(rows, is_edge)
        for place in range(rows):
            yield f"  if (y + {place} < bottom) {{" if place else "  {"
            yield f"    float *q = c + (y + {place}) * c_row + at;"
            yield from (f"    {line}" for line in self._store(f"s{place}", is_edge).splitlines())
            yield "  }"

    def _sums(self, rows: int, is_edge: bool) -> Iterator[str]:
        for line in range((rows - 1) * self.down + self.height):
            yield "  {"
            yield f"    const long i = y * {self.down} - up + {line};"
            yield "    const float *q = i >= 0 && i < rows ? x + i * row + first : zeros;"
            yield from (f"    {read}" for read in self._reads(is_edge))
            for place in range(rows):
                if 0 <= (above := line - place * self.down) < self.height:
                    products = (f"s{place} += x{k} * w{above * self.width + k};" for k in range(self.width))
                    yield f"    {' '.join(products)}"
            yield "  }"

    def _masks(self) -> str:
        """Of the elements that are read: where they lie, or others in their place, and all bits of those there are."""
        each = (
            f"met{n} = -(first + {n} >= 0 && first + {n} < count), at{n} = met{n} & (first + {n});"
            for n in range(self.reach)
        )
        return "".join(f"    const long {one}\n" for one in each)

    def _reads(self, is_edge: bool) -> Iterator[str]:
        """Vectors of a row of the plane, one for each column of the window."""
        if is_edge:
            yield "const long is_row = -(i >= 0 && i < rows);"
            yield "const fo_word *words = (const fo_word *)(x + (is_row & i) * row);"
            yield from (f"const int e{n} = words[at{n}] & (int)(met{n} & is_row);" for n in range(self.reach))
        for k in range(self.width):
            places = range(k, k + self.lanes * self.right, self.right)
            each = f"*(const fo_v *)(q + {k})" if self.right == 1 else f"{{{', '.join(f'q[{n}]' for n in places)}}}"
            if is_edge:
                each = f"(fo_r)(fo_words){{{', '.join(f'e{n}' for n in places)}}}"
            yield f"const fo_r x{k} = {each};"

    def _store(self, sums: str, is_edge: bool) -> str:
        return f"for (long n = 0; n < some; n++) q[n] = {sums}[n];" if is_edge else f"*(fo_v *)q = {sums};"


@dataclass(frozen=True, slots=True)
class _MaskedWindow(_Window):
    """The same in vectors of 32 bytes, with masks at edges."""

    lanes: int = LANES

    @property
    def offsets(self) -> list[int]:
        """Where vectors of a row of the plane begin; those of two columns apart are pairs that lie side by side."""
        if self.right == 1:
            return list(range(self.width))
        return [place for column in range(0, self.width, 2) for place in (column, column + LANES)]

    @property
    def reach(self) -> int:
        return max(self.offsets) + LANES

    def _masks(self) -> str:
        masks = (
            f"m{number} = (lane + (int)(first + {offset}) >= 0) & (lane + (int)(first + {offset}) < (int)count)"
            for number, offset in enumerate(self.offsets)
        )
        return _MASKS.format(masks=",\n        ".join(masks))

    def _reads(self, is_edge: bool) -> Iterator[str]:
        name = "x" if self.right == 1 else "g"
        for number, offset in enumerate(self.offsets):
            masked = f"__builtin_ia32_maskloadps256((const fo_r *)(q + {offset}), m{number})"
            yield f"const fo_r {name}{number} = {masked if is_edge else f'*(const fo_v *)(q + {offset})'};"
        for column in range(self.width if self.right == 2 else 0):
            pair, picked = column // 2 * 2, [k + column % 2 for k in (0, 2, 8, 10, 4, 6, 12, 14)]
            chosen = f"__builtin_shuffle(g{pair}, g{pair + 1}, (fo_mask){{{', '.join(map(str, picked))}}})"
            yield f"const fo_r x{column} = {chosen};"

    def _store(self, sums: str, is_edge: bool) -> str:
        if self.right == 2:  # halves of registers were taken apart each by itself
            sums = f"(fo_r)__builtin_shuffle((fo_pairs){sums}, (fo_halves){{0, 2, 1, 3}})"
        return _LAST.format(sum=sums) if is_edge else f"*(fo_v *)q = {sums};"


def _indented(text: str, columns: int) -> str:
    return "\n".join(" " * columns + line for line in text.splitlines())


def plane_sums_name(window: tuple[int, int], strides: tuple[int, int]) -> str:
    """The function for a window of so many rows and columns."""
    return "fo_plane_f32_{}x{}s{}x{}".format(*window, *strides)


@cache
def plane_sums_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of such sums."""
    if (found := _NAME.fullmatch(name)) is None:
        return None
    height, width, down, right = map(int, found.groups())
    masked, portable = (kind(height, width, down, right) for kind in (_MaskedWindow, _Window))
    return _FUNCTION.format(
        name=name,
        taps=masked.taps,
        height=height,
        width=width,
        down=down,
        right=right,
        reach=masked.reach,
        masked=masked.columns(),
        portable=portable.columns(),
    )
