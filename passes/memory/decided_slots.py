"""Slots as decisions: where each storage, workspace and value inside of a partition lies, and which pairs are given up.

What is not decided lies behind all that is, without a byte of anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.storage import StorageMap, value_name
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.passes.decisions.choices import Choices, result_meant, result_word
from fuse_opt.passes.decisions.steering import Step
from fuse_opt.passes.memory.packing.packing import Buffer, Solution, lower_bound
from fuse_opt.passes.memory.packing.packing import Problem as Packing

DECIDED = "decided"
"""The method of a plan that differs from what solvers find."""

Pairs = dict[Operation, list[tuple[int, int]]]
_CHOICE = re.compile(r"(?:(result|inside)\s+(\d{1,9})\s+|(workspace)\s+)?(?:at\s+(\d{1,19})|(apart))", re.ASCII)


@dataclass
class Told:
    """What a file says about a function's slots."""

    apart: dict[tuple[Operation, int], Step] = field(default_factory=dict[tuple[Operation, int], Step])
    """By kernel and result, the pairs that are given up."""
    slots: dict[tuple[Operation, str, int], tuple[Step, int]] = field(
        default_factory=dict[tuple[Operation, str, int], tuple[Step, int]]
    )
    """By op, what is placed and its number, the offset."""


def told_slots(kernels: Sequence[OutlinedOp], choices: Choices) -> Told:
    """Raises DecisionError."""
    told = Told()
    for kernel in kernels:
        for step in choices.told(kernel):
            match = _CHOICE.fullmatch(step.decision.choice)
            what = (match[1] or match[3] or "result") if match else ""
            if match is None or (match[5] and what != "result"):
                wanted = "'at OFFSET' or 'apart', after 'result N', 'workspace' or 'inside N' where that has to be said"
                raise step.decision.choice_error(f"expected {wanted}, got '{step.decision.choice}'")
            number = result_meant(step, kernel, match[2]) if what == "result" else int(match[2] or 0)
            if match[5]:
                told.apart[kernel, number] = step
            else:
                told.slots[kernel, what, number] = step, int(match[4])
    return told


def kept_pairs(legal: Pairs, best: Pairs, told: Told | None, choices: Choices) -> Pairs:
    """The in-place pairs without those that are given up: by the best plan, or by a file. Raises DecisionError."""
    kept = {kernel: list(pairs) for kernel, pairs in legal.items()}
    for kernel, pairs in legal.items():
        for result, operand in pairs:
            given_up = (result, operand) not in best.get(kernel, []) if told is None else (kernel, result) in told.apart
            if given_up and choices.take(kernel, f"{result_word(kernel, result)}apart", value=kernel.results[result]):
                kept[kernel].remove((result, operand))
                if told is not None:
                    del told.apart[kernel, result]
    if told is not None and not choices.is_out_of_fuel:
        for step in told.apart.values():
            raise step.decision.choice_error("the result is of no pair that it could be apart from")
    return {kernel: pairs for kernel, pairs in kept.items() if pairs}


@dataclass(frozen=True)
class Entry:
    """Something that takes bytes of the arena, and how decisions call it."""

    op: Operation
    what: str
    number: int
    buffer: Buffer
    name: str
    value: SSAValue | None = None

    @property
    def label(self) -> str:
        """What a choice says before the offset."""
        if self.what == "result":
            return result_word(self.op, self.number)
        return "workspace " if self.what == "workspace" else f"inside {self.number} "

    @property
    def is_open(self) -> bool:
        """Whether there is anything to decide: it takes bytes, and nobody has pinned them."""
        return self.buffer.offset is None and self.buffer.size > 0 and self.buffer.start < self.buffer.stop


def storage_entry(values: Sequence[SSAValue], buffer: Buffer) -> Entry:
    """That of a storage: it is called by the first result of a kernel that lies in it."""
    for value in values:
        if isinstance(value, OpResult) and isinstance(op := value.op, OutlinedOp):
            return Entry(op, "result", value.index, buffer, value_name(value), value)
    raise AssertionError("a storage of the arena is some kernel's")


