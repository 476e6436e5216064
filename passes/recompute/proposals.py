"""What may be computed again behind a call so that fewer bytes are kept over it, and what that takes and saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.memory.packing.live_bytes import live_bytes
from fuse_opt.passes.recompute.kept_values import values_to_keep
from fuse_opt.passes.recompute.least_cut import Closures, LeastCut
from fuse_opt.passes.recompute.times import Memory, Times

SOON = 3
"""Time over which a value is kept, where it is searched what to keep: to the next call, and the loops behind that."""
SHARED_TIME = 16
"""Time over which a value that was computed again is kept for a further call."""


@dataclass(frozen=True)
class Clones:
    """Ops that are computed again for loops of one time, or for calls that are not far apart."""

    time: int
    """When they are first read."""
    ops: tuple[Operation, ...]
    """In the block's order."""
    readers: tuple[Operation, ...]
    sources: tuple[SSAValue, ...]
    """What the clones read that is no clone."""


@dataclass
class Proposal:
    """Values that are computed again together, as they come from the same others."""

    at: int
    """The call over which they are not kept any more."""
    clones: list[Clones]
    dropped: list[Memory]
    """What is not kept over the call any more."""
    kept: list[Memory]
    """What is kept over it instead."""
    seconds: float = 0.0
    """That are saved."""
    byte_time: int = 0
    """Bytes kept less, times how long."""

    @property
    def nbytes(self) -> int:
        """Bytes less that are kept over the call."""
        return _total(self.dropped) - _total(self.kept)

    def count(self) -> int:
        """The most clones for a reader; they are not counted beyond what is refused."""
        return max(len(clones.ops) for clones in self.clones)


