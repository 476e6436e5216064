"""A layered drawing of a graph: boxes in layers along the data flow, few crossings, edges as SVG paths.

After Sugiyama, Tagawa, Toda (1981): longest-path layers, invisible items where an edge passes a layer, barycentre
ordering, then places by least squares that keep the order. Near-linear in boxes and edges, and without recursion.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_ROUNDS = 6
"""Sweeps down and up, for the order as for the places."""
_MOST_BENDS = 8_000
"""Invisible items of a drawing; the longest edges beyond go straight."""
_STRAIGHT = 6.0
"""How much more an invisible item wants to lie straight than a box."""
_ASIDE = 0.1
"""The pull of invisible items, and of boxes that nothing leads to."""


_Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Upper left corners of the boxes, a path for each edge as in SVG's attribute `d`, and the size of the whole."""

    places: tuple[tuple[float, float], ...]
    paths: tuple[str, ...]
    width: float
    height: float


def arrange(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], gap: tuple[float, float] = (24.0, 36.0)
) -> Arrangement:
    """Places boxes of these sizes, numbered in order, so that edges (from, to) run downwards; `gap` is across, down.

    An edge to a box of a lower number runs upwards: numbers must follow the data flow for all others to run down.
    """
    items = _Items(sizes, edges)
    items.order()
    items.align(gap[0])
    return items.result(gap[1])


@dataclass(slots=True)
class _Item:
    """A box, or a bend of an edge."""

    layer: int
    width: float
    weight: float = 1.0
    """How much it wants to lie where it wants to."""
    trace: float = 1.0
    """How much its neighbours want to lie in line with it: main paths go straight, what joins them lies aside."""
    up: list[int] = field(default_factory=list[int])
    down: list[int] = field(default_factory=list[int])
    at: float = 0.0
    """Its middle."""


