"""Entries of schedules: one record each, read by `schedule-kernels`, by lowering and by the table in docs/c.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import IntegerAttr, StringAttr

from fuse_opt.dialects.fused.entry_values import Counts, Words
from fuse_opt.dialects.fused.kernel import KernelOp


@dataclass(frozen=True, slots=True)
class Knob:
    """An entry of a schedule that C programs look at."""

    name: str
    values: Words | Counts
    kinds: tuple[str, ...]
    """The kinds of schedules where it means something."""
    same_bits: bool
    """Whether no value of it changes a bit of a result."""
    doc: str
    tries: tuple[str | int, ...] = ()
    """What `fuse-tune` tries, beside lowering's own choice; none where accuracy hangs on it."""
    usual: int | None = None
    """The number that holds without the entry, where it is a property of the processor; the device's record may say another."""

    def problem(self, kernel: KernelOp) -> str | None:
        """What is wrong with the kernel's entry; None where nothing is."""
        value = None if kernel.schedule is None else kernel.schedule.data.get(self.name)
        if value is not None and not self.values.has(value):
            return f"entry '{self.name}': expected {self.values}, got {value}"
        return None

    def word(self, kernel: KernelOp) -> str:
        """The kernel's word, or the one that holds without the entry."""
        assert isinstance(self.values, Words)
        value = None if kernel.schedule is None else kernel.schedule.data.get(self.name)
        return value.data if isinstance(value, StringAttr) else self.values.words[0]

    def count(self, kernel: KernelOp) -> int | None:
        """The kernel's number; None where lowering decides."""
        value = None if kernel.schedule is None else kernel.schedule.data.get(self.name)
        return cast(IntegerAttr, value).value.data if self.values.has(value) else None

    def number(self, kernel: KernelOp) -> int:
        """The kernel's number, or the usual one."""
        found = self.count(kernel) or self.usual
        assert found is not None
        return found


_LOOPS = ("pointwise", "row", "column", "split", "tile", "pack")
_GENERATED = (*_LOOPS, "matmul", "attention", "attention_gradient", "conv")