class Cut:
    """What may be dropped over one call, of memories that are alive over it."""

    def __init__(
        self,
        times: Times,
        at: int,
        wanted: Iterable[Memory],
        device: Device,
        seconds_of: Callable[[Operation], float],
        in_caches: bool,
        max_ops: int,
    ) -> None:
        """`seconds_of` says what an op takes; more ops than `max_ops` are not computed again for one reader."""
        self.times = times
        self.at = at
        self.seconds_of = seconds_of
        self.max_ops = max_ops
        self.candidates = dict.fromkeys(memory for memory in wanted if times.can_repeat(memory.value.owner))
        self.device = device
        self.bandwidth = device.cache_bandwidth if in_caches else device.bandwidth

    def keep(self, target: int, loads: Mapping[int, int]) -> None:
        """
        Has those candidates kept from which the others follow with the least work, where no call has more bytes than the target;
        `loads` are all that calls have.
        """
        self.candidates = {memory: None for memory in self.candidates if self._first_read(memory) > self.at + SOON}
        chain = sorted(self.candidates, key=lambda memory: memory.made)
        if not chain:
            return
        first = self._first_read(chain[-1])
        stop = max(memory.last for memory in chain) + 1
        own = live_bytes(
            [(max(m.made, first) - first, max(m.last + 1, first) - first, m.nbytes or 0) for m in chain], stop
        )
        others = max((loads.get(at, 0) - own[at - first] for at in range(first, stop)), default=0)
        room = target - loads[self.at] + _total(chain)
        are_sure = self.times.sure.issuperset(memory.value for memory in chain)
        work = partial(self._all_work, chain) if are_sure else self._all_work(chain)
        for number in values_to_keep([memory.nbytes or 0 for memory in chain], work, room, target - others):
            del self.candidates[chain[number]]

    def _first_read(self, memory: Memory) -> int:
        """When a value is read behind the call."""
        times = (self.times.time[reader] for value in memory.names for reader in self.times.readers(value))
        return min((time for time in times if time > self.at), default=self.at)

    def _all_work(self, chain: Sequence[Memory]) -> list[float]:
        counted: set[Operation] = set()
        return [self._work(memory, counted) for memory in chain]

    def _work(self, memory: Memory, counted: set[Operation]) -> float:
        """Seconds to compute a value from others that are there over the call; of ops that are not counted yet."""
        seconds, waiting = 0.0, [memory.value.owner]
        while waiting:
            op = waiting.pop()
            if not isinstance(op, Operation) or not self.times.can_repeat(op):
                return inf
            if op not in counted:
                counted.add(op)
                seconds += self.seconds_of(op)
                needed = (value for value in op.operands if value in self.times.memory)
                waiting += [value.owner for value in needed if not self._is_alive(self.times.memory[value])]
        return seconds

    def proposals(self) -> list[Proposal]:
        """In the order of the values that are dropped."""
        names = (name for memory in self.candidates for name in memory.names)
        wanted = [value for value in names if any(map(self._is_late, self.times.readers(value)))]
        if self.times.sure.issuperset(wanted):  # nothing has to be kept for them
            closures = Closures(lambda value: self._needs(value) or (), self._place, self._is_refused)
            groups = closures.groups(wanted, self.max_ops)
            return list(filter(None, (self._proposal(group, self._has_to_be_kept) for group in groups)))
        cut = LeastCut(self._room, self._needs)
        for value in wanted:
            cut.want(value)
        return list(filter(None, map(self._proposal, self._components(cut.computed()))))

    def _place(self, value: SSAValue) -> int:
        return self.times.place[value.owner] if isinstance(value, OpResult) else -1

    def _is_refused(self, component: Sequence[SSAValue]) -> bool:
        """Whether values that hang together are known well enough to say that nobody takes them, as one needs too many ops."""
        calls = any(not isinstance(value.owner, StructuredOp) for value in component)
        return calls and any(
            self.times.memory[value] in self.candidates and self._needs_many(value) for value in component
        )

    def _needs_many(self, value: SSAValue) -> bool:
        seen, waiting = {value}, [value]
        while waiting and len(seen) <= self.max_ops:
            more = [needed for needed in self._needs(waiting.pop()) or () if needed not in seen]
            seen.update(more)
            waiting += more
        return len(seen) > self.max_ops

    def _is_late(self, reader: Operation) -> bool:
        return self.times.time[reader] > self.at

    def _is_alive(self, memory: Memory) -> bool:
        """Whether it can be read behind the call as things are."""
        return memory.free or (not memory.barred and memory.made < self.at < memory.last)

    def _room(self, value: SSAValue) -> int | None:
        memory = self.times.memory[value]
        return None if memory.barred or memory.value is not value else memory.nbytes

    def _needs(self, value: SSAValue) -> list[SSAValue] | None:
        """What a value is computed from, but for what is there anyway; None for one that cannot be computed again."""
        memory, op = self.times.memory[value], value.owner
        if not isinstance(op, Operation) or not self.times.can_repeat(op) or (memory.barred and memory.value is value):
            return None
        return [operand for operand in dict.fromkeys(op.operands) if self._has_to_be_kept(operand)]

    def _has_to_be_kept(self, value: SSAValue) -> bool:
        memory = self.times.memory.get(value)
        return memory is not None and (memory in self.candidates or not self._is_alive(memory))

    def _components(self, computed: Sequence[SSAValue]) -> list[list[SSAValue]]:
        """The values by what they have in common: that one is computed from another, or both from what is kept for them."""
        of = {value: value for value in computed}
        for value in computed:
            for needed in self._needs(value) or ():
                if needed in of or not self._is_alive(self.times.memory[needed]):
                    of.setdefault(needed, needed)
                    of[_first(of, needed)] = _first(of, value)
        found: dict[SSAValue, list[SSAValue]] = {}
        for value in computed:
            found.setdefault(_first(of, value), []).append(value)
        return list(found.values())

    def _proposal(
        self, component: Sequence[SSAValue], again: Callable[[SSAValue], bool] | None = None
    ) -> Proposal | None:
        """`again` says what else is computed again that is not listed."""
        memory_of, place = self.times.memory, self.times.place
        whole = set(component)
        inside = {value for value in component if memory_of[value].value in whole}  # and no views of what stays
        again = again or inside.__contains__
        made = sorted((value for value in inside if isinstance(value, OpResult)), key=lambda value: place[value.op])
        readers: dict[Operation, list[OpResult]] = {}
        for value in made:
            for reader in filter(self._is_late, self.times.readers(value)):
                readers.setdefault(reader, []).append(value)
        if not readers:
            return None
        calls = any(not isinstance(value.op, StructuredOp) for value in made)
        own = (memory_of[value] for value in made if memory_of[value].value is value)
        proposal = Proposal(self.at, [], list(filter(self._is_alive, own)), [])
        for group in self._groups(readers, calls):
            clones = self._clones(group, readers, again)
            if (
                len(clones.ops) > self.max_ops
            ):  # nobody takes it: in a large function others would take a square of its size
                proposal.clones = [clones]
                break
            proposal.clones.append(clones)
        else:
            sources = (memory_of[value] for each in proposal.clones for value in each.sources if value in memory_of)
            proposal.kept = [memory for memory in dict.fromkeys(sources) if not self._is_alive(memory)]
            proposal.seconds = self._seconds(proposal)
        proposal.byte_time = self._byte_time(proposal)
        return proposal

    def _groups(self, readers: Iterable[Operation], calls_again: bool) -> list[list[Operation]]:
        """
        Readers that share clones: loops of one time, which compute them themselves, and calls that are not far apart. Where
        calls are made again, all readers that are not far apart.
        """
        time = self.times.time
        loops: dict[int, list[Operation]] = {}
        calls: list[list[Operation]] = []
        for reader in sorted(readers, key=time.__getitem__):
            if isinstance(reader, StructuredOp) and not calls_again:
                loops.setdefault(time[reader], []).append(reader)
            elif calls and time[reader] - time[calls[-1][0]] <= SHARED_TIME:
                calls[-1].append(reader)
            else:
                calls.append([reader])
        return [*calls, *loops.values()]

    def _clones(
        self,
        group: Sequence[Operation],
        read: Mapping[Operation, Sequence[OpResult]],
        again: Callable[[SSAValue], bool],
    ) -> Clones:
        """What is computed again for some readers; one op more than may be where that are too many."""
        found: dict[Operation, None] = {}
        sources: dict[SSAValue, None] = {}
        waiting = [value.op for reader in group for value in read[reader]]
        while waiting and len(found) <= self.max_ops:
            op = waiting.pop()
            if op not in found:
                found[op] = None
                for operand in op.operands:
                    if again(operand) or self._is_view(operand):
                        waiting.append(operand.owner)  # pyright: ignore[reportArgumentType]
                    else:
                        sources[operand] = None
        return clones_of(self.times, found, group, tuple(sources))

    def _is_view(self, value: SSAValue) -> bool:
        """Whether a value is a view that costs nothing: clones have their own, or fusion would join all that read one."""
        memory = self.times.memory.get(value)
        return memory is not None and memory.value is not value and self.times.can_repeat(value.owner)

    def _byte_time(self, proposal: Proposal) -> int:
        saved = sum((memory.nbytes or 0) * (memory.last - self.at) for memory in proposal.dropped)
        ends: dict[Memory, int] = {}
        for clones in proposal.clones:
            for memory in (self.times.memory[value] for value in clones.sources if value in self.times.memory):
                if not memory.free:
                    ends[memory] = max(ends.get(memory, 0), clones.time)
        return saved - sum((m.nbytes or 0) * max(end - max(m.last, self.at), 0) for m, end in ends.items())

    def _seconds(self, proposal: Proposal) -> float:
        """What is saved: stores and loads of what is dropped, less the work, and the loads and stores of what is kept."""
        moved = _total(m for m in proposal.dropped if not self._is_stored(m))
        moved -= _total(m for m in proposal.kept if not self._is_stored(m))
        seconds = 0.0
        for clones in proposal.clones:
            moved += self._moved_less(clones)
            seconds -= sum(map(self.seconds_of, clones.ops))
            seconds -= self.device.launch * (not isinstance(clones.readers[0], StructuredOp))
        return seconds + moved / self.bandwidth

    def _moved_less(self, clones: Clones) -> int:
        """Bytes of what is dropped that readers load now, less what clones load, and store for readers that are called."""
        memory_of = self.times.memory
        made = {op.results[0] for op in clones.ops}
        loaded: dict[Memory, None] = {}
        stored: dict[Memory, None] = {}
        for reader in clones.readers:
            values = dict.fromkeys(memory_of[value] for value in reader.operands if value in made)
            (loaded if isinstance(reader, StructuredOp) else stored).update(values)
        known = {operand for reader in clones.readers for operand in reader.operands}
        sources = dict.fromkeys(memory_of[v] for v in clones.sources if v in memory_of and v not in known)
        return _total(loaded) - _total(stored) - _total(sources)

    def _is_stored(self, memory: Memory) -> bool:
        """Whether a value comes to memory in any case, for readers up to the call."""
        readers = (op for value in memory.names for op in self.times.readers(value))
        return any(memory.made | 1 < self.times.time[op] <= self.at for op in readers)


def clones_of(
    times: Times, ops: Iterable[Operation], readers: Sequence[Operation], sources: tuple[SSAValue, ...]
) -> Clones:
    """The clones of ops for readers."""
    cloned, reading = (tuple(sorted(each, key=times.place.__getitem__)) for each in (ops, readers))
    return Clones(min(times.time[reader] for reader in readers), cloned, reading, sources)


def _first(of: dict[SSAValue, SSAValue], value: SSAValue) -> SSAValue:
    while (other := of[value]) is not value:
        of[value] = of[other]
        value = other
    return value


def _total(memories: Iterable[Memory]) -> int:
    return sum(memory.nbytes or 0 for memory in memories)
