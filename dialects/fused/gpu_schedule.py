"""The entry `gpu` of a kernel's schedule: how the kernel is to run on a GPU where that is not left to the lowering."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from fuse_opt.dialects.fused.entry_values import Counts, Words

ENTRY = "gpu"
"""The entry of a schedule that holds what is said of the GPU."""
VARIANTS = ("thread", "warp", "block", "shared", "stream")
"""Who shares a row: nobody, a warp, or a block that keeps it in registers, in shared memory, or not at all."""
_OF_ROWS, _OF_ELEMENTS = ("row", "column", "split"), ("pointwise", "tile")


@dataclass(frozen=True, slots=True)
class GpuKnob:
    """Something that the entry may say."""

    name: str
    values: Words | Counts
    kinds: tuple[str, ...]
    """The kinds of schedules where it means something."""
    doc: str
    tries: tuple[str | int, ...]
    """What `fuse-tune` tries, beside lowering's own choice."""
    same_bits: bool = False
    """Whether no value of it changes a bit of a result: none does where rows are reduced."""


GPU_KNOBS = (
    GpuKnob("variant", Words(VARIANTS), (*_OF_ROWS, "pack"), "who shares a row", VARIANTS),
    GpuKnob(
        "threads",
        Counts(32, 1024, power=True),
        (*_OF_ELEMENTS, *_OF_ROWS, "pack"),
        "threads of a block",
        (64, 128, 256, 512, 1024),
    ),
    GpuKnob(
        "vector", Counts(1, 16, power=True), (*_OF_ELEMENTS, *_OF_ROWS, "pack"), "elements of an access", (1, 2, 4, 8)
    ),
    GpuKnob("unroll", Counts(1, 16, power=True), (*_OF_ELEMENTS, "pack"), "vectors of a thread", (1, 2, 4)),
    GpuKnob("splits", Counts(1, 1024), (*_OF_ROWS, "pack"), "blocks of a row", (1, 4, 16, 64, 264, 528)),
    GpuKnob("tile", Counts(32, 64, power=True), ("tile", "pack"), "elements along both sides of a block", (32, 64)),
    GpuKnob(
        "cache",
        Words(("kept", "once")),
        (*_OF_ELEMENTS, *_OF_ROWS, "pack"),
        "`once`: what is read or written once leaves the caches first; no device has been timed with it",
        ("once",),
        same_bits=True,
    ),
)
_KNOWN = {knob.name: knob for knob in GPU_KNOBS}


def gpu_entry_problem(schedule: DictionaryAttr) -> str | None:
    """What is wrong with a schedule's entry, and what to do; None where nothing is."""
    if (found := schedule.data.get(ENTRY)) is None:
        return None
    if not isinstance(found, DictionaryAttr):
        return f'expected a dictionary such as {{variant = "warp"}}, got {found}; write one, or remove it'
    kind = schedule.data.get("kind")
    word = kind.data if isinstance(kind, StringAttr) else ""
    known = tuple(knob.name for knob in GPU_KNOBS if word in knob.kinds)
    for name, value in found.data.items():
        if (problem := _problem(name, value, known, kind)) is not None:
            return f"entry '{name}': {problem}"
    variant, splits = found.data.get("variant"), found.data.get("splits")
    if variant is not None and isinstance(splits, IntegerAttr) and splits.value.data > 1:
        return (
            f"entry 'splits': expected 1 beside variant = {variant}, which has one block for a row, got "
            f"{splits.value.data}; remove one of the two"
        )
    return None


def _problem(name: str, value: Attribute, known: tuple[str, ...], kind: Attribute | None) -> str | None:
    if name not in known:
        expected = f"one of {', '.join(known)}" if known else "none"
        return f"expected {expected} in a schedule of kind {kind}, got '{name}'; remove it"
    values = _KNOWN[name].values
    if values.has(value):
        return None
    if isinstance(values, Words):
        return f"expected one of {', '.join(values.words)}, got {value}; write one of them, or remove it"
    got = value.value.data if isinstance(value, IntegerAttr) else value
    return f"expected {values}, got {got}; write one, or remove it"
