"""Tiles of matrix products of narrow elements, of which an instruction multiplies and adds several neighbours at a time.

Panels have groups of four bytes side by side, pairs of bf16 or four bytes of integers, as have the rows of the left operand
(Intel: vdpbf16ps of AVX512_BF16, vpdpbusd of AVX512_VNNI; AMX does so for whole tiles). Machines without such instructions take
groups apart: bytes into pairs where these are multiplied and added, and bf16 into f32, in the panel and in rows of a tile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from fuse_opt.lowering.c.headers.byte_pairs import byte_pairs
from fuse_opt.lowering.c.headers.matrix_tiles import matrix_tile
from fuse_opt.lowering.c.headers.tile_steps import ask_for_sums, even_parts, vectors_of_columns, written_out

LINES = "l"
"""What the name of a tile ends in whose operands have zeros behind the last group, up to whole lines of the left one."""
KEEPS = "k"
"""What it ends in where the sums of rows are kept, if they are needed, for tiles after it that have the same ones."""
ASKS = "a"
"""What it ends in, with the bytes of an element, where sums go to near memory, and what follows them to far lines."""
_NAME = re.compile(rf"fo_tile_(bf16|i8|ui8)_(\d+)x(\d+)({LINES}?)({KEEPS}?)(?:{ASKS}(\d))?")
_LINE = 64
"""Bytes of a vector of the widest kind."""
FEWEST_LANES = 4
"""Of a vector for which there is an instruction: of fewer columns no tile keeps sums of rows."""
_PART_ROWS = 4
_MOST_ROWS, _REGISTERS = 14, 31
"""Of a tile that is not cut into parts: rows, and vectors of sums and of a row of the panel."""
_PADDING = 16
"""Elements between rows that are widened, so that they lie in different sets of a cache."""

_TILE = """\
/* {name}: {rows} rows of c, c_step apart, become or (where `add` is not 0) are added to sums over k groups of elements of a,
   whose rows lie a_step apart, times rows of {columns} groups of b, b_step groups apart{zeros}; `registers` is what matrix
   registers are set up for (fo_matrix_extents){keeping}{asking}. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast")))
#endif
static __attribute__((noinline, unused)) void {name}(long k, const {left} *a, long a_at, long a_step,
    const {right} *b_from, long b_at, long b_step, {sum} *c, long c_at, long c_step, long add,
    long *registers{parameters}) {{
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  typedef fo_u32 __attribute__((may_alias, aligned(1))) fo_group;
  const fo_group *b = (const fo_group *)(b_from + b_at);
  a += a_at, c += c_at, (void)registers{unused};
{matrix}{body}}}
"""

_BODY = """\
#if defined(__AVX512VL__) && defined({feature})
{wide}{others}#endif
"""

_WIDENED = """\
#else  // panels are of f32
  const float *wide_b = (const float *)b;
  float rows[{rows} * {step}];
  for (; k > 0; k -= {groups}, a += 2 * {groups}, wide_b += 2 * {groups} * b_step, add = 1) {{
    const long n = 2 * (k < {groups} ? k : {groups});
    for (long i = 0; i < {rows}; i++)
      for (long p = 0; p < n; p++) {{
        const fo_u32 x = (fo_u32)a[i * a_step + p] << 16;
        __builtin_memcpy(rows + i * {step} + p, &x, 4);
      }}
    fo_tile_f32_{rows}x{columns}(n, rows, 0, {step}, wide_b, 0, b_step, c, 0, c_step, add);
  }}
"""
_GROUPS = 256
"""Groups of a row that are widened at a time."""
_ROW_SUMS = """\
{memory}  for (long i = 0; i < {rows}; i++) sums_of_a[i] = fo_sum_row_i8(k, a + i * a_step);
{sums}"""
_FIRST = 8
"""Of 64 bits: what matrix registers are set up for, in front of kept sums."""
_KEPT = f"  long *sums_of_a = registers + {_FIRST};\n  if (!again)\n  "


def kept_longs(rows: int) -> int:
    """Of 64 bits, what tiles of so many rows need that keep the rows' sums."""
    return _FIRST + rows


@dataclass(frozen=True, slots=True)
class _Kind:
    """Of the elements: C types of the left and right operand and of sums, and how groups are multiplied."""

    left: str
    right: str
    sum: str
    feature: str
    instruction: str
    matrix: tuple[str, str]
    """The same of matrix registers: feature and instruction."""
    terms: tuple[str, ...]
    """What is added to a sum, where no instruction does: from a group `x` and a vector `y` of them; or none: both are widened,
    but in tiles that are narrower than vectors of instructions."""
    group: int = 4
    """Elements of a group."""
    moved: bool = False
    """Whether the instruction takes elements of the right operand 128 too large: then 128 times the sums of rows are too much."""


_RIGHT_BYTES = [f"((fo_s)({{y}} << {24 - 8 * place}) >> 24)" for place in range(4)]
_BYTES = tuple(f"(int)({{x}} >> {8 * place} & 255) * {y}" for place, y in enumerate(_RIGHT_BYTES))
_SIGNED = tuple(f"((int)({{x}} << {24 - 8 * place}) >> 24) * {y}" for place, y in enumerate(_RIGHT_BYTES))
_KINDS = {
    "bf16": _Kind(
        "unsigned short",
        "unsigned short",
        "float",
        "__AVX512BF16__",
        "vdpbf16ps",
        ("__AMX_BF16__", "tdpbf16ps"),
        (),
        group=2,
    ),
    "i8": _Kind(
        "signed char",
        "signed char",
        "int",
        "__AVX512VNNI__",
        "vpdpbusd",
        ("__AMX_INT8__", "tdpbssd"),
        _SIGNED,
        moved=True,
    ),
    "ui8": _Kind(
        "unsigned char", "signed char", "int", "__AVX512VNNI__", "vpdpbusd", ("__AMX_INT8__", "tdpbusd"), _BYTES
    ),
}


@cache
def group_text(name: str) -> str | None:
    """The function of that name; None where it is not the name of such a tile."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind, rows, columns, keeps = _KINDS[found[1]], int(found[2]), int(found[3]), bool(found[5])
    return _TILE.format(
        name=name,
        rows=rows,
        columns=columns,
        left=kind.left,
        right=kind.right,
        sum=kind.sum,
        zeros=", and of zeros up to 16 groups at a time" if found[4] else "",
        keeping="; behind them are sums of rows, as the tile before left them where `again` is not 0" if keeps else "",
        asking="; rows of elements from `next` on, next_step apart, are stored to later" if found[6] else "",
        parameters=", long again" * keeps + ", const void *next, long next_at, long next_step" * bool(found[6]),
        unused=", (void)again" * keeps + ", (void)next, (void)next_at, (void)next_step" * bool(found[6]),
        matrix=matrix_tile(rows, columns, *kind.matrix, bool(found[4]), int(found[6] or 0)),
        body=_body(found[1], kind, rows, columns, keeps),
    )


def _body(name: str, kind: _Kind, rows: int, columns: int, keeps: bool) -> str:
    """Without matrix registers: vectors hold the sums, or those of a part of the rows at a time."""
    ending, more = (KEEPS, ", again") if keeps else ("", "")
    most = min(_MOST_ROWS, _REGISTERS // -(-columns // (_LINE // 4)) - 1)
    if rows > most:
        return "  (void)b;\n" + "".join(
            f"  fo_tile_{name}_{b - a}x{columns}{ending}(k, a, {a} * a_step, a_step, b_from, b_at, b_step, c, {a} * c_step,"
            f" c_step, add, registers{f' + {a}' * keeps}{more});\n"
            for a, b in even_parts(rows, most)
        )
    wide = _sums(kind, _LINE, rows, columns, True)
    if kind.moved and columns >= FEWEST_LANES:
        memory = _KEPT if keeps else f"  long sums_of_a[{rows}];\n"
        wide = _ROW_SUMS.format(memory=memory, rows=rows, sums=wide)
    return _BODY.format(
        feature=kind.feature,
        wide=wide,
        others=_without_instruction(kind, rows, columns),
    )


def _without_instruction(kind: _Kind, rows: int, columns: int) -> str:
    """For other machines: pairs of bf16 are widened, bytes multiplied in pairs of 16 bits, or one by one."""
    if not kind.terms:
        step = 2 * _GROUPS + _PADDING
        return _WIDENED.format(rows=rows, columns=columns, groups=_GROUPS, step=step)
    narrow = _sums(kind, 16, rows, columns, False)
    return f"#elif defined(__AVX2__)\n{byte_pairs(kind.left, rows, columns)}#else\n{narrow}"


def _sums(kind: _Kind, width: int, rows: int, columns: int, instructions: bool) -> str:
    """All sums in vectors of so many bytes, a few rows and two vectors at a time where those of all would be too many."""
    if width == _LINE:
        return _part(kind, width, (0, rows), (0, columns), instructions)
    side = 2 * width // 4
    return "".join(
        _part(kind, width, part, (j, min(j + side, columns)), instructions)
        for part in even_parts(rows, _PART_ROWS)
        for j in range(0, columns, side)
    )


def _part(kind: _Kind, width: int, rows: tuple[int, int], columns: tuple[int, int], instructions: bool) -> str:
    lanes, starts = vectors_of_columns(columns[1] - columns[0], width // 4)
    starts = [columns[0] + start for start in starts]
    instructions = instructions and lanes >= FEWEST_LANES
    names = {i: [f"s{i}_{j}" for j in range(len(starts))] for i in range(*rows)}
    is_moved = kind.moved and instructions
    more = " ^ 0x80808080u" * is_moved
    lines = [
        f"typedef {kind.sum} __attribute__((vector_size({4 * lanes}), aligned(4), may_alias)) fo_s;",
        f"typedef fo_u32 __attribute__((vector_size({4 * lanes}), aligned(1), may_alias)) fo_y;",
        "fo_s " + ", ".join(f"{s} = {{0}}" for row in names.values() for s in row) + ";",
    ]
    step = [
        "  const fo_group *restrict q = b + u * b_step;",
        "  const fo_y " + ", ".join(f"y{j} = *(const fo_y *)(q + {at}){more}" for j, at in enumerate(starts)) + ";",
    ]
    for i, row in names.items():
        step.append(f"  const fo_u32 x{i} = ((const fo_group *)(a + {i} * a_step))[u];")
        step += _products(kind, f"x{i}", row, instructions)
    if width == _LINE:
        lines += written_out(ask_for_sums(len(names), starts, "c"), step, (("a", str(kind.group)), ("b", "b_step")))
    else:
        lines += ["for (long u = 0; u < k; u++) {", *step, "}"]
    places = [
        (s, f"*(fo_s *)(c + {i} * c_step + {at})")
        for i, row in names.items()
        for s, at in zip(row, starts, strict=True)
    ]
    lines += ["if (add) {", *(f"  {s} += {place};" for s, place in places), "}"]
    if is_moved:
        lines += [f"{s} -= (fo_s){{0}} + (int)sums_of_a[{i}];" for i, row in names.items() for s in row]
    lines += [f"{place} = {s};" for s, place in places]
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


def _products(kind: _Kind, x: str, sums: list[str], instructions: bool) -> list[str]:
    """A group of the left operand times vectors of those of the right one."""
    if not (instructions or kind.terms):  # narrower than vectors that there are instructions for
        halves = "(fo_s)(v{x} << 16) * (fo_s)({y} << 16)", "(fo_s)(v{x} & {high}) * (fo_s)({y} & {high})"
        lines = [term.format(x=x, y=f"y{j}", high="0xffff0000u") for j in range(len(sums)) for term in halves]
        return [f"  const fo_y v{x} = (fo_y){{0}} + {x};"] + [
            f"  {s} += {lines[2 * j]}; {s} += {lines[2 * j + 1]};" for j, s in enumerate(sums)
        ]
    if instructions:
        lines = [f"  const fo_y v{x} = (fo_y){{0}} + {x};"]
        pairs = [(f"y{j}", f"v{x}") if kind.moved else (f"v{x}", f"y{j}") for j in range(len(sums))]
        return lines + [
            f'  __asm__("{kind.instruction} %2, %1, %0" : "+v"({s}) : "v"({first}), "v"({second}));'
            for s, (first, second) in zip(sums, pairs, strict=True)
        ]
    return [
        "  " + " ".join(f"{s} += {term.format(x=x, y=f'y{j}')};" for term in kind.terms) for j, s in enumerate(sums)
    ]