class _Items:
    def __init__(self, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> None:
        self._sizes = sizes
        self._edges = edges
        self._targets: list[list[int]] = [[] for _ in sizes]
        for a, b in dict.fromkeys((min(edge), max(edge)) for edge in edges if edge[0] != edge[1]):
            self._targets[a].append(b)
        self._items = [_Item(layer, width) for layer, (width, _) in zip(self._layers_of_boxes(), sizes, strict=True)]
        self._bends: list[list[int]] = [[] for _ in sizes]
        """By box: the bends below it, one for each layer; edges from it share them."""
        self._add_bends()
        self._layers: list[list[int]] = [[] for _ in range(max((item.layer for item in self._items), default=-1) + 1)]
        for box, bends in enumerate(self._bends):
            for number in (box, *bends):
                self._layers[self._items[number].layer].append(number)

    def _layers_of_boxes(self) -> list[int]:
        """Longest paths from the top; a box that nothing leads to lies just above the first that it leads to."""
        layers = [0] * len(self._sizes)
        for a, targets in enumerate(self._targets):
            for b in targets:
                layers[b] = max(layers[b], layers[a] + 1)
        return [
            min(layers[b] for b in targets) - 1 if layer == 0 and targets else layer
            for layer, targets in zip(layers, self._targets, strict=True)
        ]

    def _add_bends(self) -> None:
        spans = [
            max((self._items[b].layer for b in targets), default=0) - self._items[a].layer - 1
            for a, targets in enumerate(self._targets)
        ]
        left = _MOST_BENDS
        for a in sorted(range(len(spans)), key=lambda box: (spans[box], box)):
            left -= max(spans[a], 0)
            if left >= 0:
                self._bend(a, spans[a])
            self._connect(a)

    def _bend(self, box: int, count: int) -> None:
        layer = self._items[box].layer
        for step in range(1, count + 1):
            self._bends[box].append(len(self._items))
            self._items.append(_Item(layer + step, 2.0, _STRAIGHT, _ASIDE))

    def _connect(self, box: int) -> None:
        """Links the neighbours in adjacent layers; edges that go straight are nobody's concern."""
        chain = [box, *self._bends[box]]
        pairs = list(pairwise(chain))
        for target in self._targets[box]:
            step = self._items[target].layer - self._items[box].layer - 1
            if step < len(chain):
                pairs.append((chain[step], target))
        for a, b in pairs:
            self._items[a].down.append(b)
            self._items[b].up.append(a)

    def order(self) -> None:
        """Sorts each layer by the mean place of the neighbours above, then below, and keeps the best order seen."""
        best, fewest = [list(layer) for layer in self._layers], self._crossings()
        for _ in range(_ROUNDS):
            for downwards in (True, False):
                if not fewest:
                    break
                self._sort(downwards)
                if (found := self._crossings()) < fewest:
                    best, fewest = [list(layer) for layer in self._layers], found
        self._layers = best

    def _sort(self, downwards: bool) -> None:
        position: dict[int, int] = {}
        for layer in self._layers if downwards else reversed(self._layers):
            key: dict[int, float] = {}
            for place, number in enumerate(layer):
                item = self._items[number]
                near = [position[n] for n in (item.up if downwards else item.down)]
                key[number] = sum(near) / len(near) if near else place
            layer.sort(key=key.__getitem__)
            position.update((number, place) for place, number in enumerate(layer))

    def _crossings(self) -> int:
        total = 0
        for upper, lower in pairwise(self._layers):
            position = {number: place for place, number in enumerate(lower)}
            seen: list[int] = []
            for number in upper:
                ends = sorted(position[n] for n in self._items[number].down)
                total += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    seen.insert(bisect_right(seen, end), end)
        return total

    def align(self, gap: float) -> None:
        """Moves the items of each layer to the middle of their neighbours, as far as order and widths let them."""
        offsets = [self._offsets(layer, gap) for layer in self._layers]
        for layer, offset in zip(self._layers, offsets, strict=True):
            for number, at in zip(layer, offset, strict=True):
                self._items[number].at = at - offset[-1] / 2
        for item in self._items[: len(self._sizes)]:
            item.trace = item.weight = 1.0 if item.up else _ASIDE
        rows = list(zip(self._layers, offsets, strict=True))
        for _ in range(_ROUNDS):
            for downwards in (True, False):
                for layer, offset in rows if downwards else reversed(rows):
                    self._settle(layer, offset, downwards)

    def _offsets(self, layer: Sequence[int], gap: float) -> list[float]:
        """Where middles lie when the layer is packed from the left."""
        found: list[float] = []
        right = 0.0
        for number in layer:
            width = self._items[number].width
            found.append(right + width / 2)
            right += width + gap
        return found

    def _settle(self, layer: Sequence[int], offsets: Sequence[float], downwards: bool) -> None:
        wanted: list[float] = []
        for number, offset in zip(layer, offsets, strict=True):
            item = self._items[number]
            near = [self._items[n] for n in ((item.up or item.down) if downwards else (item.down or item.up))]
            if item.weight == _STRAIGHT:
                near = [other for other in near if other.weight == _STRAIGHT] or near
            total = sum(other.trace for other in near)
            at = sum(other.at * other.trace for other in near) / total if near else item.at
            wanted.append(at - offset)
        weights = [self._items[number].weight for number in layer]
        for number, offset, at in zip(layer, offsets, _nondecreasing(wanted, weights), strict=True):
            self._items[number].at = at + offset

    def result(self, gap: float) -> Arrangement:
        """The drawing, its upper left corner at (0, 0)."""
        boxes = range(len(self._sizes))
        left = min((item.at - item.width / 2 for item in self._items), default=0.0)
        heights = [max((self._sizes[n][1] for n in layer if n in boxes), default=0.0) for layer in self._layers]
        tops = [0.0]
        for height in heights:
            tops.append(tops[-1] + height + gap)
        bands = [(top, top + height) for top, height in zip(tops, heights, strict=False)]
        places: list[tuple[float, float]] = []
        for item, targets, (width, height) in zip(self._items, self._targets, self._sizes, strict=False):
            item.at -= left
            top, bottom = bands[item.layer]
            places.append((item.at - width / 2, top if item.up or not targets else bottom - height))
        for item in self._items[len(self._sizes) :]:
            item.at -= left
        right = max((item.at + item.width / 2 for item in self._items), default=0.0)
        return Arrangement(tuple(places), self._paths(places, bands), right, max(tops[-1] - gap, 0.0))

    def _paths(self, places: Sequence[_Pair], bands: Sequence[_Pair]) -> tuple[str, ...]:
        """A path by edge. Bends that edges share are drawn with the shortest of these, the longer ones go on from there."""
        paths = [""] * len(self._edges)
        drawn = [0] * len(self._sizes)
        for number in sorted(range(len(paths)), key=lambda k: (self._items[max(self._edges[k])].layer, k)):
            edge = self._edges[number]
            a, b = min(edge), max(edge)
            first = (self._items[a].at, places[a][1] + self._sizes[a][1], bands[self._items[a].layer][1])
            last = (self._items[b].at, bands[self._items[b].layer][0], places[b][1])
            steps = max(self._items[b].layer - self._items[a].layer - 1, 0)
            before = drawn[a] if edge == (a, b) else 0
            bends = [
                (self._items[n].at, *bands[self._items[n].layer]) for n in self._bends[a][max(before - 1, 0) : steps]
            ]
            drawn[a] = max(drawn[a], min(steps, len(self._bends[a])))
            nodes = [*bends, last] if before else [first, *bends, last]
            paths[number] = _path(nodes if edge == (a, b) else [(x, to, at) for x, at, to in reversed(nodes)])
        return tuple(paths)


def _path(nodes: Sequence[tuple[float, float, float]]) -> str:
    """Straight down through the layers of (middle, top, bottom), and a curve from each to the next."""
    x, top, bottom = nodes[0]
    found = [f"M{x:.1f} {top:.1f}V{bottom:.1f}"]
    for to, start, end in nodes[1:]:
        middle = (bottom + start) / 2
        found.append(f"C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {start:.1f}")
        found.append(f"V{end:.1f}" if end != start else "")
        x, bottom = to, end
    return "".join(found)


def _nondecreasing(wanted: Iterable[float], weights: Iterable[float]) -> list[float]:
    """The non-decreasing sequence nearest to the wanted one by weighted squares: neighbours in conflict share a mean."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(wanted, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, heavy, count = pools.pop()
            total = heavy + pool[1]
            pool = ((mean * heavy + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    return [mean for mean, _, count in pools for _ in range(count)]
