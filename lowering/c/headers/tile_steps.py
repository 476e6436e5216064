"""Pieces of text that tiles of products share: vectors of columns, parts of rows, loops of which some steps are written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

STEPS = 4
"""Steps from one request for a row of sums to the next, and those that are written out: counting, and asking, take a third
of the instructions of a step else (measured on a busy machine: up to a fifth of the time, next to nothing in some stretches)."""
STRETCH = 8
"""Steps of a single row that are summed apart, by halves: rounding errors of a short sum are most of those of its steps."""
_PART_ROWS = (6, 4)
"""Rows at a time where vectors are shorter, at most: what sixteen registers hold of two, or of three, beside each other."""
_LATENCY = 8
"""Sums that are added to while the first of them is not ready; fewer take as long."""
Bounds = list[tuple[int, int]]


def vectors_of_columns(columns: int, lanes: int) -> tuple[int, list[int]]:
    """Lanes of vectors that hold so many columns, and where each begins: the last may hold some that the one before has."""
    while lanes > columns:
        lanes //= 2
    return lanes, sorted({*range(0, columns - lanes + 1, lanes), columns - lanes})


@dataclass(frozen=True, slots=True)
class Vectors:
    """Of the columns of a tile: where they begin. The last may hold some columns that the one before has."""

    lanes: int
    starts: list[int]
    part: int = 1
    """Of the lanes, which the last has: 2 for half of them, which some processors take half of the time for; 4 for a quarter, of
    which the sums of two rows are in one vector."""

    @property
    def ends(self) -> list[int]:
        return [at + (self.lanes if of == "fo_v" else self.lanes // self.part) for of, at in self.placed()]

    @property
    def is_paired(self) -> bool:
        return self.part == 4

    def placed(self) -> list[tuple[str, int]]:
        """The type and place of each."""
        last, of = self.starts[-1], {1: "fo_v", 2: "fo_h", 4: "fo_q"}[self.part]
        return [(of if at == last else "fo_v", at) for at in self.starts]

    def types(self, kind: str) -> list[str]:
        """Definitions of the types, of elements of a C type."""
        lanes = {"fo_v": self.lanes}
        lanes |= {name: self.lanes // part for name, part in (("fo_h", 2), ("fo_q", 4)) if part <= self.part}
        vectors = {name: f"vector_size({n} * sizeof({kind})), " if n > 1 else "" for name, n in lanes.items()}
        return [
            f"typedef {kind} {name} __attribute__(({vector}aligned(sizeof({kind})), may_alias));"
            for name, vector in vectors.items()
        ] + ["typedef union { fo_h pair; fo_q rows[2]; } fo_p;"] * self.is_paired

    def declared(self, names: list[list[str]]) -> list[str]:
        """Definitions of sums, by row, that are zero."""
        sums = [(of, s) for row in names for s, (of, _) in zip(row, self.placed(), strict=False)]
        if self.is_paired:
            sums += [("fo_h" if row + 1 < len(names) else "fo_q", f"t{row}") for row in range(0, len(names), 2)]
        kinds = dict.fromkeys(of for of, _ in sums)
        return [f"{kind} {', '.join(f'{s} = {{0}}' for of, s in sums if of == kind)};" for kind in kinds]

    def of_pairs(self) -> list[str]:
        """Of the last vector of a row of the right operand, `b`, one that has it twice, `both`."""
        if not self.is_paired:
            return []
        b, lanes = f"b{len(self.starts) - 1}", ", ".join(map(str, range(self.lanes // self.part)))
        return [
            "#if defined(__clang__) || __GNUC__ >= 12",
            f"  const fo_h both = __builtin_shufflevector({b}, {b}, {lanes}, {lanes});",
            "#else",
            f"  const fo_h both = ((fo_p){{.rows = {{{b}, {b}}}}}).pair;",
            "#endif",
        ]

    def paired(self, row: int, rows: int) -> list[str]:
        """What is added to the last sums of a row, with those of the row before if that has no other one."""
        if not self.is_paired or (row % 2 == 0 and row + 1 < rows):
            return []
        if row % 2 == 0:
            return [f"  t{row} += x{row} * b{len(self.starts) - 1};"]
        count = self.lanes // self.part
        elements = ", ".join([f"x{row - 1}"] * count + [f"x{row}"] * count)
        return [f"  t{row - 1} += (fo_h){{{elements}}} * both;"]

    def rows_of_pairs(self, rows: int, c: str) -> tuple[list[str], list[str]]:
        """What adds the last columns of so many rows of `c` to their sums, and what stores these."""
        add: list[str] = []
        store: list[str] = []
        for row in range(0, rows if self.is_paired else 0, 2):
            places = [f"*(fo_q *)({c} + {i} * c_step + {self.starts[-1]})" for i in range(row, min(row + 2, rows))]
            if len(places) == 1:
                add.append(f"  t{row} += {places[0]};")
                store.append(f"{places[0]} = t{row};")
                continue
            add.append(f"  t{row} += ((fo_p){{.rows = {{{', '.join(places)}}}}}).pair;")
            store += [f"{place} = ((fo_p){{t{row}}}).rows[{half}];" for half, place in enumerate(places)]
        return add, store


def parted_vectors(columns: int, lanes: int, may_part: bool) -> Vectors:
    """
    Vectors of so many lanes at most that hold so many columns; `may_part` the last where they have that many, which then is half
    of one, or a quarter.
    """
    found, starts = vectors_of_columns(columns, lanes)
    rest = columns % lanes
    if not may_part or found < lanes or not 0 < rest <= lanes // 2:
        return Vectors(found, starts)
    part = 4 if rest <= lanes // 4 else 2
    return Vectors(found, [*starts[:-1], columns - lanes // part], part)


def ask_for_sums(rows: int, starts: list[int], c: str, step: str = "c_step") -> list[str]:
    """
    Prefetches, in a loop over `p`, of where a tile's sums go, rows so far apart, one at a time: all at once, they would wait for
    each other, and stores, or loads of sums to add to, at the end for what may be far away.
    """
    lines = [f"    __builtin_prefetch({c} + p / {STEPS} * {step} + {at}, 1);" for at in starts]
    return [f"  if (p % {STEPS} == 0 && p < {STEPS * rows}) {{", *lines, "  }"]


def written_out(
    asks: list[str],
    step: list[str],
    moves: Sequence[tuple[str, str]],
    count: str = "k",
    number: str = "p",
    steps: int = STEPS,
) -> list[str]:
    """
    A loop over a number up to a count, some steps at a time, of which the first asks for something: each is the `u`-th from where
    pointers are, which then move by so much a step. Steps that are left over come one by one.
    """
    forward = [f"{pointer} += {steps} * {by};" for pointer, by in moves]
    return [
        f"long {number} = 0;",
        f"for (; {number} + {steps} <= {count}; {number} += {steps}) {{",
        *asks,
        f"#pragma GCC unroll {steps}",
        f"  for (long u = 0; u < {steps}; u++) {{",
        *(f"  {line}" for line in step),
        "  }",
        *(f"  {line}" for line in forward),
        "}",
        f"for (long u = 0; u < {count} - {number}; u++) {{",
        *step,
        "}",
    ]


def in_stretches(sums: list[str], step: Callable[[list[str]], list[str]]) -> list[str]:
    """
    A loop over `p` up to k for a few sums, whose step, at `u`, adds to sums of given names: some steps are summed by halves
    before they join those before them, while loads are waited for. The loops stay loops, as gcc would load rows in turns.
    """
    low, high = ([f"{half}{s}" for s in sums] for half in ("low_", "high_"))
    middle, end = f"p + {STRETCH // 2}", f"p + {STRETCH}"

    def steps(names: list[str], first: str, end: str) -> list[str]:
        zeros = "  fo_v " + ", ".join(f"{name} = {{0}}" for name in names) + ";"
        return [zeros, "#pragma GCC unroll 1", f"  for (long u = {first}; u < {end}; u++) {{", *step(names), "  }"]

    def joined(to: list[str], names: list[str]) -> str:
        return "  " + " ".join(f"{s} += {name};" for s, name in zip(to, names, strict=True))

    lines = ["long p = 0;", f"for (; {end} <= k; p += {STRETCH}) {{"]
    lines += [*steps(low, "p", middle), *steps(high, middle, end), joined(low, high), joined(sums, low)]
    return [*lines, "}", "if (p < k) {", *steps(low, "p", "k"), joined(sums, low), "}"]


def even_parts(count: int, most: int) -> Bounds:
    """The bounds of as few parts as can be of at most so many each, the larger ones first."""
    parts = -(-count // most)
    return list(pairwise(-(-count * number // parts) for number in range(parts + 1)))


def best_parts(rows: int, vectors: int, beside: Mapping[int, int]) -> tuple[Bounds, Bounds]:
    """The parts of a tile's rows, and of its vectors, so many side by side by the rows, which are done soonest."""
    cuts = [
        (found, even_parts(vectors, beside[found[0][1]])) for found in (even_parts(rows, most) for most in _PART_ROWS)
    ]
    return min(cuts, key=lambda cut: sum(_part_time(b - a, d - c) for a, b in cut[0] for c, d in cut[1]))


def _part_time(rows: int, vectors: int) -> int:
    """Of a step along the contracted dimension, in multiplications; two begin in a cycle, and two loads."""
    return max(rows * vectors, rows + vectors, _LATENCY)
