"""Tiles of products of narrow elements in matrix registers: those of Intel AMX, eight of 16 rows of 64 bytes.

A step multiplies 16 groups of each of 16 rows of the left operand with as many rows of a panel, as `vpdpbusd` and `vdpbf16ps`
do a group: panels and rows are the same (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 18). Four
registers hold sums, two the left operand and two the right one. Groups that are left over, where there are some, need registers
of other extents: then these are one for each operand, and so are those of whole steps. A step of fewer groups takes as long.

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
_LEFT, _RIGHT = (4, 5), (6, 7)
"""Those for operands: the second ones are for groups that are left over, where there are some."""
_LINE = 4 * SIDE
"""Bytes of a row of a register."""

_TEXT = """\
#if defined({feature})
  if (k >= {side} && fo_matrix_tiles()) {{
    const char *left = (const char *)a, *right = (const char *)b;
    const long left_step = a_step * sizeof *a, right_step = 4 * b_step, sums_step = 4 * c_step;
    fo_matrix_extents(registers, {rows}, {columns}, {left_over});
    if (add) {{
{loads}
    }} else {{
{zeros}
    }}
    // what is stored goes to lines that may be far away: some rows' are asked for at a time, as all at once would keep loads back
    const long each = ({every} * {side} + k - 1) / k;
    for (long p = 0, row = 0; {more}; p += {side}, left += {line}, right += {side} * right_step) {{
      for (const long end = row + each < {every} ? row + each : {every}; row < end; row++) {{
{asks}
      }}
{steps}
    }}
{rest}{stores}
    return;
  }}
#endif
"""
_REST = """\
    if (k % {side}) {{
{step}
    }}
"""
_EITHER = """\
      if (k % {side} == 0) {{
{whole}
      }} else {{
{step}
      }}"""


def has_matrix_tile(rows: int, columns: int) -> bool:
    """Whether the sums of a tile are in matrix registers, where there are some."""
    return FEWEST_ROWS <= rows <= MOST_ROWS and len(_starts(rows)) * len(_starts(columns)) <= _SUMS


def matrix_tile(
    rows: int, columns: int, feature: str, instruction: str, in_lines: bool = False, stored: int = 0
) -> str:
    """
    The statements of a tile, which end it where the process has such registers; "" where it has vectors alone. `in_lines`: there
    are zeros behind the last group, so that all steps are whole ones. `stored`: bytes of elements of `next`, which is asked for
    in place of where sums go.
    """
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
        asks=_indented(_asks(columns, stored), 8),
        columns=min(columns, SIDE),
        loads=_indented(loads, 6),
        zeros=_indented(zeros, 6),
        left_over="0" if in_lines else f"k % {SIDE}",
        more="p < k" if in_lines else f"p + {SIDE} <= k",
        steps=_steps(rows, columns, instruction, in_lines),
        rest="" if in_lines else _REST.format(side=SIDE, step=_indented(_step(rows, columns, instruction, 1), 6)),
        stores=_indented(stores, 4),
    )


def _asks(columns: int, stored: int) -> list[str]:
    """For the lines of a row of sums, or of what is made of them."""
    if not stored:
        return [f"__builtin_prefetch(c + row * c_step + {at}, 1);" for at in (*range(0, columns, SIDE), columns - 1)]
    row, last = f"(const char *)next + (next_at + row * next_step) * {stored}", columns * stored - 1
    return [f"__builtin_prefetch({row} + {at}, 1);" for at in (*range(0, last, _LINE), last)]


def _starts(count: int) -> list[int]:
    """Where registers of so many rows or columns begin."""
    return sorted({*range(0, count - SIDE + 1, SIDE), max(count - SIDE, 0)})


def _steps(rows: int, columns: int, instruction: str, in_lines: bool) -> str:
    """Of 16 groups: in as many registers as there are, where the operands' parts fit these, and no groups are left over."""
    step = _step(rows, columns, instruction, 0)
    if len(_starts(rows)) > len(_LEFT) or len(_starts(columns)) > len(_RIGHT):
        return _indented(step, 6)
    if in_lines:
        return _indented(_whole_step(rows, columns, instruction), 6)
    return _EITHER.format(
        side=SIDE, whole=_indented(_whole_step(rows, columns, instruction), 8), step=_indented(step, 8)
    )


def _whole_step(rows: int, columns: int, instruction: str) -> Iterator[str]:
    """
    With a register for each part of the operands. Those of the right one pass first caches by, as these hold the tile's rows for
    the next panel (measured together: 0.87 of the time of bf16, 0.96 of bytes; either alone gains next to nothing).
    """
    lefts, rights = (list(zip(found, _starts(n), strict=False)) for found, n in ((_LEFT, rows), (_RIGHT, columns)))
    for number in range(max(len(lefts), len(rights))):
        for register, at in rights[number : number + 1]:
            yield _load(register, f"right + {4 * at}", "right_step", "t1")
        for register, at in lefts[number : number + 1]:
            yield _load(register, f"left + {at} * left_step", "left_step")
    for i, (left, _) in enumerate(lefts):
        for j, (right, _) in enumerate(rights):
            yield _multiply(instruction, i * len(rights) + j, left, right)


def _step(rows: int, columns: int, instruction: str, place: int) -> Iterator[str]:
    """
    Multiplies each part of the left operand with each of the right one, in one register of either, of that `place`: back and
    forth, so that one of them stays. Processors have more than those that are named, so loads need not wait.
    """
    left, right, there = _LEFT[place], _RIGHT[place], -1
    of_columns = _starts(columns)
    for i, row in enumerate(_starts(rows)):
        yield _load(left, f"left + {row} * left_step", "left_step")
        for j in range(len(of_columns)) if i % 2 == 0 else reversed(range(len(of_columns))):
            if j != there:
                yield _load(right, f"right + {4 * of_columns[j]}", "right_step")
            there = j
            yield _multiply(instruction, i * len(of_columns) + j, left, right)


def _multiply(instruction: str, sums: int, left: int, right: int) -> str:
    return f'__asm__ volatile("{instruction} %%tmm{right}, %%tmm{left}, %%tmm{sums}" : :);'


def _load(number: int, place: str, step: str, hint: str = "") -> str:
    return f'__asm__ volatile("tileloadd{hint} (%0,%1,1), %%tmm{number}" : : "r"({place}), "r"({step}) : "memory");'


def _indented(lines: Iterator[str] | list[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
