"""Better orders of a few nodes around a peak: a dynamic program over down-sets (Held and Karp 1962).

The bytes alive after a set of nodes has run do not depend on their order. So of all orders of a down-set of the window
(what it depends on is in it) only the one of the lowest peak counts, as in Ahn et al., "Ordering chaos" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fuse_opt.passes.memory.ordering.problem import Loads, Node, Problem

MOST_WINDOWS = 8
"""How many windows are ordered anew for one better order; with more peaks than these reach there is none."""

WIDTH = 256
"""How many down-sets of one size are followed; of more those that keep least alive."""


def improve_windows(
    problem: Problem, before: Sequence[Sequence[int]], loads: Loads, limit: int, window: int
) -> list[int] | None:
    """An order with no more than `limit` bytes alive at any step, that differs in windows around the peaks; or None."""
    spans = _Spans.of(problem, loads)
    order = list(range(len(problem.nodes)))
    peaks = [at for at, load in enumerate(loads.at) if load > limit]
    low = high = 0
    for count, peak in enumerate(peaks_apart(peaks, window)):
        if count == MOST_WINDOWS:
            return None
        low = max(high, peak - window // 2)
        high = min(low + window, len(order))
        found = _Window(problem, before, spans, low, high).best(limit)
        if found is None:
            return None
        order[low:high] = found
    return order


def peaks_apart(peaks: Sequence[int], window: int) -> list[int]:
    """The peaks that are in no window of one before."""
    found: list[int] = []
    high = 0
    for peak in peaks:
        if peak >= high:
            found.append(peak)
            high = max(high, peak - window // 2) + window
    return found


@dataclass(frozen=True, slots=True)
class _Spans:
    """By value: its bytes in the arena, and the positions of its writer and its last reader."""

    sizes: list[int]
    birth: list[int]
    last: list[int]

    @classmethod
    def of(cls, problem: Problem, loads: Loads) -> _Spans:
        end = len(problem.nodes)
        birth = [-1] * len(problem.values)
        last = [end if value.lasts else -1 for value in problem.values]
        for at, node in enumerate(problem.nodes):
            for value in node.reads:
                last[value] = max(last[value], at)
            for value in node.writes:
                birth[value] = at
        sizes = [0 if out else value.size for value, out in zip(problem.values, loads.outside, strict=True)]
        return cls(sizes, birth, last)


@dataclass(slots=True)
class _Step:
    """A node of the window: who must run before it and may run after it, and what it does to memory."""

    before: int = 0
    after: list[int] = field(default_factory=list[int])
    made: int = 0
    unread: int = 0
    """Of the bytes made those that nobody reads."""
    frees: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Values that die in the window: bytes, readers, number."""
    pairs: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class _State:
    """The best known order of a down-set."""

    peak: int
    load: int
    ready: int
    parent: int
    node: int


class _Window:
    def __init__(self, problem: Problem, before: Sequence[Sequence[int]], spans: _Spans, low: int, high: int) -> None:
        self.low, self.count = low, high - low
        nodes = problem.nodes[low:high]
        readers: dict[int, int] = {}
        for number, node in enumerate(nodes):
            for value in node.reads:
                readers[value] = readers.get(value, 0) | 1 << number
        self.steps = [self._step(node, readers, spans, high) for node in nodes]
        for number, step in enumerate(self.steps):
            for other in before[low + number]:
                if other >= low:
                    step.before |= 1 << (other - low)
                    self.steps[other - low].after.append(number)
        born = zip(spans.sizes, spans.birth, spans.last, strict=True)
        self.load = sum(size for size, birth, last in born if 0 <= birth < low <= last)

    @staticmethod
    def _step(node: Node, readers: dict[int, int], spans: _Spans, high: int) -> _Step:
        sizes, last = spans.sizes, spans.last
        step = _Step(made=sum(sizes[value] for value in node.writes))
        step.unread = sum(sizes[value] for value in node.writes if last[value] < 0)
        step.frees = [(sizes[v], readers[v], v) for v in node.reads if sizes[v] and last[v] < high]
        step.pairs = tuple((w, r) for w, r in node.pairs if sizes[w] and sizes[r] and last[r] < high)
        return step

    def best(self, limit: int) -> list[int] | None:
        """The nodes in an order that stays within the limit, with the lowest peak of those followed; or None."""
        first = sum(1 << number for number, step in enumerate(self.steps) if not step.before)
        layers = [{0: _State(self.load, self.load, first, 0, -1)}]
        for _ in range(self.count):
            layers.append(self._next_layer(layers[-1], limit))
            if not layers[-1]:
                return None
        order: list[int] = []
        done = (1 << self.count) - 1
        for layer in reversed(layers[1:]):
            state = layer[done]
            order.append(self.low + state.node)
            done = state.parent
        return order[::-1]

    def _next_layer(self, layer: dict[int, _State], limit: int) -> dict[int, _State]:
        found: dict[int, _State] = {}
        for done, state in layer.items():
            ready = state.ready
            while ready:
                bit = ready & -ready
                ready ^= bit
                now = done | bit
                node = bit.bit_length() - 1
                known = found.get(now)
                if known is not None and known.peak <= state.peak:
                    continue
                peak, load = self._run(self.steps[node], state.load, now)
                peak = max(peak, state.peak)
                if peak > limit or (known is not None and known.peak <= peak):
                    continue
                if known is not None:
                    known.peak, known.parent, known.node = peak, done, node
                    continue
                found[now] = _State(peak, load, self._ready(state.ready ^ bit, node, now), done, node)
        if len(found) > WIDTH:
            ranked = sorted(found.items(), key=lambda item: (item[1].load, item[1].peak, item[0]))
            found = dict(ranked[:WIDTH])
        return found

    def _ready(self, ready: int, node: int, done: int) -> int:
        for other in self.steps[node].after:
            if not self.steps[other].before & ~done:
                ready |= 1 << other
        return ready

    @staticmethod
    def _run(step: _Step, load: int, done: int) -> tuple[int, int]:
        """The most bytes alive while a node runs, and those after it; `done` is all that has run by then."""
        freed = 0
        dying: list[int] | None = None
        for size, readers, value in step.frees:
            if not readers & ~done:
                freed += size
                if step.pairs:
                    dying = [value] if dying is None else [*dying, value]
        peak = load + step.made
        if dying is not None:
            used: set[int] = set()
            for written, read in step.pairs:
                if read in dying and written not in used and read not in used:
                    used.update((written, read))
                    peak -= next(size for size, _, value in step.frees if value == read)
        return peak, load + step.made - freed - step.unread
