"""The way of a thread through a kernel's machine code, from what `cuobjdump -sass` prints.

Left out: code that is called or that calls (a division's slow path), and of two ways that do not meet again the one that stores
less at a time (a last block that goes by elements). How often a loop is taken is for the caller to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FUNCTION = re.compile(r"Function : (\S+)")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+) )?\s*([A-Z0-9_.]+)\s*([^;]*);")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass(frozen=True)
class Instruction:
    """One of a listing."""

    guarded: bool
    name: str
    target: int | None
    """Where it may jump to, as a place in the list."""

    @property
    def kind(self) -> str:
        return self.name.partition(".")[0]

    @property
    def size(self) -> int:
        """Bytes that it moves from or to memory for a thread."""
        return next((_WIDTHS[part] for part in self.name.split(".") if part in _WIDTHS), 4)


@dataclass
class Loop:
    """A part of the way that is taken several times: places from `first` to `last`."""

    first: int
    last: int
    rest: bool = False
    """Whether it is only what the compiler left over of one that it unrolled, beside it."""


@dataclass
class Way:
    """A kernel's instructions, which of them a thread passes, and the innermost loop around each of these."""

    code: list[Instruction]
    taken: set[int] = field(default_factory=set[int])
    loops: list[Loop] = field(default_factory=list[Loop])

    def loop_of(self, place: int) -> Loop | None:
        around = [loop for loop in self.loops if loop.first <= place <= loop.last]
        return min(around, key=lambda loop: loop.last - loop.first, default=None)

    def moved(self, kind: str, loop: Loop | None = None) -> int:
        """Bytes that instructions of a kind move when each is taken once: all of them, or those right inside of a loop."""
        found = (k for k in self.taken if self.code[k].kind == kind)
        return sum(self.code[k].size for k in found if loop is None or self.loop_of(k) is loop)

    def phases(self) -> list[list[int]]:
        """The places that are taken, in parts that end where threads wait for each other."""
        found: list[list[int]] = [[]]
        for place in sorted(self.taken):
            if self.code[place].kind == "BAR":
                found.append([])
            found[-1].append(place)
        return found

    def before_waiting(self) -> int:
        """Bytes of global loads before the first barrier, or the first jump back."""
        end = next((k for k in sorted(self.taken) if self.code[k].kind == "BAR"), len(self.code))
        end = min([end, *(loop.last for loop in self.loops if not loop.rest)])
        return sum(self.code[k].size for k in self.taken if k < end and self.code[k].kind == "LDG")


def ways(listing: str) -> dict[str, Way]:
    """By kernel."""
    found: dict[str, Way] = {}
    for part in re.split(r"(?=Function : )", listing):
        if (name := _FUNCTION.match(part)) is not None:
            way = found[name[1]] = Way(_instructions(part))
            way.taken = _passed(way.code)
            way.loops = _loops(way)
            _mark_rests(way)
    return found


def _instructions(text: str) -> list[Instruction]:
    lines = _LINE.findall(text)
    places = {int(address, 16): place for place, (address, *_) in enumerate(lines)}
    code: list[Instruction] = []
    for _, guard, name, operands in lines:
        jumps = name.startswith("BRA")
        target = re.search(r"0x([0-9a-f]+)", operands) if jumps else None
        guarded = bool(guard) or (jumps and re.search(r"\bU?P\d", operands) is not None)
        code.append(Instruction(guarded, name, None if target is None else places.get(int(target[1], 16))))
    return code


def _next(code: list[Instruction], place: int) -> list[int]:
    here = code[place]
    ends = here.kind in ("EXIT", "RET", "BRA") and not here.guarded
    after = [] if ends or place + 1 >= len(code) else [place + 1]
    return after if here.target is None else [*after, here.target]


def _reach(code: list[Instruction], start: int, left_out: frozenset[int] = frozenset()) -> set[int]:
    found: set[int] = set()
    waiting = [start]
    while waiting:
        if (place := waiting.pop()) not in found and place not in left_out:
            found.add(place)
            waiting += _next(code, place)
    return found


def _passed(code: list[Instruction]) -> set[int]:
    slow = frozenset(place for call, here in enumerate(code) if here.kind == "CALL" for place in _block(code, call))
    left_out = slow
    for place in sorted(_reach(code, 0, slow)):
        target = code[place].target
        if target is None or not code[place].guarded or target <= place or place in left_out:
            continue
        ways = [_reach(code, start, left_out) for start in (place + 1, target)]
        if all(ways) and ways[0].isdisjoint(ways[1]):
            left_out |= frozenset(min(ways, key=lambda way: _widest_store(code, way)))
    return _reach(code, 0, left_out)


def _block(code: list[Instruction], place: int) -> range:
    """The places around one that are passed together with it."""
    targets = {here.target for here in code}
    first, last = place, place
    while first > 0 and first not in targets and code[first - 1].target is None:
        first -= 1
    while last + 1 < len(code) and last + 1 not in targets and code[last].target is None:
        last += 1
    return range(first, last + 1)


def _widest_store(code: list[Instruction], way: set[int]) -> tuple[int, int]:
    """The most that one instruction stores, and how many instructions there are."""
    return max((code[k].size for k in way if code[k].kind == "STG"), default=0), len(way)


def _loops(way: Way) -> list[Loop]:
    """Innermost and outer ones."""
    found = {
        (target, place)
        for place in way.taken
        if (target := way.code[place].target) is not None and target < place and target in way.taken
    }
    return [Loop(first, last) for first, last in sorted(found)]


def _mark_rests(way: Way) -> None:
    """Of loops with nothing to wait for between them, that move the same kinds, all but the one that moves most are rests."""

    def moves(loop: Loop) -> dict[str, int]:
        sizes = {kind: way.moved(kind, loop) for kind in ("LDG", "STG", "LDS", "STS")}
        return {kind: size for kind, size in sizes.items() if size}

    def is_after(before: Loop, loop: Loop) -> bool:
        between = range(before.last + 1, loop.first)
        return before.last < loop.first and not any(way.code[k].kind in ("BAR", "SHFL") for k in between)

    def mark(group: list[Loop]) -> None:
        most = max(group, key=lambda loop: sum(moves(loop).values()), default=None)
        for loop in group:
            loop.rest = bool(moves(loop)) and loop is not most

    group: list[Loop] = []
    for before, loop in zip([None, *way.loops], way.loops, strict=False):
        if before is not None and not (is_after(before, loop) and moves(before).keys() == moves(loop).keys()):
            mark(group)
            group = []
        group.append(loop)
    mark(group)