def decided_slots(
    entries: Sequence[Entry],
    alignment: int,
    solved: Solution | None,
    told: Told | None,
    storages: StorageMap,
    choices: Choices,
) -> Solution:
    """Where the entries lie, in their order: as solved, or as a file says, as far as there is fuel. Raises DecisionError."""
    wanted = _from_file(entries, alignment, told, storages) if told is not None else {}
    offsets: list[int | None] = []
    steps: dict[int, Step] = {}
    for number, entry in enumerate(entries):
        offset = entry.buffer.offset
        if entry.is_open:
            if told is None:
                offset = None if solved is None else solved.offsets[number]
            elif number in wanted:
                steps[number], offset = wanted[number]
            if offset is not None and not choices.take(entry.op, f"{entry.label}at {offset}", value=entry.value):
                offset = None
                steps.pop(number, None)
        offsets.append(offset if offset is not None or entry.is_open else 0)
    if steps:
        _refuse_overlap(entries, offsets, alignment, steps)
    return _laid_out(entries, offsets, alignment, solved)


def _laid_out(
    entries: Sequence[Entry], offsets: Sequence[int | None], alignment: int, solved: Solution | None
) -> Solution:
    """What has no offset lies behind all that has one, one behind the other."""
    sizes = [-(-entry.buffer.size // alignment) * alignment for entry in entries]
    alive = [entry.buffer.size > 0 and entry.buffer.start < entry.buffer.stop for entry in entries]
    arena = max((o + s for o, s, a in zip(offsets, sizes, alive, strict=True) if a and o is not None), default=0)
    found: list[int] = []
    for offset, size in zip(offsets, sizes, strict=True):
        found.append(arena if offset is None else offset)
        arena += size if offset is None else 0
    bound = lower_bound(Packing(tuple(replace(entry.buffer, offset=None) for entry in entries), alignment))
    if solved is not None and tuple(found) == solved.offsets:
        return solved
    return Solution(tuple(found), arena, bound, DECIDED, arena == bound)


def _from_file(
    entries: Sequence[Entry], alignment: int, told: Told, storages: StorageMap
) -> dict[int, tuple[Step, int]]:
    """By number of an entry, what a file says. Raises DecisionError."""
    numbers = {(entry.op, entry.what, entry.number): number for number, entry in enumerate(entries)}
    homes = {storages.of(entry.value).number: number for number, entry in enumerate(entries) if entry.value is not None}
    found: dict[int, tuple[Step, int]] = {}
    for (op, what, number), (step, offset) in told.slots.items():
        entry = numbers.get((op, what, number))
        if entry is None and what == "result":
            entry = homes.get(storages.of(op.results[number]).number)
        if entry is None or not entries[entry].is_open:
            message = f"{step.decision.ops[0]} has no bytes in the arena to choose a place for: {what} {number}"
            raise step.decision.choice_error(message)
        if offset % alignment:
            raise step.decision.choice_error(f"expected a multiple of {alignment} bytes, got {offset}")
        if found.setdefault(entry, (step, offset))[1] != offset:
            raise step.decision.choice_error(
                f"{entries[entry].name} is at {found[entry][1]} already: they share memory"
            )
    return found


def _refuse_overlap(
    entries: Sequence[Entry], offsets: Sequence[int | None], alignment: int, steps: dict[int, Step]
) -> None:
    """Raises DecisionError for two entries that share bytes while both are alive."""
    alive = [number for number, entry in enumerate(entries) if offsets[number] is not None and entry.buffer.size > 0]
    for number, other in _overlaps(entries, offsets, alignment, sorted(alive, key=lambda n: entries[n].buffer.start)):
        at = number if number in steps else other
        if at not in steps:
            continue  # both are pinned by hand: that is refused elsewhere
        mate = other if at == number else number
        message = f"{entries[at].name} at {offsets[at]} would share bytes with {entries[mate].name} at {offsets[mate]}"
        raise steps[at].decision.choice_error(f"{message}, which is alive at the same time")


def _overlaps(
    entries: Sequence[Entry], offsets: Sequence[int | None], alignment: int, births: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Pairs (born later, born before) of entries that share bytes; of those alive at once all are compared."""
    alive: list[int] = []
    for number in births:
        own = entries[number].buffer
        alive = [other for other in alive if entries[other].buffer.stop > own.start]
        low = offsets[number] or 0
        high = low + -(-own.size // alignment) * alignment
        for other in alive:
            at = offsets[other] or 0
            if at < high and low < at + entries[other].buffer.size and own.start < own.stop:
                yield number, other
        alive.append(number)
