"""Kinds of tiles of products: the loops around what a tile does for a row of the right operand, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuse_opt.lowering.c.headers.tile_steps import STEPS

LINE = 64
"""Bytes of a vector of the widest kind."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The loops of a tile, around what they do for a row of b: where that lies, and an element of a's first row."""

    parameters: str
    over: str
    more: str
    outer: tuple[str, ...] = ()
    """What opens a loop around that over steps: `{a}` and `{b}` are where a's first element and b's first row lie."""
    count: str = "k"
    number: str = "p"
    """How many steps there are, and what counts them."""
    written: int = STEPS
    row: str = "{b} + u * b_step"
    """From where pointers are, that of the `u`-th step."""
    element: str = "{a}[{row} + u]"
    moves: tuple[tuple[str, str], ...] = (("a", "1"), ("b", "b_step"))
    prefetch: tuple[str, ...] = ()
    """A pointer to what steps ask for, and how they do, where vectors are as long as lines."""

    asks: tuple[int, int] = (0, 0)
    """Rows, and lines of each, that a few steps ask for of what is read after the tile's own."""

    def with_next(self, rows: int, lines: int) -> Steps:
        """The same of a tile that asks for what is read later, so much of it at a time."""
        return replace(
            self,
            parameters=self.parameters + ",\n    const {c} *next, long next_at, long next_step, long asked",
            more=self.more
            + f";\n   of the first `asked` steps every {STEPS} ask for {lines} lines of {rows} rows of `next`, next_step apart",
            asks=(rows, lines),
        )

    def with_lines(self) -> Steps:
        """The same of a tile that asks for the lines that what follows its sums stores to, and not for those of the sums."""
        return replace(
            self,
            parameters=self.parameters + ",\n    const {c} *lines, long lines_at, long lines_step",
            more=self.more + ";\n   it asks for as many rows of `lines`, lines_step apart",
        )

    def with_copy(self) -> Steps:
        """The same of a tile that leaves a copy of the rows of b that it reads."""
        return replace(
            self,
            parameters=self.parameters + ",\n    {c} *restrict d, long d_at, long d_step",
            more=self.more + ";\n   d becomes these rows, d_step apart",
            moves=(*self.moves, ("d", "d_step")),
        )


_TAPS = Steps(
    ",\n    long a_block, const long *taps, long n",
    " and n taps",
    " and as far from there as a tap says; elements of k are a_block apart in a, those of taps side by side",
    (
        "for (long q = 0; q < k; q++) {{",
        "const {c} *left = {a} + q * a_block, *right = {b} + q * b_step;",
        "const long *tap = taps;",
    ),
    "n",
    "t",
    1,
    "right + tap[u]",
    "left[{row} + u]",
)
KINDS = {
    "tile": Steps("", "", ""),
    "taps": _TAPS,
    "chosen": replace(
        _TAPS,
        parameters=",\n    long a_block, const long *taps, long n, const long *chosen",
        more=" and as far from there as a tap says; elements of k are a_block apart in a, those of taps where `chosen` says",
        element="left[{row} + chosen[u]]",
    ),
    "windows": Steps(
        ",\n    const long *taps, long n, long ahead",
        " and n taps",
        ",\n   n for each of k; a is read as far from there as a tap says; each step asks for a line that lies `ahead` in b",
        (
            "for (long q = 0; q < k; q++) {{",
            "const {c} *left = {a} + q * {depth}, *right = {b} + q * n * b_step;",
            "const long *tap = taps;",
        ),
        "n",
        "t",
        3,
        "right + u * b_step",
        "left[{row} + tap[u]]",
        (("right", "b_step"), ("tap", "1"), ("next", str(LINE))),
        (
            f"const char *next = (const char *)({{b}} + ahead) + q * n * {LINE};",
            f"  __builtin_prefetch(next + u * {LINE}, 0, 2);",
        ),
    ),
}
TRANSPOSED = Steps("", "", "", element="{a}[u * a_step + {row}]", moves=(("a", "a_step"), ("b", "b_step")))
