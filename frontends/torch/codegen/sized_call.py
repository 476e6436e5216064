"""The function that runs a graph with symbols for extents: one text and one program, for the numbers that calls bring.

What follows from the numbers for the program is computed by its own text; what PyTorch's calls, results and views of memory take
is computed by the text written here, once for numbers that are met again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.frontends.torch.codegen.attempts import Attempts, Call
from fuse_opt.frontends.torch.codegen.results import Results
from fuse_opt.frontends.torch.codegen.size_text import size_text
from fuse_opt.frontends.torch.codegen.steps import POOLED, flat_memory, follow_threads, library_step
from fuse_opt.frontends.torch.codegen.wrapper import MOST_IDLE, CallWriter, expect_memory
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.fx.strides import View
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.lowering.program import BufferRef, LibraryCall
from fuse_opt.tools.compiler.sized import CallerSizes

_strided = torch._C._dynamo.guards._reinterpret_tensor
KEPT = 64
"""Vectors of numbers of which it is known what follows from them; the one that was met first goes."""
_MOST_KEPT = 1 << 20
"""Bytes of arguments that are copied for a call with new numbers in case that it fails: a cache that grows may be any."""
Source = tuple[str, int, int | None]
"""A symbol, the position of an argument that is it or, with an axis, has it as an extent."""


class ComputedExtents(Results):
    """What of a writer's numbers depends on symbols has names in its text."""

    @cached_property
    def computed(self) -> dict[Sequence[Extent] | Extent, str]:
        """Numbers, and tuples of these, that depend on symbols, by the names that they have in the text."""
        return {}

    def extents(self, numbers: Sequence[Extent] | Extent) -> str:
        given = (numbers,) if isinstance(numbers, int | Size) else numbers
        if not any(isinstance(number, Size) for number in given):
            return repr(numbers)
        key = numbers if isinstance(numbers, int | Size) else tuple(numbers)
        return self.computed.setdefault(key, f"z{len(self.computed)}")

    def numbers_text(self, words: Mapping[str, str]) -> str:
        """A function of the words, which has symbols by name, that gives these numbers. Raises KeyError for another symbol."""
        return function_text("numbers", list(words.values()), [size_text(entry, words) for entry in self.computed])


class SizedWriter(ComputedExtents, CallWriter):
    """Writes the function of a call, and those of what follows from the numbers that it brings."""

    def __init__(self, imported: Imported, native: CallerSizes, sources: Sequence[Source]) -> None:
        super().__init__(imported, native.usual)
        self._sources = sources
        self._layout = native.layout
        self._words = {name: f"s{number}" for number, (name, _, _) in enumerate(sources)}
        self.bases: list[tuple[int, Any]] = []
        """The buffers that views are of, as tensors of one axis of these types."""

    def _new(self, view: View, dtype: str, nbytes: Extent) -> str:
        if not isinstance(nbytes, Size):
            return super()._new(view, dtype, nbytes)
        small, large = self._small(view, dtype), self._large(view, dtype, nbytes)
        return f"{small} if {self.extents(nbytes)} < {POOLED} else {large}"

    def _is_framed(self) -> bool:
        return True

    def _head(self) -> list[str]:
        names = self.imported.placeholders
        return [
            "def call(args):",
            f"    {', '.join(names)}, = args",
            "    follow_threads()",
            "    try:",
            "        frame = idle.pop()",
            "    except IndexError:",
            "        frame = new_frame()",
            f"    if frame.key != (key := {key_text(names, self._sources)}) and (other := take(frame, key)) is not None:",
            "        idle.append(frame)",
            f"        del {', '.join(names)}",
            "        return other(args)",
            "    args.clear()",
            "    table, pieces, views, binding, seen, numbers = frame.parts",
            *([f"    {', '.join(self.pieces)}, = pieces"] if self.pieces else []),
            *([f"    {', '.join(self.views.values())}, = views"] if self.views else []),
            *([f"    {', '.join(self.computed.values())}, = numbers"] if self.computed else []),
        ]

    def _text(self) -> str:
        """Raises SizeRefusal for a symbol that no argument has."""
        try:
            return f"{self.numbers_text(self._words)}\n\n{self._views()}\n\n{super()._text()}"
        except KeyError as error:
            raise SizeRefusal(f"no argument says what the symbol {error} is") from error

    def _views(self) -> str:
        """Of the numbers of symbols, those of the program, and `bases`."""
        offsets = {name: f"n[{self._layout.offsets + k}]" for k, name in enumerate(self._layout.offset_names)}
        words = {**self._words, **offsets}
        items: list[str] = []
        for found in self.views:
            if (base := (found.buffer, found.dtype)) not in self.bases:
                self.bases.append(base)
            view, begin = found.view, size_text(found.offset, words)
            texts = [size_text(entry, words) for entry in (view.shape, view.strides, view.offset)]
            at = f"{texts[2]} + {begin} // {found.dtype.itemsize}"
            items.append(f"strided(bases[{self.bases.index(base)}], {texts[0]}, {texts[1]}, {at})")
        self.names["strided"] = _strided
        return function_text("views", [*self._words.values(), "n", "bases"], items)

    def _write_library(self, number: int, step: Any) -> None:
        self.lines.append(f"library(frame, {number})")


