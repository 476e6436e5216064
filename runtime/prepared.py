"""Programs of which another computes some arguments: when it runs, and where what it computes lies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, LibraryCall, Preparation, Program
from fuse_opt.runtime.buffers import ALIGNMENT, AlignedArena

_SUMMED = ("compile_s", "compiled", "cached")
"""What is counted of both programs."""

Memory = Callable[[], Sequence[Any] | None]
"""Gives new arrays for the results of the second program; None where that finds memory itself."""


class PreparedArrays(list[Any]):
    """What a second program computed; its elements are valid as long as this object or one of them lives."""

    keeps: Any = None


_shared: WeakValueDictionary[Hashable, PreparedArrays] = WeakValueDictionary()


class PreparedProgram:
    """
    A program and the one that computes its further arguments, as one that takes all others. A call computes them anew;
    who keeps them calls `prepared` once, and `program` with what `merged` gives.
    """

    def __init__(self, program: Any, prepare: Any, preparation: Preparation, memory: Memory = lambda: None) -> None:
        self.program = program
        """The first program, which takes all arguments."""
        self.prepare = prepare
        """The second one."""
        self.preparation = preparation
        self._memory = memory
        self._text = _text_of(preparation.program)
        self.read = _read(preparation)
        """The arguments of the first program that the second one reads."""
        self._count = len(program.program.arguments) - len(preparation.arguments)

    def around(self, program: Any) -> PreparedProgram:
        """The same with another first program, whose arguments are the same."""
        return PreparedProgram(program, self.prepare, self.preparation, self._memory)

    @property
    def stats(self) -> Any:
        """Those of the first program, and what compiling took of both."""
        stats, other = self.program.stats, self.prepare.stats
        known = {field.name for field in fields(stats)} & set(_SUMMED)
        return replace(stats, **{name: getattr(stats, name) + getattr(other, name) for name in sorted(known)})

    @property
    def source(self) -> str:
        """The text of both."""
        return f"{self.program.source}\n{self.prepare.source}"

    def __call__(self, *arrays: Any, out: Any = None, **keywords: Any) -> Any:
        name = self.program.program.name
        if len(arrays) != self._count:
            raise TypeError(f"'{name}' takes {self._count} arguments, got {len(arrays)}")
        return self.program(*self._computed(arrays), out=out, **keywords)

    def taken(self, arrays: Sequence[Any], out: Any) -> Any:
        """As a call where compiled code takes the arrays as they are; else NotImplemented."""
        direct = getattr(self.program, "direct", None)
        if direct is None or len(arrays) != self._count:
            return NotImplemented
        try:
            full = self._computed(arrays)
        except (TypeError, ValueError):  # a checked call says what is wrong
            return NotImplemented
        return direct(tuple(full), out)

    def _computed(self, arrays: Sequence[Any]) -> list[Any]:
        """All arguments, of which the second program computes some anew."""
        full = self.merged(arrays)
        results = self.prepare(*(full[number] for number in self.preparation.frozen))
        self.fill(full, _sequence(results, self.preparation))
        return full

    def prepared(self, full: Sequence[Any], version: Hashable = None, keeps: Any = None) -> PreparedArrays:
        """
        What the second program computes from all arguments of the first, in memory of its own. Programs with the same second
        one share it as long as one of them keeps the object; `version` stands for the elements of what is read (None: they
        are not known again), `keeps` is what has to live for that to hold.
        """
        key = None if self._text is None or version is None else (self._text, version)
        if key is not None and (known := _shared.get(key)) is not None:
            return known
        results = self.prepare(*(full[number] for number in self.preparation.frozen), out=self._memory())
        found = PreparedArrays(_sequence(results, self.preparation))
        found.keeps = keeps
        if key is not None:
            _shared[key] = found
        return found

    def merged(self, arrays: Sequence[Any]) -> list[Any]:
        """A caller's arguments at their positions among all; None stands for the others."""
        full = list(arrays)
        for number in self.preparation.arguments:
            full.insert(number, None)
        return full

    def fill(self, full: list[Any], results: Sequence[Any]) -> None:
        """Puts what the second program computed among the arguments."""
        for number, array in zip(self.preparation.arguments, results, strict=True):
            full[number] = array


def persistent_memory(program: Program) -> Memory:
    """Arrays for the results of a program, side by side in one arena, which lives as long as one of them does."""
    offsets: list[int] = []
    end = 0
    for result in program.results:
        offsets.append(end)
        size = prod(result.shape) * np.dtype(NUMPY_NAMES[result.dtype]).itemsize
        end += -(-size // ALIGNMENT) * ALIGNMENT

    def memory() -> Sequence[Any]:
        arena = AlignedArena(end)
        places = zip(offsets, program.results, strict=True)
        return [arena.view(offset, result.shape, NUMPY_NAMES[result.dtype]) for offset, result in places]

    return memory


def _text_of(program: Program) -> Hashable:
    """What is the same for programs that compute the same from the same arguments; None where the text does not say all."""
    if any(buffer.kind == "constant" for buffer in program.buffers):
        return None
    if any(isinstance(step, LibraryCall) for step in program.steps):
        return None
    return program.source, program.results


def _read(preparation: Preparation) -> tuple[int, ...]:
    program = preparation.program
    found = {result.index for result in program.results}
    for step in program.steps:
        launches = () if isinstance(step, LibraryCall) else step.launches
        refs = step.inputs if isinstance(step, LibraryCall) else [ref for launch in launches for ref in launch.buffers]
        found.update(ref.buffer for ref in refs)
    return tuple(number for place, number in enumerate(preparation.frozen) if place in found)


def _sequence(results: Any, preparation: Preparation) -> Sequence[Any]:
    return [results] if len(preparation.arguments) == 1 else results
