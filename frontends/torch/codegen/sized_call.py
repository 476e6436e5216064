"""The function that runs a graph with symbols for extents: one text and one program, bound to the numbers that calls bring."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fuse_opt.dialects.types.extents import evaluate, symbols
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.frontends.torch.codegen.steps import FrameView, follow_threads, frame_tensor, library_step
from fuse_opt.frontends.torch.codegen.wrapper import MOST_IDLE, CallWriter, expect_memory
from fuse_opt.frontends.torch.fx.strides import View
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.tools.compiler.sized import CallerSizes, LongRows

KEPT = 64
"""Vectors of numbers whose frames are kept; the one that was met first goes."""
_Call = Callable[[list[Any]], Any]


class SizedWriter(CallWriter):
    """Writes a function that makes the function of a call: what depends on symbols is computed once for their numbers."""

    def __init__(self, imported: Imported, native: Any) -> None:
        super().__init__(imported, native)
        self.computed: dict[Sequence[Extent] | Extent, str] = {}
        """Numbers, and tuples of these, that depend on symbols, by the names that they have in the text."""

    def extents(self, numbers: Sequence[Extent] | Extent) -> str:
        given = (numbers,) if isinstance(numbers, int | Size) else numbers
        if not any(isinstance(number, Size) for number in given):
            return repr(numbers)
        return self.computed.setdefault(numbers, f"z{len(self.computed)}")

    def _text(self) -> str:
        head = ["def bound(numbers, idle, new_frame, libraries):"]
        if self.computed:
            head.append(f"    {', '.join(self.computed.values())}, = numbers")
        return "\n".join([*head, *(f"    {line}" for line in super()._text().splitlines()), "    return call"]) + "\n"

    def _write_library(self, number: int, step: Any) -> None:
        self.lines.append(f"libraries[{number}](binding)")


class SizedText:
    """A program with sizes and the text that runs it, for the vectors of numbers that calls bring."""

    def __init__(self, imported: Imported, native: CallerSizes) -> None:
        """Raises SizeRefusal."""
        self.native = native
        writer = SizedWriter(imported, native.usual)
        self.text = writer.write()
        self._computed, self._views = list(writer.computed), list(writer.views)
        entries = [n if isinstance(n, int | Size) else tuple(n) for n in self._computed]
        numbers = [number for entry in entries for number in (entry if isinstance(entry, tuple) else (entry,))]
        self.symbols = {one.name for one in (*native.symbols, *symbols(numbers))}
        """The names of all symbols that numbers are asked for of."""
        self._has_pieces = bool(writer.pieces)
        expect_memory(imported)
        names = {**writer.names, "follow_threads": follow_threads}
        exec(compile(self.text, "<fuse_opt call>", "exec"), names)
        self._bound: Any = names["bound"]

    def at(self, values: Mapping[str, int]) -> _Call:
        """The function of calls for these numbers. Raises LongRows, and OverflowError."""
        native = self.native.at(values)
        libraries = {n: library_step(step) for n, step in enumerate(native.steps) if not callable(step)}
        numbers = [_at(entry, values) for entry in self._computed]
        named = self.native.named(values)
        views = [_view_at(view, named) for view in self._views]

        def new_frame() -> tuple[Any, tuple[int, ...], tuple[Any, ...], Any, list[int]]:
            binding = native.bind()
            tensors = tuple(frame_tensor(binding, native.program, view) for view in views)
            return binding.table, binding.pieces if self._has_pieces else (), tensors, binding, [0]

        return cast(_Call, self._bound(numbers, deque[Any](maxlen=MOST_IDLE), new_frame, libraries))


def _at(numbers: Sequence[Extent] | Extent, values: Mapping[str, int]) -> Any:
    if isinstance(numbers, int | Size):
        return evaluate(numbers, values)
    return tuple([evaluate(number, values) for number in numbers])


def _view_at(found: FrameView, values: Mapping[str, int]) -> FrameView:
    view = found.view
    numbers = View(_at(view.shape, values), _at(view.strides, values), evaluate(view.offset, values))
    return replace(found, offset=evaluate(found.offset, values), view=numbers)


class SizedCall:
    """A graph as a function of its arguments that finds the numbers of its symbols among them."""

    _boxed_call = True

    def __init__(
        self, sources: Sequence[tuple[str, int, int | None]], make: Callable[[bool], SizedText], otherwise: _Call
    ) -> None:
        """
        `sources` say by symbol the position of an argument that is it, or with an axis of one that has it as an extent. `make`
        compiles the text for short rows, or for all; `otherwise` runs calls in which a symbol is 0. Raises what `make` raises for
        the first text.
        """
        self._names = [name for name, _, _ in sources]
        self._places = [(position, axis) for _, position, axis in sources]
        self._make, self._otherwise = make, otherwise
        self._texts = [make(False)]
        if unknown := sorted(self._texts[0].symbols - set(self._names)):
            raise SizeRefusal(f"no argument says what the symbol '{unknown[0]}' is")
        self._calls: dict[tuple[int, ...], _Call] = {}
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> Any:
        key = tuple([args[place] if axis is None else args[place].shape[axis] for place, axis in self._places])
        if (call := self._calls.get(key)) is None:
            call = self._bind(key)
        return call(args)

    @property
    def first(self) -> SizedText:
        """The text for short rows."""
        return self._texts[0]

    def _bind(self, key: tuple[int, ...]) -> _Call:
        if 0 in key:
            return self._otherwise
        values = dict(zip(self._names, key, strict=True))
        with self._lock:
            if (found := self._calls.get(key)) is not None:
                return found
            try:
                call = self._texts[0].at(values)
            except LongRows:
                if len(self._texts) == 1:
                    self._texts.append(self._make(True))
                call = self._texts[1].at(values)
            while len(self._calls) >= KEPT:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = call
            return call
