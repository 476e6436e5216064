"""Where the buffers of a program lie in a compiled call, how its results come to the caller, and what arguments become.

A variable *holds* a buffer: it has a layout and an element type of its own, and the buffer is its bytes. What a result
is like (shape, strides, element type) is said by the traced graph alone; a variable that holds its bytes is handed out
only where it is a new tensor made for it. In particular an argument that is overwritten may hold a result of another
shape or type: such a result is copied to a tensor of its own before the argument gets its own contents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fuse_opt.dialects.types.size import Extent
from fuse_opt.frontends.torch.codegen.kept import Kept
from fuse_opt.frontends.torch.codegen.steps import POOLED, FrameView, pooled
from fuse_opt.frontends.torch.fx.api import DTYPES, torch
from fuse_opt.frontends.torch.fx.strides import View, contiguous_view
from fuse_opt.frontends.torch.importer.imported import Imported, Returned, Stored

_guards: Any = torch._C._dynamo.guards


@dataclass(frozen=True)
class Held:
    """A variable whose memory is a buffer of the program."""

    name: str
    view: View
    """How its elements lie, from the first one on; they fill the memory."""
    dtype: Any


class Results(ABC):
    """Collects the text of the function and the objects that it names; writes what is not a step."""

    def __init__(self, imported: Imported, native: Any) -> None:
        self.imported = imported
        self.prepared = native if hasattr(native, "preparation") else None
        """The program with the one that computes further arguments of it; None where there is none."""
        self.native: Any = native if self.prepared is None else self.prepared.program
        self.program: Any = self.native.program
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(imported.constants)
        self.views: dict[FrameView, str] = {}
        self.in_table: set[int] = set()
        self.held: dict[int, Held] = {}
        """By buffer of the program."""
        self.in_place = self._stored_in_place()

    def _hold(self, buffer: int, held: Held) -> None:
        self.held[buffer] = held
        if buffer in self.in_table:
            self.lines.append(f"table[{buffer}] = {held.name}.data_ptr()")

    def _write_arguments(self) -> None:
        for number, argument in enumerate(self.imported.arguments):
            name, view = argument.name, argument.view
            if not argument.dense:
                name, view = f"c{name}", contiguous_view(view.shape)
                self.lines.append(f"{name} = {argument.name}.contiguous()")
            self._hold(number, Held(name, view, argument.dtype))

    def _write_prepared(self) -> None:
        """
        Tensors that follow from arguments which are seldom written to; computed where one was. A frame has their addresses
        in its table until it meets others.
        """
        if self.prepared is None:
            return
        kept = Kept(self.prepared)
        self.names["kept"] = kept
        given = [self.imported.arguments[number].name for number in kept.read]
        self.lines.append(f"number, q = kept({', '.join(given)})")
        places: list[str] = []
        for place, number in enumerate(kept.arguments):
            buffer = self.program.buffers[number]
            self.held[number] = Held(f"q[{place}]", contiguous_view(buffer.shape), DTYPES[buffer.dtype])
            if number in self.in_table:
                places.append(f"    table[{number}] = q[{place}].data_ptr()")
        if places:
            self.lines += ["if number != seen[0]:", *places, "    seen[0] = number"]

    def _write_results(self) -> None:
        """New tensors for the results that the program writes."""
        for number in self._own_results():
            self._write_result(number)

    def _own_results(self) -> list[int]:
        """
        The numbers of those results that the program writes to tensors of their own. A program has a result, be it of nobody's
        where nothing is left to compute: then there is one more of these than buffers.
        """
        pairs = zip(self.imported.buffers, self.program.results, strict=False)
        return [
            number
            for number, (buffer, result) in enumerate(pairs)
            if not buffer.foreign and not result.copied and not self._is_in_argument(number)
        ]

    def _write_result(self, number: int) -> None:
        self._write_empty(number)
        buffer = self.imported.buffers[number]
        self._hold(self.program.results[number].index, Held(f"r{number}", buffer.view, buffer.dtype))

    def _write_empty(self, number: int) -> None:
        buffer = self.imported.buffers[number]
        dtype = self.constant("dtype", buffer.dtype)
        nbytes = prod(buffer.view.shape) * buffer.dtype.itemsize
        self.lines.append(f"r{number} = {self._new(buffer.view, dtype, nbytes)}")

    def _new(self, view: View, dtype: str, nbytes: Extent) -> str:
        """A new tensor of so many bytes, and how it is strided."""
        return self._large(view, dtype, nbytes) if nbytes >= POOLED else self._small(view, dtype)

    def _small(self, view: View, dtype: str) -> str:
        self.names["empty"] = _guards._empty_strided_cpu
        return f"empty({self.extents(view.shape)}, {self.extents(view.strides)}, {dtype})"

    def _large(self, view: View, dtype: str, nbytes: Extent) -> str:
        self.names["pooled"] = pooled
        return self.strided(f"pooled({self.extents(nbytes)}, {dtype})", View(view.shape, view.strides))

    def _is_in_argument(self, number: int) -> bool:
        """Whether a result is left in an argument that the program overwrites."""
        return self.program.buffers[self.program.results[number].index].kind == "argument"

    def written_by_steps(self) -> set[int]:
        """The numbers of the arguments of the graph whose memory steps may write to; others are written to at the end."""
        given = zip(self.imported.arguments, self.program.buffers, strict=False)
        names = {argument.name for argument, buffer in given if buffer.kind == "argument" and buffer.donated}
        return {number for number, name in enumerate(self.imported.placeholders) if name in names}

    def _stored_in_place(self) -> dict[int, Stored]:
        """By result that is left in an argument: the store that makes it just that, of the same layout and type."""
        found: dict[int, Stored] = {}
        for stored in self.imported.stored:
            number = stored.source.buffer
            if number is None or self.program.results[number].copied or not self._is_in_argument(number):
                continue
            buffer = self.imported.buffers[number]
            index: int = self.program.results[number].index
            argument = self.imported.arguments[index]
            same = argument.dtype is buffer.dtype and _is_same(stored.source.view or buffer.view, argument.view)
            if argument.name == stored.argument and same:
                found[number] = stored
        return found

    def _write_copies(self) -> None:
        """Tensors of their own for results that were left in memory that is not theirs; before any argument is stored to."""
        for number, buffer in enumerate(self.imported.buffers):
            result = self.program.results[number]
            if buffer.foreign or not (result.copied or self._is_in_argument(number)):
                continue
            if number in self.in_place and not self._is_needed(number):
                continue
            self._write_empty(number)
            flat = View((prod(buffer.view.shape),), (1,))
            source = self.tensor(result.index, 0, flat, buffer.dtype)
            self.lines.append(f"{self.strided(f'r{number}', flat)}.copy_({source})")

    def _is_needed(self, number: int) -> bool:
        """Whether a result is asked for by somebody beside the store that finds it in place."""
        others = [stored.source for stored in self.imported.stored if stored is not self.in_place[number]]
        return any(returned.buffer == number for returned in (*self.imported.returned, *others))

    def _write_stores(self) -> None:
        for stored in self.imported.stored:
            if stored is not self.in_place.get(stored.source.buffer if stored.source.buffer is not None else -1):
                self.lines.append(f"{stored.argument}.copy_({self._returned(stored.source)})")

    def _write_return(self) -> None:
        items = [self._returned(returned) for returned in self.imported.returned]
        self.lines.append(f"return ({', '.join(items)}{',' if len(items) == 1 else ''})")

    def _returned(self, returned: Returned) -> str:
        if returned.variable is not None:
            return self._argument(returned.variable, None)
        if returned.buffer is None:
            return self._argument(returned.value, None)
        return self.strided(f"r{returned.buffer}", returned.view)

    @abstractmethod
    def _argument(self, item: Any, step: Any) -> str:
        """An argument of a call as Python text."""

    def tensor(self, buffer: int, offset: int, view: View, dtype: Any) -> str:
        """A strided tensor in a buffer of the program; `offset` is in bytes."""
        if self.program.buffers[buffer].kind in ("arena", "constant"):
            return self.views.setdefault(FrameView(buffer, offset, view, dtype), f"v{len(self.views)}")
        held = self.held[buffer]
        inside = View(view.shape, view.strides, view.offset + offset // dtype.itemsize)
        if held.dtype is dtype:
            return self.strided(held.name, None if held.view == inside else inside)
        flat = self.strided(held.name, View((prod(held.view.shape),), (1,)))
        return self.strided(f"{flat}.view({self.constant('dtype', dtype)})", inside)

    def strided(self, name: str, view: View | None) -> str:
        if view is None:
            return name
        self.names["strided"] = _guards._reinterpret_tensor
        return f"strided({name}, {self.extents(view.shape)}, {self.extents(view.strides)}, {self.extents(view.offset)})"

    def extents(self, numbers: Sequence[Extent] | Extent) -> str:
        """Numbers, or one, as Python text."""
        return repr(numbers)

    def constant(self, stem: str, value: Any) -> str:
        """A name for an object."""
        number = 0
        while True:
            name = f"{stem}{number}"
            if name not in self.names or self.names[name] is value:
                self.names[name] = value
                return name
            number += 1


def _is_same(a: View, b: View) -> bool:
    """Whether two views of one memory are the same elements; axes of one element may have any stride."""
    if (a.shape, a.offset) != (b.shape, b.offset):
        return False
    return all(n == 1 or p == q for n, p, q in zip(a.shape, a.strides, b.strides, strict=True)) or 0 in a.shape
