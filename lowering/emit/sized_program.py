"""Programs that run for a range of extents: one text, and of all numbers in the record the sizes that a call evaluates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from math import prod
from operator import itemgetter
from typing import cast

import numpy as np

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.emit.c_program import SizeTable
from fuse_opt.lowering.program import NUMPY_NAMES, Program

MOST = (1 << 63) - 1
"""The largest number that the text computes with."""


class LongRows(ValueError):
    """A row is longer than the program's text is for."""


@dataclass(frozen=True)
class SizedProgram:
    """A program with sizes in the place of numbers; `table` has those that its text asks for."""

    program: Program
    table: SizeTable
    limits: tuple[tuple[Size, int], ...] = ()
    """Sizes with the largest numbers that the text has room for."""
    orders: PlaceOrders | None = None
    """Where the arena has places: their offsets are symbols, whose values follow from others."""

    @cached_property
    def _evaluation(self) -> tuple[_Evaluation | None, tuple[Size, ...]]:
        """How the program follows from numbers of these sizes, the table's first."""
        evaluations = _Evaluations({size: place for place, size in enumerate(self.table.sizes)})
        found = evaluations.of(self.program)
        return found, tuple(evaluations.sizes)

    def named(self, symbols: Mapping[str, int]) -> Mapping[str, int]:
        """The values of symbols, with those of the offsets of places, which follow from them."""
        return symbols if self.orders is None else self.orders.named(symbols)

    def at(self, symbols: Mapping[str, int]) -> Program:
        """
        The program where symbols have these values: the same text. Raises LongRows where these are more than its text is for,
        OverflowError where a number is too large.
        """
        for size, most in self.limits:
            if size.evaluate(symbols) > most:
                raise LongRows(f"'{self.program.name}': {size} is {size.evaluate(symbols)}; expected {most} at most")
        evaluation, sizes = self._evaluation
        values = self.named(symbols)
        known = [size.evaluate(values) for size in sizes]
        found = self.program if evaluation is None else cast(Program, evaluation(known))
        numbers = known[: len(self.table.sizes)]
        nbytes = (prod(b.shape) * np.dtype(NUMPY_NAMES[b.dtype]).itemsize for b in found.buffers if b.kind == "result")
        if max([found.arena_bytes, *numbers, *nbytes]) > MOST:
            extents = ", ".join(f"{name} = {value}" for name, value in symbols.items())
            raise OverflowError(f"'{found.name}': extents {extents} give more than 2**63 bytes")
        if not self.table.sizes:
            return found
        buffers = list(found.buffers)
        place = self.table.buffer
        buffers[place] = replace(buffers[place], data=np.array(numbers, np.int64))
        return replace(found, buffers=tuple(buffers))


_Numbers = Sequence[int]
_Evaluation = Callable[[_Numbers], object]


@dataclass
class _Evaluations:
    """How parts of a record follow from the numbers of its sizes; what has none is itself and looked at once."""

    sizes: dict[Size, int]
    """With their places among the numbers."""

    def of(self, part: object) -> _Evaluation | None:
        """None where the part has no sizes."""
        if isinstance(part, Size):
            return itemgetter(self.sizes.setdefault(part, len(self.sizes)))
        if isinstance(part, tuple):
            return self._of_items(cast("tuple[object, ...]", part))
        if isinstance(part, Mapping):
            return self._of_entries(cast("Mapping[str, object]", part))
        if not is_dataclass(part) or isinstance(part, type):
            return None
        kind, known = type(part), {each.name: getattr(part, each.name) for each in fields(part)}
        found = {name: self.of(value) for name, value in known.items()}
        changed = [(name, evaluation) for name, evaluation in found.items() if evaluation is not None]
        if not changed:
            return None
        # `replace` asks anew for all fields, which is most of what a call of new extents takes.
        return lambda numbers: kind(**{**known, **{name: evaluation(numbers) for name, evaluation in changed}})

    def _of_entries(self, entries: Mapping[str, object]) -> _Evaluation | None:
        values = self._of_items(tuple(entries.values()))
        if values is None:
            return None
        return lambda numbers: dict(zip(entries, cast("tuple[object, ...]", values(numbers)), strict=True))

    def _of_items(self, items: tuple[object, ...]) -> _Evaluation | None:
        found = [self.of(item) for item in items]
        if not any(found):
            return None
        pairs = list(zip(items, found, strict=True))
        return lambda numbers: tuple([item if of is None else of(numbers) for item, of in pairs])
