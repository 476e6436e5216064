"""Orders as decisions: an order is a row of moves, each of one op before another one, and any first part of them is legal."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation

from fuse_opt.passes.decisions.choices import BEFORE, Choices
from fuse_opt.passes.decisions.steering import Step
from fuse_opt.passes.memory.ordering.problem import Problem, predecessors


def taken_moves(nodes: Sequence[Operation], order: Sequence[int], choices: Choices) -> list[int]:
    """The order, as far as there is fuel for moves: from first to last, each op is moved before all that are not placed yet."""
    placed, first = [False] * len(nodes), 0
    for at, number in enumerate(order):
        while placed[first]:
            first += 1
        if number != first and not choices.take_before(nodes[number], nodes[first]):
            return [*order[:at], *(other for other in range(len(nodes)) if not placed[other])]
        placed[number] = True
    return list(order)


def told_moves(block: Block, nodes: Sequence[Operation], problem: Problem, choices: Choices) -> tuple[list[int], bool]:
    """The order that the moves of a file make, and whether there is any. Raises DecisionError."""
    place = {op: number for number, op in enumerate(nodes)}
    order, steps = _Order(len(nodes)), choices.told_in(block)
    before = predecessors(problem)
    moves: list[tuple[Step, int, int]] = []
    for step in steps:
        decision = step.decision
        if decision.word != BEFORE or len(step.ops) != 1 or len(step.readers) != 1:
            raise decision.error("expected one op, 'before', and another op")
        op, other = (place.get(_top(one, block), -1) for one in (step.ops[0], step.readers[0]))
        if op < 0 or other < 0 or op == other:
            raise decision.error(
                f"{decision.ops[0]} cannot be moved before {decision.readers[0]}: no two ops that are ordered"
            )
        if not choices.take_before(nodes[op], nodes[other]):
            break
        order.move(op, other)
        moves.append((step, op, other))
    if not _holds(found := order.listed(), before):
        _blame(moves, before)
    return found, bool(moves)


def _blame(moves: Sequence[tuple[Step, int, int]], before: Sequence[Sequence[int]]) -> None:
    """Raises DecisionError for the first move that cannot be; only the whole was looked at before, which is faster."""
    order = _Order(len(before))
    for step, op, other in moves:
        order.move(op, other)
        if not _holds(order.listed(), before):
            decision = step.decision
            raise decision.error(
                f"{decision.ops[0]} cannot run before {decision.readers[0]}: one needs what is between them",
                decision.ops[0],
            )


def _holds(order: Sequence[int], before: Sequence[Sequence[int]]) -> bool:
    """Whether each node comes after those that must come before it."""
    at = [0] * len(order)
    for place, number in enumerate(order):
        at[number] = place
    return all(at[earlier] < at[number] for number in order for earlier in before[number])


def _top(op: Operation, block: Block) -> Operation:
    while op.parent is not block and (parent := op.parent_op()) is not None:
        op = parent
    return op


class _Order:
    """Numbers in a row, moved in constant time: a linked list with an end of its own."""

    def __init__(self, count: int) -> None:
        self._next = [*range(1, count + 1), 0]
        self._last = [count, *range(count)]

    def move(self, number: int, before: int) -> None:
        behind, ahead = self._next[number], self._last[number]
        self._next[ahead], self._last[behind] = behind, ahead
        ahead = self._last[before]
        self._next[ahead], self._last[number] = number, ahead
        self._next[number], self._last[before] = before, number

    def listed(self) -> list[int]:
        end = len(self._next) - 1
        found: list[int] = []
        at = self._next[end]
        while at != end:
            found.append(at)
            at = self._next[at]
        return found
