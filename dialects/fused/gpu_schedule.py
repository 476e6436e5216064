"""The entry `gpu` of a kernel's schedule: how the kernel is to run on a GPU where that is not left to the lowering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

ENTRY = "gpu"
"""The entry of a schedule that holds what is said of the GPU."""
VARIANTS = ("thread", "warp", "block", "shared", "stream")
"""Who shares a row: nobody, a warp, or a block that keeps it in registers, in shared memory, or not at all."""


@dataclass(frozen=True, slots=True)
class _Number:
    """The values that a number may have."""

    least: int
    most: int
    power: bool = True
    """Whether only powers of two."""

    def __str__(self) -> str:
        return f"{'a power of two' if self.power else 'an integer'} from {self.least} to {self.most}"

    def has(self, value: int) -> bool:
        return self.least <= value <= self.most and not (self.power and value & (value - 1))


NUMBERS: Mapping[str, _Number] = {
    "threads": _Number(32, 1024),
    "vector": _Number(1, 16),
    "unroll": _Number(1, 16),
    "splits": _Number(1, 1024, power=False),
    "tile": _Number(32, 64),
}
_OF_ROWS = ("variant", "threads", "vector", "splits")
_OF_ELEMENTS = ("threads", "vector", "unroll")
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "pointwise": _OF_ELEMENTS,
    "tile": ("tile", *_OF_ELEMENTS),
    "row": _OF_ROWS,
    "column": _OF_ROWS,
    "split": _OF_ROWS,
    "pack": ("variant", *NUMBERS),
}
"""By kind of the schedule: what it may say; nothing for kinds that are not here."""


def gpu_entry_problem(schedule: DictionaryAttr) -> str | None:
    """What is wrong with a schedule's entry, and what to do; None where nothing is."""
    if (found := schedule.data.get(ENTRY)) is None:
        return None
    if not isinstance(found, DictionaryAttr):
        return f'expected a dictionary such as {{variant = "warp"}}, got {found}; write one, or remove it'
    kind = schedule.data.get("kind")
    known = _OF_KIND.get(kind.data, ()) if isinstance(kind, StringAttr) else ()
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
    if name == "variant":
        if isinstance(value, StringAttr) and value.data in VARIANTS:
            return None
        return f"expected one of {', '.join(VARIANTS)}, got {value}; write one of them, or remove it"
    if isinstance(value, IntegerAttr) and NUMBERS[name].has(value.value.data):
        return None
    got = value.value.data if isinstance(value, IntegerAttr) else value
    return f"expected {NUMBERS[name]}, got {got}; write one, or remove it"
