"""Exact memory placement: a depth-first search over canonical solutions, after MiniMalloc (Moffitt, ASPLOS 2023).

In a canonical solution no buffer could go lower, even by a jump. Placed by rising offset, each buffer then goes to its *low*:
the highest end among the placed buffers that it meets. A node of the tree is one such placement; time is the row of *sections*,
the largest sets of buffers alive together. A branch ends as soon as some section cannot hold what remains.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from typing import Protocol

from fuse_opt.passes.memory.packing.first_fit import Block
from fuse_opt.passes.memory.packing.live_bytes import live_bytes

Span = tuple[int, int, int]
"""What the search knows of a buffer: its size and the half-open range of sections in which it lives."""


class Outcome(IntEnum):
    """How a search stands; the numbers are those of exact.c."""

    PAUSED = 0
    FOUND = 1
    EXHAUSTED = 2


@dataclass(frozen=True)
class Question:
    """Do these buffers fit into `capacity`? Of equally low ones the search tries the first listed first.

    They are at least one and connected: no section border without a buffer that lives on both sides.
    """

    spans: Sequence[Span]
    capacity: int

    def twins(self) -> list[int]:
        """For each buffer the last one before it with the same size and life, or -1; of twins the first goes lower."""
        seen: dict[Span, int] = {}
        found: list[int] = []
        for rank, span in enumerate(self.spans):
            found.append(seen.get(span, -1))
            seen[span] = rank
        return found


class Search(Protocol):
    """One search, which can be paused and goes on where it was."""

    @property
    def nodes(self) -> int:
        """Placements tried so far."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """By buffer of the question, once found."""
        ...

    @property
    def conflicts(self) -> Sequence[int]:
        """By buffer: in how many dead ends it was among those that did not fit any more."""
        ...

    def run(self, nodes: int) -> Outcome:
        """Tries up to so many placements more."""
        ...


SearchFactory = Callable[[Question], Search]


def spans_of(blocks: Sequence[Block], positions: int) -> tuple[list[Span], int]:
    """The blocks over sections in place of birth positions, and the number of sections.

    A position where nothing dies before the next birth is no section: all that live there live at the next one, too.
    """
    last = [0] * (positions + 1)
    for block in blocks:
        last[block.hi] = 1
    sections = list(accumulate(last))
    return [(block.size, sections[block.lo], sections[block.hi]) for block in blocks], sections[-1]


@dataclass(slots=True)
class _Frame:
    """An open choice: which buffer of `waiting` goes next, above (`floor`, `last`) in the order of offset and rank."""

    waiting: list[int]
    floor: int
    last: int
    candidates: list[int] = field(default_factory=list[int])
    forced: bool = False
    """All candidates live in one section that nothing else can serve; they say nothing about the order elsewhere."""
    tried: int = 0
    placed: int = -1
    trail_mark: int = 0
    placed_mark: int = 0
    parts: list[list[int]] = field(default_factory=list[list[int]])
    """Independent remainders, last one first: all must be solved for the placed buffer to stay."""


class TreeSearch:
    """The search in Python; exact.c is the same one, step for step."""

    def __init__(self, question: Question) -> None:
        self.capacity = question.capacity
        self.sizes = [size for size, _, _ in question.spans]
        self.lo = [lo for _, lo, _ in question.spans]
        self.hi = [hi for _, _, hi in question.spans]
        self.twins = question.twins()
        count, sections = len(self.sizes), max(self.hi)
        self.members: list[list[int]] = [[] for _ in range(sections)]
        for rank in range(count):
            for section in range(self.lo[rank], self.hi[rank]):
                self.members[section].append(rank)
        self.left = [sum(self.sizes[rank] for rank in members) for members in self.members]
        self.waits, self.low = [True] * count, [0] * count
        self.offsets, self.conflicts = [0] * count, [0] * count
        self.nodes = 0
        self._trail: list[tuple[int, int]] = []
        self._placed: list[int] = []
        self._frames: list[_Frame] = []
        self._outcome = Outcome.PAUSED
        """Of the frame closed last: that of the search, once no frame is left."""
        self._open(sorted(range(count), key=self.lo.__getitem__), 0, -1)

    def run(self, nodes: int) -> Outcome:
        """Tries up to so many placements more."""
        stop = self.nodes + nodes
        frames = self._frames
        while frames:
            frame = frames[-1]
            if frame.placed >= 0 and frame.parts:
                floor, last = (
                    (self.offsets[frame.placed], frame.placed) if not frame.forced else (frame.floor, frame.last)
                )
                self._open(frame.parts.pop(), floor, last)
            elif frame.placed >= 0:
                frames.pop()
                self._outcome = Outcome.FOUND
            elif frame.tried == len(frame.candidates):
                frames.pop()
                self._outcome = Outcome.EXHAUSTED
                if frames:
                    self._take_back(frames[-1])
            elif self.nodes == stop:
                return Outcome.PAUSED
            else:
                self.nodes += 1
                frame.tried += 1
                if not self._place(frame, frame.candidates[frame.tried - 1]):
                    self._take_back(frame)
        return self._outcome

    def _open(self, waiting: list[int], floor: int, last: int) -> None:
        frame = _Frame(waiting, floor, last)
        self._frames.append(frame)
        low, sizes = self.low, self.sizes
        first, stop = self.lo[waiting[0]], max(self.hi[rank] for rank in waiting)
        highest = self.capacity - max(self.left[first:stop])
        if floor > highest:
            return
        ends = [low[rank] + sizes[rank] for rank in waiting]
        # No gap may stay that a waiting buffer fits into, and none that is not free yet comes below `lift`.
        gap = min(ends)
        lift = min(max(end, floor + sizes[rank]) for end, rank in zip(ends, waiting, strict=True))
        free = [rank for rank in waiting if self._may_go(rank, floor, last)]
        if highest < lift and (forced := self._forced_section(free, first, stop, lift)) is not None:
            frame.forced = True
            highest = self.capacity - self.left[forced]
            choices = [rank for rank in free if low[rank] <= highest and self.lo[rank] <= forced < self.hi[rank]]
        else:
            choices = [rank for rank in free if low[rank] <= highest and low[rank] < gap]
        frame.candidates = sorted(choices, key=lambda rank: (low[rank], rank))

    def _may_go(self, rank: int, floor: int, last: int) -> bool:
        low, twin = self.low[rank], self.twins[rank]
        return (low > floor or (low == floor and rank > last)) and (twin < 0 or not self.waits[twin])

    def _forced_section(self, free: list[int], first: int, stop: int, lift: int) -> int | None:
        """The section with the most left to hold of those that one buffer at most can serve next, none before one.

        Where a section has no room for a lifted buffer, its next one is among those that can go at once and low enough.
        """
        left, room = self.left, self.capacity
        counts = [0] * (stop - first)
        for rank in free:
            if (low := self.low[rank]) < lift:
                for section in range(self.lo[rank], self.hi[rank]):
                    counts[section - first] += low + left[section] <= room
        few = [
            (counts[section - first], -left[section], section)
            for section in range(first, stop)
            if counts[section - first] < 2 and left[section] and room - left[section] < lift
        ]
        if not few:
            return None
        count, _, section = min(few)
        if not count:
            self._count_conflict(section)
        return section

    def _place(self, frame: _Frame, chosen: int) -> bool:
        """Whether every section can hold what remains once `chosen` is at its low."""
        low, left, lo, hi = self.low, self.left, self.lo[chosen], self.hi[chosen]
        size = self.sizes[chosen]
        top, room = low[chosen] + size, self.capacity
        frame.trail_mark, frame.placed_mark, frame.placed = len(self._trail), len(self._placed), chosen
        self.offsets[chosen] = low[chosen]
        self.waits[chosen] = False
        self._placed.append(chosen)
        left[lo:hi] = [bytes_left - size for bytes_left in left[lo:hi]]
        if max(left[lo:hi]) + top > room:
            full = next((s for s in range(lo, hi) if left[s] and left[s] + top > room), None)
            if full is not None:
                self._count_conflict(full)
                return False
        waiting = [rank for rank in frame.waiting if rank != chosen]
        lifted = [rank for rank in waiting if low[rank] < top and self.lo[rank] < hi and lo < self.hi[rank]]
        self._trail += [(rank, low[rank]) for rank in lifted]
        first, stop = lo, hi
        for rank in lifted:
            low[rank] = top
            first, stop = min(first, self.lo[rank]), max(stop, self.hi[rank])
        for section in (*range(first, lo), *range(hi, stop)):
            if top + left[section] > room and not self._holds(section):
                self._count_conflict(section)
                return False
        frame.parts = self._parts(waiting)
        return True

    def _holds(self, section: int) -> bool:
        """Whether a section can hold its waiting buffers, each at or above its low: one-machine scheduling by release."""
        height = 0
        waits, low, sizes = self.waits, self.low, self.sizes
        for at, size in sorted([(low[rank], sizes[rank]) for rank in self.members[section] if waits[rank]]):
            height = (at if at > height else height) + size
        return height <= self.capacity

    def _parts(self, waiting: list[int]) -> list[list[int]]:
        """The buffers, in the order of `lo`, cut at the sections that none of them crosses; the last part first."""
        parts: list[list[int]] = []
        begin = reach = 0
        for at, rank in enumerate(waiting):
            if at and self.lo[rank] >= reach:
                parts.append(waiting[begin:at])
                begin = at
            reach = max(reach, self.hi[rank])
        if waiting:
            parts.append(waiting[begin:])
        return parts[::-1]

    def _take_back(self, frame: _Frame) -> None:
        while len(self._trail) > frame.trail_mark:
            rank, low = self._trail.pop()
            self.low[rank] = low
        while len(self._placed) > frame.placed_mark:
            rank = self._placed.pop()
            self.waits[rank] = True
            for section in range(self.lo[rank], self.hi[rank]):
                self.left[section] += self.sizes[rank]
        frame.placed = -1

    def _count_conflict(self, section: int) -> None:
        for rank in self.members[section]:
            self.conflicts[rank] += self.waits[rank]


def section_loads(spans: Sequence[Span]) -> list[int]:
    """Bytes alive in each section."""
    return live_bytes(((lo, hi, size) for size, lo, hi in spans), max(hi for _, _, hi in spans))
