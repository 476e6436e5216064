"""
The function that runs a graph with symbols for extents on a device: one text of kernels, one text of the call, and for each
vector of numbers that calls bring the program that its launches are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.torch.codegen.device_wrapper import PARTS, DeviceCallWriter, Frames, current_stream
from fuse_opt.frontends.torch.codegen.sized_call import Call, ComputedExtents, Source, key_text
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.tools.compiler.device_sizes import BoundPrograms, LongRows

KEPT = 32
"""Vectors of numbers whose programs are kept; the one that was met first goes."""


class SizedDeviceWriter(ComputedExtents, DeviceCallWriter):
    """Writes the function of a call, which looks for the vector of its numbers first."""

    def __init__(
        self, imported: Imported, programs: BoundPrograms, sources: Sequence[Source], device: Any, parts: int
    ) -> None:
        super().__init__(imported, programs.structure, device, parts)
        self._sources = sources
        self._words = {name: f"s{number}" for number, name in enumerate(programs.names)}

    def _text(self) -> str:
        """Raises SizeRefusal for a symbol that no argument has."""
        text = super()._text()
        try:
            return f"{self.numbers_text(self._words)}\n\n{text}"
        except KeyError as error:
            raise SizeRefusal(f"no argument says what the symbol {error} is") from error

    def _start(self) -> list[str]:
        names = self.imported.placeholders
        return [
            f"{', '.join(names)}, = args",
            f"vector = vectors.get(key := {key_text(names, self._sources)}) or take(key)",
            "if vector.other is not None:",
            f"    del {', '.join(names)}",
            "    return vector.other(args)",
            "args.clear()",
        ]

    def _frame_lines(self, take: str) -> list[str]:
        numbers = [f"{', '.join(self.computed.values())}, = vector.numbers"] if self.computed else []
        return [*super()._frame_lines("vector.frames.take"), *numbers]

    def _write_give_back(self) -> None:
        self.lines.append("vector.frames.give(stream, frame)")

    def _write_library(self, number: int, step: Any) -> None:
        raise SizeRefusal(f"'{step.operation}' runs on the host, which takes numbers")


@dataclass(slots=True)
class _Vector:
    """What follows from numbers of symbols."""

    numbers: tuple[Any, ...] = ()
    frames: Any = None
    other: Call | None = None
    """What runs calls whose numbers the programs are not for."""


class SizedDeviceCall:
    """A graph as a function of its arguments, which finds the numbers of its symbols among them."""

    def __init__(
        self,
        imported: Imported,
        programs: BoundPrograms,
        sources: Sequence[Source],
        device: Any,
        is_backward: bool,
        otherwise: Callable[[], Call],
    ) -> None:
        """`otherwise` gives what runs calls whose numbers the programs are not for. Raises SizeRefusal."""
        self._names = [name for name, _, _ in sources]
        self.symbols = [one.name for one in programs.symbols]
        if unknown := [name for name in self.symbols if name not in self._names]:
            raise SizeRefusal(f"no argument says what the symbol '{unknown[0]}' is")
        self._programs, self._otherwise = programs, otherwise
        self._vectors: dict[tuple[int, ...], _Vector] = {}
        self._writer = writer = SizedDeviceWriter(imported, programs, sources, device, PARTS if is_backward else 1)
        self.text, self.stats = writer.write(), programs.structure.stats
        names: dict[str, Any] = {
            **writer.names,
            "vectors": self._vectors,
            "take": self._take,
            "current": current_stream(device),
        }
        exec(compile(self.text, "<fuse_opt call>", "exec"), names)
        self._numbers: Callable[..., tuple[Any, ...]] = names["numbers"]
        self.call = cast(Call, names["call"])
        """Runs the graph, for the list of its arguments, which it empties."""

    def _take(self, key: tuple[int, ...]) -> _Vector:
        """The vector of numbers that are met first, or were forgotten."""
        found = self._vector_of(dict(zip(self._names, map(int, key), strict=True)))
        while len(self._vectors) >= KEPT:
            self._vectors.pop(next(iter(self._vectors)), None)
        self._vectors[key] = found
        return found

    def _vector_of(self, values: dict[str, int]) -> _Vector:
        if any(one.problem(values[one.name]) is not None for one in self._programs.symbols):
            return _Vector(other=self._otherwise())
        try:
            native = self._programs.at(values)
        except (LongRows, OverflowError):
            return _Vector(other=self._otherwise())
        named = self._programs.named(values)
        numbers = self._numbers(*[named[name] for name in self._programs.names])
        return _Vector(numbers, Frames(native, self._writer.cuts, self._writer.memory))
