"""Phases of a segment: which launches may run at a time, which follow each other without a barrier.

A launch depends on an earlier one if both touch a byte and one of them writes to it. It comes into the phase after the last
one that it depends on, wherever it stands in the segment (list scheduling by levels; Hu 1961). Two launches of as many tasks
need no barrier where task t of the later one touches, of what they have in common, what task t of the earlier one does:
one loop then runs both on each range of tasks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from fuse_opt.dialects.types.size import Size
from fuse_opt.lowering.program import Launch, Loop

Slices = Callable[[str], Sequence[int | None]]
"""By buffer of a kernel: the bytes that each task has to itself, the first task the first ones; None where that is not so."""

_LEAST_WORK = 2.0
"""Chunks in a segment below which nobody is asked to help."""


class _Unit:
    """Launches of one partition that run range by range, or one launch."""

    def __init__(self, level: int, position: int, launch: Launch) -> None:
        self.level = level
        self.position = position
        """Of the first launch in the segment."""
        self.launches = [launch]
        self.tasks, self.grain = launch.tasks, launch.grain
        self.weight = _weight_of(launch)
        """Chunks that are worth a thread."""

    def add(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.grain = min(self.grain, launch.grain)
        self.weight += _weight_of(launch)

    @property
    def is_shared(self) -> bool:
        return self.tasks > self.grain


def _weight_of(launch: Launch) -> float:
    return launch.tasks / max(launch.grain, 1)


@dataclass(frozen=True, slots=True)
class _Access:
    """A launch's use of a range of a buffer."""

    buffer: int
    start: int
    end: int
    writes: bool
    slice: int | None


_Use = tuple[_Unit, _Access]


@dataclass(slots=True)
class _Range:
    """Bytes with one history."""

    start: int
    end: int
    writer: _Use | None = None
    """Who wrote them last."""
    readers: list[_Use] = field(default_factory=list[_Use])
    """Who has read them since; of those only the ones of the highest level, which come after the others."""

    def copy(self, start: int, end: int) -> _Range:
        return _Range(start, end, self.writer, list(self.readers))


class _Memory:
    """The latest uses of every byte, as disjoint ascending ranges of each buffer."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[_Range]] = {}

    def _cut(self, access: _Access) -> list[_Range]:
        """The ranges that make up the access's bytes; new ones where there were none."""
        ranges = self._ranges.setdefault(access.buffer, [])
        first = bisect_right(ranges, access.start, key=_end_of)
        last = bisect_left(ranges, access.end, key=_start_of)
        pieces: list[_Range] = []
        at = access.start
        for found in ranges[first:last]:
            if found.start > at:
                pieces.append(_Range(at, found.start))
            for start, end in _split(found, access.start, access.end):
                pieces.append(found.copy(start, end))
            at = found.end
        if at < access.end:
            pieces.append(_Range(at, access.end))
        ranges[first:last] = pieces
        return [piece for piece in pieces if piece.start >= access.start and piece.end <= access.end]

    def conflicts(self, access: _Access) -> Iterator[_Use]:
        """What must be done before the access, or by its own task."""
        for found in self._cut(access):
            if found.writer is not None:
                yield found.writer
            if access.writes:
                yield from found.readers

    def record(self, access: _Access, unit: _Unit) -> None:
        for found in self._cut(access):
            if access.writes:
                found.writer, found.readers = (unit, access), []
                continue
            highest = found.readers[0][0].level if found.readers else -1
            if unit.level > highest:
                found.readers = [(unit, access)]
            elif unit.level == highest:
                found.readers.append((unit, access))


def _start_of(found: _Range) -> int:
    return found.start


def _end_of(found: _Range) -> int:
    return found.end


def _split(found: _Range, start: int, end: int) -> Iterator[tuple[int, int]]:
    cuts = sorted({found.start, found.end, *(cut for cut in (start, end) if found.start < cut < found.end)})
    return pairwise(cuts)