def key_text(placeholders: Sequence[str], sources: Sequence[Source]) -> str:
    """The numbers of a call; none where guards say what all symbols are."""
    parts = [placeholders[at] if axis is None else f"{placeholders[at]}.shape[{axis}]" for _, at, axis in sources]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def function_text(name: str, parameters: Sequence[str], items: Sequence[str]) -> str:
    """A function that gives a tuple."""
    lines = [f"        {item},\n" for item in items]
    return f"def {name}({', '.join(parameters)}):\n    return (\n{''.join(lines)}    )\n"


@dataclass(slots=True)
class _Frame:
    """What a run needs to itself, for the numbers that it had last."""

    native: Any
    binding: Any
    key: tuple[int, ...] | None = None
    parts: tuple[Any, ...] = ()
    seen: list[int] = field(default_factory=lambda: [0])
    bases: list[Any] = field(default_factory=list[Any])
    arena: Any = None
    """The one that `bases` and views are of."""
    views: dict[tuple[int, ...], tuple[Any, ...]] = field(default_factory=dict[tuple[int, ...], tuple[Any, ...]])
    libraries: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])


class SizedText:
    """A graph as a function of its arguments that finds the numbers of its symbols among them."""

    def __init__(
        self,
        imported: Imported,
        native: CallerSizes,
        sources: Sequence[Source],
        otherwise: Callable[[], Call],
        attempts: Attempts,
    ) -> None:
        """
        `otherwise` gives what runs calls whose numbers this program is not for; `attempts` run the first call, and those with
        numbers that are met first: of these no arguments are kept that are large and written to by steps. Raises SizeRefusal.
        """
        self.native, self.stats = native, native.usual.stats
        self.symbols = sorted({one.name for one in native.symbols} | set(native.layout.names))
        self._names = [name for name, _, _ in sources]
        if unknown := [name for name in self.symbols if name not in self._names]:
            raise SizeRefusal(f"no argument says what the symbol '{unknown[0]}' is")
        self._order = [self._names.index(name) for name in native.layout.names]
        writer = SizedWriter(imported, native, sources)
        self.text = writer.write()
        self._steps, self._program = writer.steps, writer.program
        self._bases, self._has_views = writer.bases, bool(writer.views)
        self._known: dict[tuple[int, ...], tuple[Any, ...]] = {}
        self._otherwise = otherwise
        self._attempts, self._ran = attempts, False
        attempts.stored = sorted(writer.written_by_steps() & set(attempts.stored))
        self._met: dict[tuple[int, ...], None] = {}
        """The numbers of calls that were attempted last."""
        self._frames = native.frames
        expect_memory(imported)
        names: dict[str, Any] = {
            **writer.names,
            "idle": deque[Any](maxlen=MOST_IDLE),
            "new_frame": self._new_frame,
            "take": self._take,
            "library": self._library,
            "follow_threads": follow_threads,
        }
        exec(compile(self.text, "<fuse_opt call>", "exec"), names)
        self._numbers: Callable[..., tuple[Any, ...]] = names["numbers"]
        self._views: Callable[..., tuple[Any, ...]] = names["views"]
        self.call: Call = cast(Call, names["call"])
        """Runs the graph, for the list of its arguments, which it empties."""

    def _new_frame(self) -> _Frame:
        native = self._frames()
        return _Frame(native, native.binding)

    def _take(self, frame: _Frame, key: tuple[int, ...]) -> Call | None:
        """Makes a frame, which nobody uses, one for these numbers; what is to be called for them where the program is not."""
        frame.key = None
        if key not in self._met:
            return partial(self._attempts, partial(self._first, key), most=_MOST_KEPT if self._ran else None)
        try:
            return self._made_for(frame, key)
        except Exception as error:
            return partial(self._attempts.failed, error)

    def _first(self, key: tuple[int, ...], args: list[Any]) -> Any:
        while len(self._met) >= KEPT:
            self._met.pop(next(iter(self._met)), None)
        self._met[key] = None
        try:
            found = self.call(args)
        except Exception:
            self._met.pop(key, None)
            raise
        self._ran = True
        return found

    def _made_for(self, frame: _Frame, key: tuple[int, ...]) -> Call | None:
        if not frame.native.take([key[place] for place in self._order]):
            return self._otherwise()
        if (numbers := self._known.get(key)) is None:
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)), None)
            numbers = self._known[key] = self._numbers(*key)
        views = self._views_of(frame, key) if self._has_views else ()
        binding = frame.binding
        frame.libraries.clear()
        frame.key, frame.parts = key, (binding.table, binding.pieces, views, binding, frame.seen, numbers)
        return None

    def _views_of(self, frame: _Frame, key: tuple[int, ...]) -> tuple[Any, ...]:
        if frame.arena is not frame.native.arena:
            frame.arena = frame.native.arena
            frame.views.clear()
            frame.bases = [
                flat_memory(frame.arena, self._program.buffers[buffer], dtype) for buffer, dtype in self._bases
            ]
        if (views := frame.views.get(key)) is None:
            while len(frame.views) >= MOST_IDLE:
                del frame.views[next(iter(frame.views))]
            views = frame.views[key] = self._views(*key, frame.native.taken(), frame.bases)
        return views

    def _library(self, frame: _Frame, number: int) -> None:
        """Makes a call of a library on the memory of a frame: by compiled code where that can, else from Python."""
        if (run := frame.libraries.get(number)) is None:
            layout, found = self.native.layout, frame.native.taken()
            values = dict(self.native.named(dict(zip(self._names, frame.key or (), strict=True))))
            offsets = found[layout.offsets : layout.offsets + len(layout.offset_names)]
            values.update(zip(layout.offset_names, offsets, strict=True))
            step = _step_at(self._steps[number], values)
            run = self.native.bind_call(frame.native, step) or partial(library_step(step), frame.binding)
            frame.libraries[number] = run
        run()


def _step_at(step: LibraryCall, values: Mapping[str, int]) -> LibraryCall:
    """A call where symbols have these values."""

    def at(ref: BufferRef) -> BufferRef:
        shape = tuple([evaluate(extent, values) for extent in ref.shape])
        return BufferRef(ref.buffer, evaluate(ref.offset, values), shape, ref.dtype)

    workspace = None if step.workspace is None else at(step.workspace)
    config = {name: value.evaluate(values) if isinstance(value, Size) else value for name, value in step.config.items()}
    inputs, outputs = tuple(map(at, step.inputs)), tuple(map(at, step.outputs))
    return replace(step, inputs=inputs, outputs=outputs, workspace=workspace, config=config)
