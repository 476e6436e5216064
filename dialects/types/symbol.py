"""Symbols: extents that calls bring, with their ranges; and how polynomials over them are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt

from fuse_opt.dialects.types.polynomial import Atom, Terms

MOST = 2**31 - 1
"""The most that a symbol may be where nothing is said."""
_TYPICAL_AT_MOST = 1024
_BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
WORDS = ("floordiv", "max", "min")
"""Names that mean something else in the text of a size."""


@dataclass(frozen=True)
class Symbol(Atom):
    """
    An extent that calls bring: a multiple of `multiple` from `least` to `most`. As an atom it is that divided by `multiple`, so
    that what divides it is seen in coefficients.
    """

    name: str
    least: int = 1
    most: int = MOST
    multiple: int = 1
    typical: int | None = None
    """What estimates take it to be; where nothing is said the geometric mean of its range, at most 1,024."""
    text: str = field(init=False, repr=False, compare=False, default="")
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _name_text(self.name) + _facts_text(self.facts()))
        object.__setattr__(self, "_hash", hash(self.text))
        if self.multiple < 1:
            raise ValueError(f"symbol '{self.name}': expected a multiple of 1 or more, got {self.multiple}")
        if self.least < 0:
            raise ValueError(f"symbol '{self.name}': expected a least value of 0 or more, got {self.least}")
        if self.range[0] > self.range[1]:
            many = "" if self.multiple == 1 else f" that is a multiple of {self.multiple}"
            raise ValueError(f"symbol '{self.name}': no number from {self.least} to {self.most}{many}")
        if self.typical is not None and (problem := self.problem(self.typical)) is not None:
            raise ValueError(f"symbol '{self.name}': {problem} as the typical value, got {self.typical}")

    def __hash__(self) -> int:  # asked for at each look into a table of terms
        return self._hash

    @cached_property
    def range(self) -> tuple[int, int]:
        return -(-self.least // self.multiple), self.most // self.multiple

    @cached_property
    def usual(self) -> int:
        """The value that estimates take."""
        if self.typical is not None:
            return self.typical
        least, most = self.range
        mean = min(isqrt(max(self.least, 1) * self.most), _TYPICAL_AT_MOST)
        return min(max(mean // self.multiple, least), most) * self.multiple

    def facts(self) -> dict[str, int]:
        """What is said of it beyond its name."""
        said = {"least": self.least, "most": self.most, "multiple": self.multiple, "typical": self.typical}
        usual = {"least": 1, "most": MOST, "multiple": 1, "typical": None}
        return {name: value for name, value in said.items() if value is not None and value != usual[name]}

    def problem(self, value: int) -> str | None:
        """What is expected where it cannot be a number, as `expected 1 to 512`; None where it can."""
        if not self.least <= value <= self.most:
            return f"expected {self.least} to {self.most}"
        return f"expected a multiple of {self.multiple}" if value % self.multiple else None

    def evaluate(self, values: Mapping[str, int]) -> int:
        return values[self.name] // self.multiple


def _name_text(name: str) -> str:
    """A name as text has it: in quotes where it is none by itself, or a word of expressions."""
    if _BARE_NAME.fullmatch(name) and name not in WORDS:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _facts_text(facts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in facts.items()) + "}" if facts else ""


def written(terms: Terms) -> str:
    """Terms of a high degree first; a constant stands last."""
    parts: list[str] = []
    for monomial in sorted(terms, key=lambda m: (-len(m), [atom.text for atom in m])):
        left, factors = abs(terms[monomial]), list[str]()
        for atom in monomial:
            whole = atom.multiple if isinstance(atom, Symbol) else 1
            text = atom.text if left % whole == 0 else f"{atom.text} floordiv {whole}"
            left = left // whole if left % whole == 0 else left
            factors.append(text)
        if left != 1 or not factors:
            factors.insert(0, str(left))
        if len(factors) > 1 or len(terms) > 1 or terms[monomial] < 0:
            factors = [f"({factor})" if "floordiv" in factor else factor for factor in factors]
        sign = (" - " if parts else "-") if terms[monomial] < 0 else (" + " if parts else "")
        parts.append(sign + "*".join(factors))
    return "".join(parts)
