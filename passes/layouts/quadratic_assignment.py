"""Choices that cost by themselves and in pairs, at the least sum (PBQP: Scholz and Eckstein 2002); knows no IR.

Nodes with at most two neighbours are taken out, exactly: what they cost is added to what is left. Graphs of branches that join
again reduce wholly so. Of what remains each connected core is tried out, as long as it has few combinations; of a larger one the
node of most neighbours is settled, and reduction goes on. Equal costs are decided for the first alternative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import add, sub

TRIED = 4096
"""Combinations of a core that are all tried."""

SMALL = 32
"""Nodes of a core that is looked at anew after each node that is settled."""

Matrix = list[list[float]]


@dataclass
class Assignment:
    """A problem: `costs[node][alternative]`, and a matrix of costs for two nodes that are connected."""

    costs: list[list[float]] = field(default_factory=list[list[float]])
    """Lists that are shared and never changed, as rows of matrices are."""
    edges: list[dict[int, Matrix]] = field(default_factory=list[dict[int, Matrix]])
    """By node: its neighbours, each with a row for each alternative of the node; rows are shared and never changed."""
    _turned: dict[int, tuple[Matrix, Matrix]] = field(default_factory=dict[int, tuple[Matrix, Matrix]])
    """By the identity of a matrix that was connected: it, which so lives as long, and its transpose."""
    _sums: dict[tuple[int, int], tuple[list[float], ...]] = field(
        default_factory=dict[tuple[int, int], "tuple[list[float], ...]"]
    )
    """By identities of two lists of costs: their sum, one for nodes that are alike, and the two, which live as long."""

    def node(self, costs: list[float]) -> int:
        """A new node with an alternative for each cost; these may not change later."""
        self.costs.append(costs)
        self.edges.append({})
        return len(self.costs) - 1

    def add(self, node: int, more: list[float]) -> None:
        """Adds costs to a node; the list may not change later."""
        key = id(self.costs[node]), id(more)
        if (found := self._sums.get(key)) is None:
            found = self._sums[key] = list(map(add, self.costs[node], more)), self.costs[node], more
        self.costs[node] = found[0]

    def connect(self, first: int, second: int, matrix: Matrix) -> None:
        """Adds costs of each alternative of the first node beside each of the second; the matrix may not change later."""
        if first == second:
            self.costs[first] = [
                cost + row[number] for number, (cost, row) in enumerate(zip(self.costs[first], matrix, strict=True))
            ]
            return
        known = self.edges[first].get(second)
        if known is not None:
            matrix = [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(known, matrix, strict=True)]
        self.edges[first][second] = matrix
        self.edges[second][first] = self._transposed(matrix)

    def _transposed(self, matrix: Matrix) -> Matrix:
        if (found := self._turned.get(id(matrix))) is None:
            found = self._turned[id(matrix)] = matrix, [list(column) for column in zip(*matrix, strict=True)]
        return found[1]

    def total(self, chosen: Sequence[int]) -> float:
        """What a choice costs."""
        found = sum(costs[number] for costs, number in zip(self.costs, chosen, strict=True))
        for node, others in enumerate(self.edges):
            found += sum(matrix[chosen[node]][chosen[other]] for other, matrix in others.items() if node < other)
        return found


@dataclass(frozen=True)
class Solution:
    """A choice for each node, and how many nodes were settled without knowing that it is the best."""

    chosen: list[int]
    guessed: int = 0


def solve(problem: Assignment) -> Solution:
    """The alternatives of the least sum; of large cores an approximation, bettered by changes of one and of two nodes."""
    reduction = _Reduction(problem)
    reduction.run()
    chosen = reduction.resolved()
    if reduction.guessed:
        chosen = _bettered(problem, chosen)
    return Solution(chosen, reduction.guessed)


_Join = tuple[Matrix, Matrix, list[float], Matrix, Matrix, Matrix | None]
"""Costs between two nodes, by alternative of the first and of the second, and what they were worked out from."""
REMEMBERED = 4096
"""Costs between nodes that are worked out once for all nodes that are alike."""


def _joined(own: list[float], columns_a: Matrix, columns_b: Matrix, known: Matrix | None) -> _Join:
    matrix: Matrix = []
    for column in columns_a:
        base = list(map(add, own, column))
        matrix.append([min(map(add, base, other)) for other in columns_b])
    if known is not None:
        matrix = [list(map(add, row, more)) for row, more in zip(matrix, known, strict=True)]
    return matrix, list(map(list, zip(*matrix, strict=True))), own, columns_a, columns_b, known


class _Reduction:
    def __init__(self, problem: Assignment) -> None:
        self.costs = list(problem.costs)
        self.edges = list(map(dict, problem.edges))
        self.order: list[tuple[int, dict[int, Matrix]]] = []
        """Nodes that were taken out, with the neighbours that they had then."""
        self.settled: dict[int, int] = {}
        self.gone = [False] * len(self.costs)
        self.left = len(self.costs)
        """Nodes that are not gone."""
        self.guessed = 0
        self._joins: dict[tuple[int, int, int, int], _Join] = {}
        """By identities of costs and of matrices, which live as long as they are here: parts of a graph are alike."""

    def run(self) -> None:
        self._reduce(range(len(self.costs)))
        for start in range(len(self.costs)):
            if not self.gone[start]:
                self._solve_core(self._connected(start))

    def _reduce(self, nodes: Iterable[int]) -> None:
        """Takes out nodes of at most two neighbours, and those that become such."""
        waiting = list(nodes)[::-1]
        gone, edges = self.gone, self.edges
        while waiting:
            node = waiting.pop()
            if gone[node] or len(others := edges[node]) > 2:
                continue
            gone[node] = True
            self.left -= 1
            self.order.append((node, others))
            if len(others) == 2:
                self._join(node, *others)
            elif others:
                (other,) = others
                self._add(node, other)
            waiting.extend(others)

    def _add(self, node: int, other: int) -> None:
        """The costs of a node, at its best, as those of its only neighbour."""
        own, columns = self.costs[node], self.edges[other].pop(node)
        self.costs[other] = [
            cost + min(map(add, own, column)) for cost, column in zip(self.costs[other], columns, strict=True)
        ]

    def _join(self, node: int, a: int, b: int) -> None:
        """The costs of a node, at its best, as those of its two neighbours beside each other; by alternative of each, its own."""
        at_a, at_b, own = self.edges[a], self.edges[b], self.costs[node]
        columns_a, columns_b, known = at_a.pop(node), at_b.pop(node), at_a.get(b)
        key = id(own), id(columns_a), id(columns_b), id(known)
        if (found := self._joins.get(key)) is None:
            found = _joined(own, columns_a, columns_b, known)
            if len(self._joins) < REMEMBERED:
                self._joins[key] = found
        at_a[b], at_b[a] = found[:2]

    def _connected(self, start: int) -> list[int]:
        seen = {start}
        stack = [start]
        while stack:
            for other in self.edges[stack.pop()]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        return sorted(seen)

    def _solve_core(self, core: list[int]) -> None:
        """Settles the nodes of a core: all at once by trial, or one after another, and then the parts that are left."""
        stack = [core]
        while stack:
            core = stack.pop()
            if self._are_few(core):
                self._try(core)
                continue
            left = self._guess_half(core)
            stack.extend(self._parts(left))

    def _are_few(self, core: list[int]) -> bool:
        combinations = 1
        for node in core:
            combinations *= len(self.costs[node])
            if combinations > TRIED:
                return False
        return True

    def _guess_half(self, core: list[int]) -> list[int]:
        """Settles nodes, those of most neighbours first, until half of the core is left, or one of a small core is gone."""
        heap = [(-len(self.edges[node]), node) for node in core]
        heapify(heap)
        enough = len(core) // 2 if len(core) > SMALL else len(core) - 1
        before = self.left
        while before - self.left < len(core) - enough:
            degree, node = heappop(heap)
            if self.gone[node]:
                continue
            if degree != -len(self.edges[node]):
                heappush(heap, (-len(self.edges[node]), node))
                continue
            self._guess(node)
        return [node for node in core if not self.gone[node]]

    def _parts(self, nodes: list[int]) -> list[list[int]]:
        found: list[list[int]] = []
        seen: set[int] = set()
        for node in nodes:
            if node not in seen:
                part = self._connected(node)
                seen.update(part)
                found.append(part)
        return found

    def _guess(self, node: int) -> None:
        """Settles a node at what is best for it and, each by itself, for its neighbours."""
        self.guessed += 1
        others = self.edges[node]
        sums = list(self.costs[node])
        for other, matrix in others.items():
            costs = self.costs[other]
            sums = [total + min(map(add, row, costs)) for total, row in zip(sums, matrix, strict=True)]
        self._settle(node, sums.index(min(sums)))
        self._reduce(others)

    def _settle(self, node: int, number: int) -> None:
        self.settled[node] = number
        self.gone[node] = True
        self.left -= 1
        self.order.append((node, {}))
        for other, matrix in self.edges[node].items():
            self.costs[other] = list(map(add, self.costs[other], matrix[number]))
            del self.edges[other][node]

    def _try(self, core: list[int]) -> None:
        """All combinations of a core, left where they cannot become the best any more."""
        place = {node: number for number, node in enumerate(core)}
        before = [[(place[o], m) for o, m in self.edges[node].items() if place[o] < place[node]] for node in core]
        least = [0.0] * (len(core) + 1)
        for number in range(len(core) - 1, -1, -1):
            least[number] = least[number + 1] + min(self.costs[core[number]])
        best, found = float("inf"), [0] * len(core)
        chosen: list[int] = [-1]
        sums: list[float] = [0.0]
        while chosen:
            depth = len(chosen) - 1
            chosen[-1] += 1
            node = core[depth]
            if chosen[-1] >= len(self.costs[node]):
                chosen.pop()
                sums.pop()
                continue
            number = chosen[-1]
            total = sums[-1] + self.costs[node][number] + sum(m[number][chosen[o]] for o, m in before[depth])
            if total + least[depth + 1] >= best:
                continue
            if depth + 1 == len(core):
                best, found = total, list(chosen)
            else:
                chosen.append(-1)
                sums.append(total)
        for node, number in zip(core, found, strict=True):
            self._settle(node, number)

    def resolved(self) -> list[int]:
        """The choice, from the nodes that were taken out last back to the first."""
        chosen = [0] * len(self.costs)
        for node, number in self.settled.items():
            chosen[node] = number
        known: dict[tuple[int, ...], int] = {}  # by identities of costs and matrices, too, which are all kept
        for node, others in reversed(self.order):
            if node in self.settled:
                continue
            sums = self.costs[node]
            key = [id(sums)]
            for other, matrix in others.items():
                key += id(matrix), chosen[other]
            if (best := known.get(same := tuple(key))) is None:
                for other, matrix in others.items():
                    number = chosen[other]
                    sums = [total + row[number] for total, row in zip(sums, matrix, strict=True)]
                best = known[same] = sums.index(min(sums))
            chosen[node] = best
        return chosen


ROUNDS = 8
MANY = 4096
"""Nodes of a problem above which only the choice that was found is bettered."""


def _bettered(problem: Assignment, chosen: list[int]) -> list[int]:
    """The best of a choice and of one alternative for all, each bettered."""
    if len(chosen) > MANY:
        better(problem, chosen)
        return chosen
    most = max(map(len, problem.costs))
    starts = [chosen, *([min(number, len(costs) - 1) for costs in problem.costs] for number in range(most))]
    for start in starts:
        better(problem, start)
    return min(starts, key=problem.total)


def better(problem: Assignment, chosen: list[int]) -> None:
    """Changes one node, or two neighbours, at a time, as long as that costs less; at most a few rounds."""
    search = _Search(problem, chosen)
    nodes: Iterable[int] = range(len(chosen))
    for _ in range(ROUNDS):
        before = {node: chosen[node] for node in nodes}
        near = set(before).union(*(problem.edges[node] for node in before))
        before.update((node, chosen[node]) for node in near)
        for node in sorted(near):
            search.better_node(node)
        for node in sorted(near):
            for other in problem.edges[node]:
                if node < other or other not in near:
                    before.setdefault(other, chosen[other])
                    search.better_pair(node, other)
        nodes = [node for node, number in before.items() if chosen[node] != number]
        if not nodes:
            return


ROUNDING = 1e-9
"""What costs less by less than this part does not: sums are of floats, in any order."""


class _Search:
    """A choice that changes, and what each alternative of a node costs beside it, as long as that holds."""

    def __init__(self, problem: Assignment, chosen: list[int]) -> None:
        self.problem, self.chosen = problem, chosen
        self._sums: list[list[float] | None] = [None] * len(chosen)
        self._gaps: list[float | None] = [None] * len(chosen)
        """By node: what its best other alternative costs more than the one that is chosen."""
        self._spreads: dict[int, float] = {}

    def sums(self, node: int) -> list[float]:
        if (found := self._sums[node]) is None:
            found, chosen = self.problem.costs[node], self.chosen
            edges = self.problem.edges
            for other in edges[node]:
                found = list(map(add, found, edges[other][node][chosen[other]]))
            self._sums[node] = found
        return found

    def _gap(self, node: int) -> float:
        if (found := self._gaps[node]) is None:
            here, sums = self.chosen[node], self.sums(node)
            others = [*sums[:here], *sums[here + 1 :]]
            found = self._gaps[node] = min(others, default=float("inf")) - sums[here]
        return found

    def _spread(self, matrix: Matrix) -> float:
        if (found := self._spreads.get(id(matrix))) is None:
            found = self._spreads[id(matrix)] = max(map(max, matrix)) - min(map(min, matrix))
        return found

    def _change(self, node: int, number: int) -> None:
        self.chosen[node] = number
        self._gaps[node] = None
        for other in self.problem.edges[node]:
            self._sums[other] = self._gaps[other] = None

    def better_node(self, node: int) -> None:
        if self._gap(node) < 0:
            sums = self.sums(node)
            self._change(node, sums.index(min(sums)))

    def better_pair(self, node: int, other: int) -> None:
        """
        Changes both where that costs less. Beside each other new alternatives save at most the spread of their costs twice; where
        either takes more than that by itself nothing has to be tried.
        """
        matrix, own, its = self.problem.edges[node][other], self._gap(node), self._gap(other)
        if own >= 0 and its >= 0 and own + its >= 2 * self._spread(matrix):
            return
        here, there = self.chosen[node], self.chosen[other]
        beside = matrix[here]
        first = [total - row[there] for total, row in zip(self.sums(node), matrix, strict=True)]
        second = list(map(sub, self.sums(other), beside))
        now = first[here] + second[there] + beside[there]
        least = min(second)
        best, found = now - ROUNDING * abs(now), (here, there)
        for a, row in enumerate(matrix):
            if first[a] + least + min(row) < best:
                for b, cost in enumerate(row):
                    if (total := first[a] + second[b] + cost) < best:
                        best, found = total, (a, b)
        if found != (here, there):
            self._change(node, found[0])
            self._change(other, found[1])
