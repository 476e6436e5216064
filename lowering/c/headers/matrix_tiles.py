"""Tiles of products of narrow elements in matrix registers: those of Intel AMX, eight of 16 rows of 64 bytes.

A step multiplies 16 groups of each of 16 rows of the left operand with as many rows of a panel, as `vpdpbusd` and `vdpbf16ps`
do a group: panels and rows are the same (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 18). Four
registers hold sums, one the left operand and one the right one, and two those of groups that are left over.

All tiles of a product have registers of the same extents, as setting these up clears them, and waits for the stores before:
where rows, or columns, are no multiple of a register's, the last register begins earlier, and has some sums that the one
before it has, too. They are loaded, and stored, together, so both store the same.
"""

from __future__ import annotations

from collections.abc import Iterator

SIDE = 16
"""Rows of a register, and groups of each."""
MOST_ROWS = 2 * SIDE
"""Of a tile."""
FEWEST_ROWS = 8
"""Of a tile that has so many of a register's; fewer are soon done with vectors."""
_SUMS = 4
"""Registers for sums."""
_LINE = 4 * SIDE
"""Bytes of a row of a register."""

_TEXT = """\
#if defined({feature})
  if (k >= {side} && fo_matrix_tiles()) {{
    const char *left = (const char *)a, *right = (const char *)b;
    const long left_step = a_step * sizeof *a, right_step = 4 * b_step, sums_step = 4 * c_step;
    fo_matrix_extents(registers, {rows}, {columns}, k % {side});
    if (add) {{
{loads}
    }} else {{
{zeros}
    }}
    // sums go to lines that may be far away: those of some rows are asked for at a time, as all at once would keep loads waiting
    const long each = ({every} * {side} + k - 1) / k;
    for (long p = 0, row = 0; p + {side} <= k; p += {side}, left += {line}, right += {side} * right_step) {{
      for (const long end = row + each < {every} ? row + each : {every}; row < end; row++) {{
{asks}
      }}
{step}
    }}
    if (k % {side}) {{
{rest}
    }}
{stores}
    return;
  }}
#endif
"""


def has_matrix_tile(rows: int, columns: int) -> bool:
    """Whether the sums of a tile are in matrix registers, where there are some."""
    return FEWEST_ROWS <= rows <= MOST_ROWS and len(_starts(rows)) * len(_starts(columns)) <= _SUMS


def matrix_tile(rows: int, columns: int, feature: str, instruction: str) -> str:
    """The statements of a tile, which end it where the process has such registers; "" where it has vectors alone."""
    if not has_matrix_tile(rows, columns):
        return ""
    places = [f"c + {row} * c_step + {column}" for row in _starts(rows) for column in _starts(columns)]
    loads = [_load(number, place, "sums_step") for number, place in enumerate(places)]
    zeros = [f'__asm__ volatile("tilezero %%tmm{number}" : :);' for number in range(len(places))]
    stores = [
        f'__asm__ volatile("tilestored %%tmm{number}, (%0,%1,1)" : : "r"({place}), "r"(sums_step) : "memory");'
        for number, place in enumerate(places)
    ]
    return _TEXT.format(
        feature=feature,
        side=SIDE,
        line=_LINE,
        rows=min(rows, SIDE),
        every=rows,
        asks=_indented(
            [f"__builtin_prefetch(c + row * c_step + {at}, 1);" for at in (*range(0, columns, SIDE), columns - 1)], 8
        ),
        columns=min(columns, SIDE),
        loads=_indented(loads, 6),
        zeros=_indented(zeros, 6),
        step=_indented(_step(rows, columns, instruction, _SUMS), 6),
        rest=_indented(_step(rows, columns, instruction, _SUMS + 2), 6),
        stores=_indented(stores, 4),
    )


def _starts(count: int) -> list[int]:
    """Where registers of so many rows or columns begin."""
    return sorted({*range(0, count - SIDE + 1, SIDE), max(count - SIDE, 0)})


def _step(rows: int, columns: int, instruction: str, left: int) -> Iterator[str]:
    """
    Multiplies each part of the left operand with each of the right one, in two registers from `left` on: back and forth, so
    that one of them stays. Processors have more than those that are named, so loads need not wait.
    """
    right, there = left + 1, -1
    of_columns = _starts(columns)
    for i, row in enumerate(_starts(rows)):
        yield _load(left, f"left + {row} * left_step", "left_step")
        for j in range(len(of_columns)) if i % 2 == 0 else reversed(range(len(of_columns))):
            if j != there:
                yield _load(right, f"right + {4 * of_columns[j]}", "right_step")
            there, number = j, i * len(of_columns) + j
            yield f'__asm__ volatile("{instruction} %%tmm{right}, %%tmm{left}, %%tmm{number}" : :);'


def _load(number: int, place: str, step: str) -> str:
    return f'__asm__ volatile("tileloadd (%0,%1,1), %%tmm{number}" : : "r"({place}), "r"({step}) : "memory");'


def _indented(lines: Iterator[str] | list[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