def plan_phases(launches: Sequence[Launch], slices: Slices) -> tuple[tuple[Loop, ...], ...]:
    """The loops of each phase; all of a launch is in one loop."""
    units = _units(launches, slices)
    if sum(unit.weight for unit in units) < _LEAST_WORK:
        return ((_alone(units),),)
    units.sort(key=lambda unit: (unit.level, unit.position))
    phases = [_phase(list(level)) for _, level in groupby(units, key=lambda unit: unit.level)]
    found: list[tuple[Loop, ...]] = []
    waiting: list[_Unit] = []
    """Of phases in a row that one thread runs."""
    for shared, small in phases:
        if not shared and _weight(small) < _LEAST_WORK:
            waiting += small
            continue
        if waiting:
            found.append((_alone(waiting),))
            waiting = []
        found.append((*(Loop((tuple(u.launches),), u.tasks, u.grain) for u in shared), *_bundled(small)))
    return (*found, (_alone(waiting),)) if waiting else tuple(found)


def is_sized(launch: Launch) -> bool:
    """Whether something about the launch is a size, which only a call of the program says."""
    numbers = (launch.tasks, *launch.sizes, *(n for ref in launch.buffers for n in (ref.offset, *ref.shape)))
    return any(isinstance(number, Size) for number in numbers)


def one_by_one(launches: Sequence[Launch]) -> tuple[tuple[Loop, ...], ...]:
    """A phase for each launch: of sizes it is not known which bytes launches have in common."""
    return tuple((Loop(((launch,),), launch.tasks, launch.grain),) for launch in launches)


def _phase(units: Sequence[_Unit]) -> tuple[list[_Unit], list[_Unit]]:
    """The units that are shared by themselves, and the others."""
    return [unit for unit in units if unit.is_shared], [unit for unit in units if not unit.is_shared]


def _weight(units: Sequence[_Unit]) -> float:
    return sum(unit.weight for unit in units)


def _alone(units: Sequence[_Unit]) -> Loop:
    """All launches one after the other, in the order of the program."""
    ordered = sorted(units, key=lambda unit: unit.position)
    return Loop((tuple(launch for unit in ordered for launch in unit.launches),), 1, 1, whole=True)


def _bundled(units: Sequence[_Unit]) -> Iterator[Loop]:
    """Independent launches as a loop whose tasks are some of them, each worth a thread."""
    bundles: list[tuple[Launch, ...]] = []
    bundle: list[Launch] = []
    weight = 0.0
    for unit in units:
        bundle += unit.launches
        weight += unit.weight
        if weight >= 1.0:
            bundles.append(tuple(bundle))
            bundle, weight = [], 0.0
    if bundle:
        bundles.append(tuple(bundle))
    if bundles:
        yield Loop(tuple(bundles), len(bundles), 1, whole=True)


def _units(launches: Sequence[Launch], slices: Slices) -> list[_Unit]:
    memory = _Memory()
    units: list[_Unit] = []
    for position, launch in enumerate(launches):
        accesses = list(_accesses(launch, slices))
        conflicts = [(unit, known, access) for access in accesses for unit, known in memory.conflicts(access)]
        level = max((unit.level for unit, _, _ in conflicts), default=-1)
        unit = _joinable(launch, [found for found in conflicts if found[0].level == level])
        if unit is None:
            unit = _Unit(level + 1, position, launch)
            units.append(unit)
        else:
            unit.add(launch)
        for access in accesses:
            memory.record(access, unit)
    return units


def _joinable(launch: Launch, latest: Sequence[tuple[_Unit, _Access, _Access]]) -> _Unit | None:
    """The unit whose tasks may go on with the launch's own."""
    if not latest or launch.tasks <= launch.grain:
        return None
    unit = latest[0][0]
    if unit.tasks != launch.tasks or not unit.is_shared:
        return None
    aligned = all(
        other is unit and known.slice is not None and (known.start, known.slice) == (own.start, own.slice)
        for other, known, own in latest
    )
    return unit if aligned else None


def _accesses(launch: Launch, slices: Slices) -> Iterator[_Access]:
    """Reads before writes."""
    everything = tuple(range(len(launch.buffers)))
    steps = slices(launch.kernel)
    for writes, positions in ((False, launch.loads), (True, launch.stores)):
        for position in everything if positions is None else positions:
            ref = launch.buffers[position]
            if ref.nbytes:
                yield _Access(ref.buffer, ref.offset, ref.offset + ref.nbytes, writes, steps[position])
