"""
The function that runs a graph with symbols for extents on a device: one text of kernels, compiled once, and for each vector of
numbers that calls bring what the host has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.dialects.types.symbol import Symbol
from fuse_opt.frontends.torch.codegen.device_wrapper import DeviceCallWriter, compile_device_call
from fuse_opt.frontends.torch.codegen.known_sizes import imported_at
from fuse_opt.frontends.torch.codegen.sized_call import Call, Source
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.lowering.emit.sized_program import LongRows
from fuse_opt.tools.compiler.device_sizes import BoundPrograms

KEPT = 32
"""Vectors of numbers whose calls are kept; the one that was met first goes."""


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
        names = [name for name, _, _ in sources]
        self.symbols = [one.name for one in programs.symbols]
        if unknown := [name for name in self.symbols if name not in names]:
            raise SizeRefusal(f"no argument says what the symbol '{unknown[0]}' is")
        self._imported, self._programs, self._sources = imported, programs, sources
        self._device, self._is_backward, self._otherwise = device, is_backward, otherwise
        self._calls: dict[tuple[int, ...], Call] = {}
        usual = programs.usual
        self.stats = usual.stats
        """Of the program for usual numbers."""
        values = {**{name: Symbol(name).usual for name in names}, **{one.name: one.usual for one in programs.symbols}}
        self.text = DeviceCallWriter(imported_at(imported, values), usual, device).write()
        """Of a call with these."""

    def call(self, args: list[Any]) -> Any:
        """Runs the graph, for the list of its arguments, which it empties."""
        key = tuple([args[at] if axis is None else args[at].shape[axis] for _, at, axis in self._sources])
        call = self._calls.get(key)
        return (self._made(key) if call is None else call)(args)

    def _made(self, key: tuple[int, ...]) -> Call:
        call = self._call_for(key)
        while len(self._calls) >= KEPT:
            self._calls.pop(next(iter(self._calls)), None)
        self._calls[key] = call
        return call

    def _call_for(self, key: tuple[int, ...]) -> Call:
        values = {name: int(number) for (name, _, _), number in zip(self._sources, key, strict=True)}
        if any(one.problem(values[one.name]) is not None for one in self._programs.symbols):
            return self._otherwise()
        try:
            native = self._programs.at(values)
        except (LongRows, OverflowError):
            return self._otherwise()
        imported = imported_at(self._imported, values)
        return compile_device_call(imported, native, self._device, is_backward=self._is_backward)[0]