MATH = Knob(
    "math", Words(("strict", "fast")), _GENERATED, False, "accuracy of functions; [error bounds](#error-bounds)"
)
PRECISION = Knob(
    "precision", Words(("strict", "kernel")), _GENERATED, False, "rounding of f16 and bf16; [there](#excess-precision)"
)
STORES = Knob(
    "stores",
    Words(("temporal", "requested", "nontemporal", "deferred")),
    _LOOPS,
    True,
    "[results past the caches](#stores-past-the-caches), of a row, while the next one is computed; or lines that are asked for "
    "before they are stored to",
    ("temporal", "requested", "nontemporal", "deferred"),
)
SPLITS = Knob(
    "splits",
    Counts(),
    ("column", "split", "attention"),
    False,
    "parts of what is reduced, which are joined in order; of attention, parts of the keys of fewer than 6 queries",
    (1, 2, 4, 8, 16, 32),
)
BLOCK = Knob(
    "block",
    Counts(),
    ("column", "tile"),
    False,
    "rows of a block; elements of both its sides",
    (16, 32, 64, 128, 256, 512, 1024),
)
CUT = Knob(
    "cut",
    Words(("modelled", "never", "always")),
    _LOOPS,
    True,
    "whether loops over long chains of functions become several: where a model of the processor says so, or wherever it gains",
    ("modelled", "never", "always"),
)
WINDOW = Knob(
    "window",
    Counts(16, 4096),
    _LOOPS,
    True,
    'instructions that the model behind `cut = "modelled"` says a processor looks ahead',
    (100, 150, 300),
    usual=150,
)
TABLE = Knob(
    "table",
    Words(("modelled", "narrow", "never", "always")),
    ("pointwise",),
    True,
    "whether what a long chain of operations makes of one number of f16 or bf16 is [looked up](#transforms-of-loops), where a "
    "launch has many elements: by the same model for registers of 512 bits, or (narrow) of 256, or always",
    ("never", "always"),
)
LENT = Knob(
    "lent",
    Counts(1 << 6, 1 << 24),
    ("row",),
    True,
    "bytes of a row of a result from which on its memory holds what is kept of the row until then",
    (1 << 9, 1 << 10, 3 << 10),
    usual=1 << 10,
)
LANES = Knob(
    "lanes",
    Counts(8, 256, power=True),
    ("row", "pack"),
    False,
    "accumulators of a sum along a row, side by side",
    (8, 16, 32, 64, 128, 256),
)
SHORT = Knob(
    "short",
    Counts(1, 64),
    ("row",),
    False,
    "elements up to which rows, where their length is a size, run as those of `column`: [a version](#versions) of the kernel",
)
LONG = Knob(
    "long",
    Counts(128, 1 << 20),
    ("row",),
    False,
    "elements from which on such rows have 64 accumulators of a sum: [a version](#versions) of the kernel",
)
TASKS = Knob(
    "tasks",
    Counts(),
    tuple(kind for kind in _LOOPS if kind != "pack"),
    True,
    "simple operations of the least piece of work that a thread takes",
    (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20),
)
ROWS_AT_A_TIME = Knob(
    "rows_at_a_time",
    Counts(1, 8, power=True),
    ("column", "split"),
    False,
    "rows that an iteration over a block of lanes takes together",
    (1, 2, 4, 8),
)
AHEAD = Knob(
    "ahead",
    Counts(1 << 10, 1 << 20),
    ("column", "split"),
    True,
    "bytes that memory is asked for ahead, in the order of rows; without it [where caches are too small](#schedules)",
    (1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16),
)
NEXT_ROW = Knob(
    "next_row",
    Words(("usual", "asked", "left")),
    ("row",),
    True,
    "whether a loop that computes asks for memory of the next row, [where caches are too small](#schedules), or leaves that to "
    "the processor, as those of AMD do by default",
    ("asked", "left"),
)
OVERLAP = Knob(
    "overlap",
    Words(("modelled", "never", "always")),
    ("row",),
    True,
    "whether a row's last loop runs together with the first one of the next row, where both allow it: by rules for what caches "
    "hold and what waits for memory, or always",
    ("never", "always"),
)
UNROLL = Knob(
    "unroll",
    Counts(1, 8, power=True),
    _LOOPS,
    True,
    "groups of 16 neighbours that an iteration stores, where there are many and known ones",
    (2, 4, 8),
)
VECTOR = Knob(
    "vector",
    Counts(128, 512, power=True),
    _LOOPS,
    False,
    "bits of the vectors that the compiler prefers (gcc on x86); [without it](#transforms-of-loops) mostly the widest",
    (256,),
)
TILE_BITS = Knob(
    "tile_bits",
    Counts(256, 512, power=True),
    ("matmul", "attention", "conv"),
    False,
    "bits of the vectors that tiles of sums are cut for, in attention of f32 and where a product has more than 9 rows; 2 to 9 "
    "rows have shorter blocks of depth for 256, but where they stream a far right operand; convolutions by windows of one "
    "element copy panels of positions, as products do, for 512",
    (256,),
    usual=512,
)
REGISTER_BITS = Knob(
    "register_bits",
    Counts(256, 512, power=True),
    ("row", "column", "split", "conv"),
    False,
    "bits of a register: of so many at most are the variables that are accumulators of rows whose length is a size, the last "
    "vectors of columns of which there are a size, and masks of what rows of known lengths end in; for 256 long rows are stored "
    "where registers begin, and no rows of a size of 8 elements or fewer share a vector, which add up in another order",
    usual=512,
)
ROW_FACTOR = Knob(
    "row_factor",
    Words(("late", "early")),
    ("attention",),
    False,
    "whether exponentials of scores are [divided by their sum](implementations.md#generated-attention) behind the product with "
    "the values, where softmax and sizes of values let that be, or before it",
    ("late", "early"),
)
RIGHT_OPERAND = Knob(
    "right_operand",
    Words(("far", "near")),
    ("matmul",),
    True,
    "where a product of few rows finds a right operand that second caches do not hold: behind all caches, or in the last one, "
    "from which no lines have to be asked for",
    ("far", "near"),
)
SCRATCH = Knob(
    "scratch",
    Words(("any", "little")),
    ("conv",),
    False,
    "memory that gradients of convolutions work in: with sums of parts and weights phase by phase, or as little as can be",
)

ASKED = (MATH, PRECISION)
"""What a caller asks of all kernels alike; all else is chosen for each of them."""

KNOBS = (
    MATH,
    PRECISION,
    STORES,
    SPLITS,
    BLOCK,
    CUT,
    WINDOW,
    TABLE,
    LENT,
    LANES,
    SHORT,
    LONG,
    TASKS,
    ROWS_AT_A_TIME,
    AHEAD,
    NEXT_ROW,
    OVERLAP,
    UNROLL,
    VECTOR,
    TILE_BITS,
    REGISTER_BITS,
    ROW_FACTOR,
    RIGHT_OPERAND,
    SCRATCH,
)
