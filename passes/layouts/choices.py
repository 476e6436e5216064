"""The alternatives of a variable of the layout problem, and by number the layouts that each wants and gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation

from fuse_opt.dialects.implementation.site import LayoutRow
from fuse_opt.dialects.types.encodings import EncodingPart

Layout = EncodingPart | None


@dataclass(frozen=True, slots=True)
class Alternative:
    """Layouts of a variable's values: of a site by operand and result, of a group one for all."""

    row: LayoutRow | None
    order: Layout = None
    seconds: float = 0.0
    name: str = ""
    """The implementation that it is an alternative of."""

    def __str__(self) -> str:
        """As decisions write it."""
        if self.row is None:
            return _word(self.order)
        operands, results = (",".join(map(_word, layouts)) for layouts in (self.row.operands, self.row.results))
        return f"{self.name}({operands})->({results})"

    @property
    def is_plain(self) -> bool:
        """Whether all values are in row-major order."""
        layouts = (self.order,) if self.row is None else (*self.row.operands, *self.row.results)
        return all(layout is None for layout in layouts)

    def operand(self, number: int) -> Layout:
        return self.order if self.row is None else self.row.operands[number]

    def result(self, number: int) -> Layout:
        return self.order if self.row is None else self.row.results[number]


def _word(layout: Layout) -> str:
    return "-" if layout is None else str(layout).removeprefix("#graph.").replace(" ", "")


@dataclass
class Layouts:
    """Layouts by numbers, as they are met; 0 is row-major order."""

    known: list[Layout] = field(default_factory=lambda: [None])
    _numbers: dict[Layout, int] = field(default_factory=dict[Layout, int])

    def number(self, layout: Layout) -> int:
        if layout is None:
            return 0
        if (found := self._numbers.get(layout)) is None:
            found = self._numbers[layout] = len(self.known)
            self.known.append(layout)
        return found


@dataclass(eq=False)
class Choices:
    """Alternatives, one object for all variables that have the same ones."""

    alternatives: Sequence[Alternative]
    layouts: Layouts
    _operands: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    _results: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def __post_init__(self) -> None:
        self.seconds = [one.seconds for one in self.alternatives]
        self.are_plain = [one.is_plain for one in self.alternatives]
        self.plain = self.are_plain.index(True) if True in self.are_plain else 0
        """The alternative of row-major order."""
        self._texts: dict[int, str] = {}

    def text(self, number: int) -> str:
        """An alternative as decisions write it."""
        if (found := self._texts.get(number)) is None:
            found = self._texts[number] = str(self.alternatives[number])
        return found

    def operand(self, number: int) -> list[int]:
        """By alternative, the layout in which an operand is wanted; the same object each time."""
        return self._listed(self._operands, number, Alternative.operand)

    def result(self, number: int) -> list[int]:
        """By alternative, the layout in which a result is given; the same object each time."""
        return self._listed(self._results, number, Alternative.result)

    def _listed(self, known: dict[int, list[int]], number: int, of: Callable[[Alternative, int], Layout]) -> list[int]:
        if (found := known.get(number)) is None:
            found = known[number] = [self.layouts.number(of(one, number)) for one in self.alternatives]
        return found


@dataclass(slots=True)
class Variable:
    """A site, or a group of ops."""

    ops: list[Operation]
    choices: Choices

    @property
    def alternatives(self) -> Sequence[Alternative]:
        return self.choices.alternatives
