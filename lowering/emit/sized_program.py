"""Programs that run for a range of extents: one text, and of all numbers in the record the sizes that a call evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import TypeVar, cast

import numpy as np

from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.emit.c_program import SizeTable
from fuse_opt.lowering.program import Program

MOST = (1 << 63) - 1
"""The largest number that the text computes with."""

Part = TypeVar("Part")


class LongRows(ValueError):
    """A row is longer than the program's text is for."""


@dataclass(frozen=True)
class SizedProgram:
    """A program with sizes in the place of numbers; `table` has those that its text asks for."""

    program: Program
    table: SizeTable
    limits: tuple[tuple[Size, int], ...] = ()
    """Sizes with the largest numbers that the text has room for."""

    def at(self, values: Mapping[str, int]) -> Program:
        """
        The program where symbols have these values: the same text. Raises LongRows where these are more than its text is for,
        OverflowError where a number is too large.
        """
        for size, most in self.limits:
            if size.evaluate(values) > most:
                raise LongRows(f"'{self.program.name}': {size} is {size.evaluate(values)}; expected {most} at most")
        numbers = [size.evaluate(values) for size in self.table.sizes]
        found = cast(Program, _at(self.program, values))
        if max([found.arena_bytes, *numbers]) > MOST:
            extents = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise OverflowError(f"'{found.name}': extents {extents} give more than 2**63 bytes")
        if not self.table.sizes:
            return found
        buffers = list(found.buffers)
        place = self.table.buffer
        buffers[place] = replace(buffers[place], data=np.array(numbers, np.int64))
        return replace(found, buffers=tuple(buffers))


def _at(part: object, values: Mapping[str, int]) -> object:
    """A part of the record with numbers in the place of sizes; itself where it has none."""
    if isinstance(part, Size):
        return part.evaluate(values)
    if isinstance(part, tuple):
        items = cast("tuple[object, ...]", part)
        found = tuple([_at(item, values) for item in items])
        return found if any(a is not b for a, b in zip(found, items, strict=True)) else items
    if not is_dataclass(part) or isinstance(part, type):
        return part
    given = {name: getattr(part, name) for name in _names(type(part))}
    changed = {name: new for name, old in given.items() if (new := _at(old, values)) is not old}
    return replace(part, **changed) if changed else part


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
