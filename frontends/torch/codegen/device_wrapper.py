"""The Python function that runs a compiled graph on a CUDA device, on the stream that is current when it is called.

All memory is PyTorch's: results are new tensors, and so is the arena of intermediate values, in each call. So nothing lives
longer than it is needed, and what streams share is ordered as PyTorch's own allocator orders it. What stays between calls is
on the host: tables of addresses and packed arguments of launches, for each stream its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np

from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.torch.codegen.steps import FrameView
from fuse_opt.frontends.torch.codegen.wrapper import CallWriter
from fuse_opt.frontends.torch.fx.api import DTYPES, torch
from fuse_opt.frontends.torch.fx.strides import View, contiguous_view
from fuse_opt.frontends.torch.importer.imported import Imported
from fuse_opt.frontends.torch.recording.recordable import why_not
from fuse_opt.frontends.torch.recording.recorded import Recorded
from fuse_opt.frontends.torch.recording.recorders import CudaRecorder, RepeatingRecorder
from fuse_opt.lowering.program import NUMPY_NAMES

_MOST_STREAMS = 16
"""Streams whose tables are kept while nobody calls the graph."""
_ALIGNMENT = 256
"""Of an arena, in bytes."""
PARTS = 8
"""Of a backward graph: gradients are as large as what they follow from, and take the place of what was kept for them."""
_SMALLEST_PART = 8 << 20
"""Bytes of new results; another launch of a piece is a few microseconds of the host."""


class DeviceCallWriter(CallWriter):
    """Writes the steps of a program whose arena, constants and results are tensors of a device."""

    def __init__(self, imported: Imported, native: Any, device: Any, parts: int = 1) -> None:
        """In `parts`, between which arguments are dropped that are not read any more, and results made that come next."""
        super().__init__(imported, native)
        self.device = device
        self._first_use = self._find_first_uses()
        self.cuts = self._find_cuts(parts)
        """The steps before which a piece ends."""
        self._waiting: list[int] = []
        self.memory: dict[int, Any] = {}
        """By buffer, a constant as bytes on the device."""
        for number, buffer in enumerate(self.program.buffers):
            if buffer.kind == "constant":
                self.memory[number] = torch.from_numpy(buffer.data.reshape(-1).view(np.uint8).copy()).to(device)
        arenas = [number for number, buffer in enumerate(self.program.buffers) if buffer.kind == "arena"]
        self.arena: int | None = arenas[0] if arenas else None

    @property
    def is_captured(self) -> bool:
        """Whether all steps but PyTorch's may be part of a CUDA graph."""
        own = [n for n, site in enumerate(self.sites) if site is None]
        return all(map(self._is_compiled, own)) and self.native.is_captured

    def _text(self) -> str:
        arena = self._arena_lines()
        lines = [*self._start(), *self._frame_lines("take"), *arena, *self.lines]
        return "\n".join(["def call(args):", *(f"    {line}" for line in lines)]) + "\n"

    def _start(self) -> list[str]:
        """What takes the arguments apart."""
        names = self.imported.placeholders
        return [*([f"{', '.join(names)}, = args"] if names else []), "args.clear()"]

    def _frame_lines(self, take: str) -> list[str]:
        """What a run needs to itself, which a function gives for a stream."""
        lines: list[str] = []
        if self._is_framed():
            lines += ["stream = current()", f"frame = {take}(stream)", "table, pieces, check = frame", "check()"]
        if self.pieces:
            lines.append(f"{', '.join(self.pieces)}, = pieces")
        return lines

    def _arena_lines(self) -> list[str]:
        """The arena as a tensor, and tensors in it, and in constants."""
        lines: list[str] = []
        if self.arena is not None:
            self.names["new_arena"] = arena_maker(self.device)
            lines += [
                f"arena = new_arena({self.extents(self.program.arena_bytes)})",
                f"table[{self.arena}] = arena.data_ptr()",
            ]
        typed: dict[tuple[int, Any], str] = {}
        for view, name in self.views.items():
            if (key := (view.buffer, view.dtype)) not in typed:
                typed[key] = f"m{len(typed)}"
                whole = "arena" if view.buffer == self.arena else self.constant("k_", self.memory[view.buffer])
                lines.append(f"{typed[key]} = {whole}.view({self.constant('dtype', view.dtype)})")
            lines.append(f"{name} = {self.strided(typed[key], _in_elements(view))}")
        return lines

    def _find_first_uses(self) -> dict[int, int]:
        """By buffer, the first step that has it."""
        first: dict[int, int] = {}
        for number, step in enumerate(self.program.steps):
            for ref in _refs(step):
                first.setdefault(ref.buffer, number)
        return first

    def _find_cuts(self, parts: int) -> frozenset[int]:
        """Between parts about as many bytes of results are new; small results are not worth a part."""
        new = [0] * max(len(self.program.steps), 1)  # none where no result has an element
        for number in self._own_results():
            buffer = self.imported.buffers[number]
            new[self._first(number)] += estimate(prod(buffer.view.shape)) * buffer.dtype.itemsize
        wanted, found, since = max(sum(new) // parts, _SMALLEST_PART), set[int](), 0
        for number, nbytes in enumerate(new):
            if since and parts > 1 and since + nbytes > wanted:
                found.add(number)
                since = 0
            since += nbytes
        return frozenset(found)

    def _first(self, result: int) -> int:
        """The step that a result is made for: the first one where none has it."""
        return self._first_use.get(self.program.results[result].index, 0)

    def _write_results(self) -> None:
        """Results come to be with the piece or the call that writes them: what was dropped until then has made room."""
        self._waiting = self._own_results()
        if not self.steps:
            self._write_before(0)

    def _write_before(self, number: int) -> None:
        if number and self._is_compiled(number) and not self._begins_piece(number):
            return
        stop = number + 1
        while stop < len(self.steps) and self._is_compiled(stop - 1) and not self._begins_piece(stop):
            stop += 1
        ready = [result for result in self._waiting if self._first(result) < stop]
        self._waiting = [result for result in self._waiting if result not in ready]
        for result in ready:
            self._write_result(result)

    def _begins_piece(self, number: int) -> bool:
        return super()._begins_piece(number) or number in self.cuts or not self._is_compiled(number)

    def _write_prepared(self) -> None:
        assert self.prepared is None, "arguments of a device are not frozen"

    def _run_of(self, piece: str) -> str:
        return f"{piece}(stream)"

    def _write_empty(self, number: int) -> None:
        buffer = self.imported.buffers[number]
        self.names["empty"] = empty_maker(self.device)
        dtype = self.constant("dtype", buffer.dtype)
        shape, strides = self.extents(buffer.view.shape), self.extents(buffer.view.strides)
        self.lines.append(f"r{number} = empty({shape}, {strides}, {dtype})")

    def _write_library(self, number: int, step: Any) -> None:
        """A routine of the host, on copies of its arrays."""

        def named(ref: Any) -> str:
            return self.tensor(ref.buffer, ref.offset, contiguous_view(ref.shape), DTYPES[ref.dtype])

        self.names[f"library{number}"] = partial(host_step, step)
        given, written = (", ".join(map(named, refs)) for refs in (step.inputs, step.outputs))
        self.lines.append(f"library{number}([{given}], [{written}])")

    def _write_give_back(self) -> None:
        self.lines.append("give(stream, frame)")

    def _tensor(self, ref: Any, view: View | None, dtype: Any) -> str:
        if hasattr(ref, "buffer"):
            return super()._tensor(ref, view, dtype)
        assert view is not None
        made = torch.as_strided(ref, view.shape, view.strides, view.offset)
        return self.constant("t", made.to(self.device) if self.device.type != "cpu" else made)


def _refs(step: Any) -> Sequence[Any]:
    if hasattr(step, "launches"):
        return [ref for launch in step.launches for ref in launch.buffers]
    return (*step.inputs, *step.written)


def _in_elements(view: FrameView) -> View:
    size = view.dtype.itemsize
    aligned = isinstance(view.offset, Size) or view.offset % size == 0
    assert aligned, "a value that is not aligned to its elements"
    return View(view.view.shape, view.view.strides, view.view.offset + view.offset // size)


def compile_device_call(
    imported: Imported, native: Any, device: Any, recorded: Recorded | None = None, is_backward: bool = False
) -> tuple[Callable[[list[Any]], Any], str]:
    """
    The function that runs a graph on a device, for the list of its arguments, which it empties; and its text. The device is
    the processor where kernels are emulated. Where the call can be `recorded`, the function is that.
    """
    writer = DeviceCallWriter(imported, native, device, PARTS if is_backward else 1)
    text = writer.write()
    frames = Frames(writer.native, writer.cuts, writer.memory)
    names = {**writer.names, "take": frames.take, "give": frames.give, "current": current_stream(device)}
    exec(compile(text, "<fuse_opt call>", "exec"), names)
    call = cast(Callable[[list[Any]], Any], names["call"])
    if recorded is not None and why_not(imported.calls, len(writer.steps), writer.is_captured) is None:
        recorded.begin(call, CudaRecorder(device, frames.lent) if device.type == "cuda" else RepeatingRecorder())
        return recorded, text
    return call, text


class Frames:
    """Bindings of a program that nobody uses now, by the stream that they were last used on."""

    def __init__(self, native: Any, cuts: frozenset[int], memory: Mapping[int, Any]) -> None:
        """`memory` has the constants, by buffer."""
        self._native, self._cuts, self._memory = native, cuts, memory
        self._idle: dict[int, list[Any]] = {}

    def take(self, stream: int) -> Any:
        """Table, pieces and check of a binding."""
        try:
            return self._idle[stream].pop()
        except LookupError:
            pass
        binding = self._native.bind(self._cuts)
        for number, memory in self._memory.items():
            binding.table[number] = memory.data_ptr()
        return binding.table, binding.pieces, binding.check

    @contextmanager
    def lent(self, stream: int, other: int) -> Generator[list[Any]]:
        """
        What was used on a stream, or on any, is for calls on another one meanwhile, which find all that is made in a first run.
        They keep it: a list of it is given, which is complete at the end.
        """
        kept: list[Any] = []
        self._idle.setdefault(stream, [])
        self._idle[other] = self._idle.pop(stream) or (self._idle.popitem()[1] if self._idle else [])
        try:
            yield kept
        finally:
            kept += self._idle.pop(other, [])

    def give(self, stream: int, frame: Any) -> None:
        idle = self._idle
        if stream not in idle and len(idle) >= _MOST_STREAMS:
            idle.clear()
        idle.setdefault(stream, []).append(frame)


def current_stream(device: Any) -> Callable[[], int]:
    """What gives the handle of the stream that PyTorch works on now."""
    if device.type == "cpu":
        return lambda: 0
    raw: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return partial(raw, device.index)
    return lambda: torch.cuda.current_stream(device).cuda_stream


def empty_maker(device: Any) -> Callable[..., Any]:
    """What makes a tensor of a shape, strides and an element type."""
    if device.type == "cpu":
        return torch._C._dynamo.guards._empty_strided_cpu
    quick: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if quick is not None and torch.cuda.device_count() == 1:
        return quick  # on the current device, which is the only one

    def empty(shape: Any, strides: Any, dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def arena_maker(device: Any) -> Callable[[int], Any]:
    """What makes an arena of so many bytes."""
    empty = empty_maker(device)
    if device.type != "cpu":  # blocks of PyTorch's begin at multiples of 512
        return lambda nbytes: empty((max(nbytes, 1),), (1,), torch.uint8)

    def aligned(nbytes: int) -> Any:
        block = empty((max(nbytes, 1) + _ALIGNMENT,), (1,), torch.uint8)
        return block[-block.data_ptr() % _ALIGNMENT :][: max(nbytes, 1)]

    return aligned


def host_step(step: Any, inputs: list[Any], outputs: list[Any]) -> None:
    """Runs a call of a routine that only the host has, between copies."""
    given = [_array(tensor, ref) for tensor, ref in zip(inputs, step.inputs, strict=True)]
    found = [np.empty(ref.shape, NUMPY_NAMES[ref.dtype]) for ref in step.written]
    step.run(given, found, step.config)
    for tensor, array in zip(outputs, found, strict=False):  # a workspace is of the host alone
        if array.size:
            flat = torch.from_numpy(array.reshape(-1).view(np.uint8)).view(tensor.dtype)
            tensor.copy_(flat.reshape(tensor.shape))


def _array(tensor: Any, ref: Any) -> Any:
    if not tensor.numel():
        return np.empty(ref.shape, NUMPY_NAMES[ref.dtype])
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.view(NUMPY_NAMES[ref.dtype]).reshape(ref.shape)
