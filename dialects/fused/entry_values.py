"""The values that an entry of a schedule may have."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr, StringAttr


@dataclass(frozen=True, slots=True)
class Words:
    """One of some words; the first is what holds without the entry."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)

    def has(self, value: object) -> bool:
        return isinstance(value, StringAttr) and value.data in self.words


@dataclass(frozen=True, slots=True)
class Counts:
    """An integer from `least` on."""

    least: int = 1
    most: int | None = None
    power: bool = False
    """Whether only powers of two."""

    def __str__(self) -> str:
        if self.most is None:
            return "a positive integer"
        return f"{'a power of two' if self.power else 'an integer'} from {self.least} to {self.most}"

    def has(self, value: object) -> bool:
        if not isinstance(value, IntegerAttr) or value.value.data < self.least:
            return False
        number = value.value.data
        return (self.most is None or number <= self.most) and not (self.power and number & (number - 1))
