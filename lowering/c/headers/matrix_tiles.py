"""Tiles of products of narrow elements in matrix registers: those of Intel AMX, eight of 16 rows of 64 bytes.

A step multiplies 16 groups of each of 16 rows of the left operand with as many rows of a panel, as `vpdpbusd` and `vdpbf16ps`
do a group: panels and copied rows are the same (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 18).
Four registers hold sums, two the left operand and two the right one. Groups that are left over are copied between zeros first,
as registers of other extents would have to be set up, which clears all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.lowering.c.headers.tile_steps import Bounds, even_parts

SIDE = 16
"""Rows of a register, and groups of each."""
MOST_ROWS = 2 * SIDE
"""Of a tile."""
MOST_COLUMNS = 3 * SIDE
"""Of a tile, which is gone through in parts where they are more than two registers have."""
FEWEST_ROWS = 8
"""Of a tile for which it is worth setting up the registers."""
_LINE = 4 * SIDE
"""Bytes of a row of a register."""

_TEXT = """\
#if defined({feature})
  if (k >= {side} && fo_matrix_tiles()) {{
{parts}    __asm__ volatile("tilerelease");
    return;
  }}
#endif
"""
_PART = """\
    {{
      static const struct {{ unsigned char palette, from, unused[14]; unsigned short bytes[16]; unsigned char rows[16]; }}
          extents __attribute__((aligned({line}))) = {{1, 0, {{0}}, {{{bytes}}}, {{{lines}}}}};
      const char *left = (const char *)a, *right = (const char *)(b + {first});
      const long left_step = a_step * sizeof *a, right_step = 4 * b_step, sums_step = 4 * c_step;
      for (int *row = (int *)c, *end = row + {rows} * c_step; row < end; row += c_step)
        __builtin_prefetch(row + {first}, 1), __builtin_prefetch(row + {last}, 1);
      __asm__ volatile("ldtilecfg %0" : : "m"(extents));
{sums}
      for (long p = 0; p + {side} <= k; p += {side}, left += {line}, right += {side} * right_step) {{
{step}
      }}
      if (k % {side}) {{
        const long n = k % {side};
        fo_u32 rows[{rows}][{side}] __attribute__((aligned({line}))), groups[{side}][{most}] __attribute__((aligned({line})));
        for (long i = 0; i < {rows}; i++) fo_matrix_line(left + i * left_step, n, rows[i]);
        for (long p = 0; p < {side}; p++)
          for (long j = 0; j < {columns}; j += {side})
            fo_matrix_line(right + p * right_step + 4 * j, p < n ? {columns} - j : 0, groups[p] + j);
        left = (const char *)rows, right = (const char *)groups;
        const long left_step = {line}, right_step = {groups_step};
{step}
      }}
{stores}
    }}
"""


def matrix_tile(rows: int, columns: int, feature: str, instruction: str, moved: bool) -> str:
    """
    The statements of a tile, which end it where the process has such registers; "" for one that is too large, or gains
    nothing. `moved`: sums are less by a row behind the panel.
    """
    if not (FEWEST_ROWS <= rows <= MOST_ROWS and columns <= MOST_COLUMNS):
        return ""
    side = 2 * SIDE
    bounds = [(at, min(at + side, columns)) for at in range(0, columns, side)]
    parts = "".join(_Part(even_parts(rows, SIDE), first, end).text(rows, instruction, moved) for first, end in bounds)
    return _TEXT.format(feature=feature, side=SIDE, parts=parts)


@dataclass(frozen=True, slots=True)
class _Part:
    """Of a tile: all rows, and the columns for which there are registers; these are sums row by row, then operands."""

    down: Bounds
    first: int
    end: int

    @property
    def across(self) -> Bounds:
        return [(at, min(at + SIDE, self.end)) for at in range(self.first, self.end, SIDE)]

    def text(self, rows: int, instruction: str, moved: bool) -> str:
        heights, widths = ([end - first for first, end in bounds] for bounds in (self.down, self.across))
        lines = [height for height in heights for _ in widths] + heights + [SIDE] * len(widths)
        wide = [4 * width for _ in heights for width in widths] + [_LINE] * len(heights) + [4 * w for w in widths]
        places = [f"c + {row} * c_step + {column}" for row, _ in self.down for column, _ in self.across]
        stores = [
            f'__asm__ volatile("tilestored %%tmm{number}, (%0,%1,1)" : : "r"({place}), "r"(sums_step) : "memory");'
            for number, place in enumerate(places)
        ]
        return _PART.format(
            side=SIDE,
            line=_LINE,
            rows=rows,
            most=2 * SIDE,
            groups_step=2 * _LINE,
            first=self.first,
            last=self.end - 1,
            columns=self.end - self.first,
            bytes=", ".join(map(str, wide)),
            lines=", ".join(map(str, lines)),
            sums=_indented(self._sums(rows, places, moved), 6),
            step=_indented(self._step(instruction), 8),
            stores=_indented(stores, 6),
        )

    def _step(self, instruction: str) -> list[str]:
        """Loads a part of the operands, and multiplies each of the left one with each of the right one."""
        sums, count = len(self.down) * len(self.across), len(self.across)
        right = [sums + len(self.down) + j for j in range(count)]
        found = [_load(number, f"right + {_LINE * j}", "right_step") for j, number in enumerate(right)]
        for i, (row, _) in enumerate(self.down):
            found.append(_load(sums + i, f"left + {row} * left_step", "left_step"))
            found += [
                f'__asm__ volatile("{instruction} %%tmm{number}, %%tmm{sums + i}, %%tmm{i * count + j}" : :);'
                for j, number in enumerate(right)
            ]
        return found

    def _sums(self, rows: int, places: list[str], moved: bool) -> list[str]:
        """What sums begin with."""
        loads = [_load(number, place, "sums_step") for number, place in enumerate(places)]
        if moved:
            columns = [column for _ in self.down for column, _ in self.across]
            less = [_load(number, f"less + {column - self.first}", "0L") for number, column in enumerate(columns)]
            return [
                "const int *behind = (const int *)(b + k * b_step);",
                "if (add) {",
                f"  for (long i = 0; i < {rows}; i++)",
                f"    for (long j = {self.first}; j < {self.end}; j++)",
                "      c[i * c_step + j] = (int)((unsigned)c[i * c_step + j] - (unsigned)behind[j]);",
                *(f"  {line}" for line in loads),
                "} else {",
                f"  int less[{2 * SIDE}] __attribute__((aligned({_LINE})));  // which all rows begin with",
                f"  for (long j = {self.first}; j < {self.end}; j++) less[j - {self.first}] = (int)-(unsigned)behind[j];",
                *(f"  {line}" for line in less),
                "}",
            ]
        zeros = [f'__asm__ volatile("tilezero %%tmm{number}" : :);' for number in range(len(places))]
        return ["if (add) {", *(f"  {line}" for line in loads), "} else {", *(f"  {line}" for line in zeros), "}"]


def _load(number: int, place: str, step: str) -> str:
    return f'__asm__ volatile("tileloadd (%0,%1,1), %%tmm{number}" : : "r"({place}), "r"({step}) : "memory");'


def _indented(lines: list[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
