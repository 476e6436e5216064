"""The arena over time as SVG: steps to the right, offsets upwards, one rectangle for each storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from fuse_opt.dialects.analysis.storage import ARENA, PLACES, Storage, StorageMap, analyse_storage
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.passes.memory.packing.live_bytes import live_bytes, peak_of
from fuse_opt.passes.memory.workspaces import Workspace, workspaces_of
from fuse_opt.tools.targets.html.text import Names, escaped, shortened

_HEIGHT = 320.0
_LEFT, _TOP, _BOTTOM = 12.0, 22.0, 24.0
_LETTER = 6.7
_TINTS = 4


@dataclass(frozen=True, slots=True)
class Arena:
    """What a plan says: offsets of storages, the arena's size, and the most bytes that live at once, at which step."""

    storages: tuple[tuple[Storage, int], ...]
    """Each with its offset."""
    workspaces: tuple[tuple[Workspace, int], ...]
    steps: int
    size: int
    lower_bound: int | None
    peak: int
    peak_step: int


def planned_arena(function: FuncOp) -> Arena | None:
    """The arena of a function of one block whose kernels have slots; None without a plan."""
    kernels = [op for block in function.body.blocks for op in block.ops if isinstance(op, OutlinedOp)]
    if function.body.blocks.first is not function.body.blocks.last or all(op.slots is None for op in kernels):
        return None
    plan = function.attributes.get(ARENA)
    entries: Mapping[str, Attribute] = plan.data if isinstance(plan, DictionaryAttr) else {}
    if PLACES in entries:
        return None  # offsets are those of a call
    storages = analyse_storage(function)
    placed = _placed(kernels, storages)
    spaces = [(w, place) for w in workspaces_of(function) if (place := w.kernel.workspace_offset()) is not None]
    size = _number(entries.get("size"))
    if size is None:
        size = max((offset + found.nbytes for found, offset in (*placed, *spaces)), default=0)
    lives = [(max(storage.birth, 0), storage.death, storage.nbytes) for storage, _ in placed]
    lives += [(space.step, space.step + 1, space.nbytes) for space, _ in spaces]
    peak, step = peak_of(live_bytes(lives, storages.steps))
    return Arena(tuple(placed), tuple(spaces), storages.steps, size, _number(entries.get("lower_bound")), peak, step)


def arena_text(arena: Arena) -> str:
    """The sizes in a sentence."""
    bound = "" if arena.lower_bound is None else f", lower bound {arena.lower_bound:,} bytes"
    proven = " (no plan can be smaller)" if arena.lower_bound == arena.size else ""
    live = f"most values alive at once: {arena.peak:,} bytes, at step {arena.peak_step}"
    return f"arena {arena.size:,} bytes{bound}{proven}; {live}"


def arena_lines(arena: Arena, names: Names, name: str) -> Iterator[str]:
    """The SVG element."""
    chart = _Chart(arena)
    width, height = chart.width + 2 * _LEFT, _HEIGHT + _TOP + _BOTTOM
    label = escaped(f"Arena of {name} over time")
    yield (
        f'<svg class="arena" role="group" aria-label="{label}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    yield f'<rect class="ground" x="{_LEFT}" y="{_TOP}" width="{chart.width:.1f}" height="{_HEIGHT}"/>'
    for number, (storage, offset) in enumerate(arena.storages):
        values = ", ".join(names.get(value, "?") for value in storage.values)
        box = _Box(values, storage.birth, storage.death, storage.nbytes, offset)
        yield from _box_lines(box, number, chart)
    for number, (space, offset) in enumerate(arena.workspaces, len(arena.storages)):
        yield from _box_lines(_Box(space.name, space.step, space.step + 1, space.nbytes, offset), number, chart)
    yield from chart.scale()
    yield "</svg>"


class _Chart:
    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        ends = (offset + found.nbytes for found, offset in (*arena.storages, *arena.workspaces))
        self.top = max([arena.size, *ends], default=0) or 1
        self.steps = max(arena.steps, 1)
        self.width = float(min(max(40 * self.steps, 600), 4000))

    def x(self, step: int) -> float:
        return _LEFT + self.width * step / self.steps

    def y(self, offset: int) -> float:
        return _TOP + _HEIGHT * (1 - offset / self.top)

    def scale(self) -> Iterator[str]:
        every = max(1, -(-self.steps // int(self.width / 40)))
        for step in range(0, self.steps, every):
            yield f'<text class="tick" x="{self.x(step) + 3:.1f}" y="{_TOP + _HEIGHT + 15:.1f}">{step}</text>'
        yield f'<text class="tick" x="{_LEFT}" y="{_TOP - 7:.1f}">{self.top:,} bytes; steps to the right</text>'
        if (bound := self._arena.lower_bound) is not None:
            yield f'<path class="bound" d="M{_LEFT} {self.y(bound):.1f}h{self.width:.1f}">'
            yield f"<title>lower bound {bound:,} bytes</title></path>"


@dataclass(frozen=True, slots=True)
class _Box:
    """Bytes of the arena from a step up to another one."""

    values: str
    birth: int
    death: int
    nbytes: int
    offset: int


def _box_lines(box: _Box, number: int, chart: _Chart) -> Iterator[str]:
    left, right = chart.x(max(box.birth, 0)), chart.x(box.death)
    top, bottom = chart.y(box.offset + box.nbytes), chart.y(box.offset)
    values = box.values
    title = f"{values}: {box.nbytes:,} bytes at {box.offset:,}, steps {box.birth} to {box.death - 1}"
    yield f'<g class="box storage tint{number % _TINTS}" tabindex="0" role="img" aria-label="{escaped(title)}">'
    yield f"<title>{escaped(title)}</title>"
    yield f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{max(bottom - top, 1):.1f}"/>'
    letters = int((right - left - 6) / _LETTER)
    if letters >= 2 and bottom - top >= 13:
        label = escaped(shortened(values, letters))
        yield f'<text x="{left + 4:.1f}" y="{(top + bottom) / 2 + 4:.1f}">{label}</text>'
    yield "</g>"


def _placed(kernels: list[OutlinedOp], storages: StorageMap) -> list[tuple[Storage, int]]:
    offsets: dict[int, tuple[Storage, int]] = {}
    for kernel in kernels:
        for value, slot in zip(kernel.results, ints(kernel.slots), strict=False):
            if slot >= 0:
                storage = storages.of(value)
                offsets.setdefault(storage.number, (storage, slot))
    return [offsets[number] for number in sorted(offsets)]


def _number(attribute: Attribute | None) -> int | None:
    return attribute.value.data if isinstance(attribute, IntegerAttr) else None
