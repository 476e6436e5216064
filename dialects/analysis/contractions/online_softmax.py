"""Attention whose weights are a softmax: what is needed to go over the keys once, tile by tile, with a running maximum.

The weights of a row are exp(score - shift) times factors. As their sum, and the sum of values weighted by them, only change by a
factor where the shift does, both may be kept for the keys so far (Milakov & Gimelshein 2018; Dao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.contractions.attention import OWN, Attention, trace_attention
from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Unschedulable
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent, Size

SHARED_BYTES = 48 << 10
"""Of a block's memory on any GPU, without asking."""
ROW_THREADS = 8
"""Threads that share a row of queries, its keys and its sums."""
ROWS_AT_ONCE = 16
"""Rows of queries of which each thread has one, and as many further ones as blocks are higher."""
MOST_SUMS = 64
"""Sums of a thread, which are registers."""
_BLOCKS = ((64, 32), (32, 32), (16, 32), (16, 16))


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Queries and keys of a block of threads at a time."""

    rows: int
    keys: int


@dataclass(frozen=True, slots=True)
class Factor:
    """What a row's weights are multiplied with, or divided by, as a whole."""

    node: ScalarNode
    divides: bool


@dataclass(frozen=True, slots=True)
class OnlineSoftmax:
    """The parts of attention by a softmax."""

    of: Attention
    score: ScalarNode
    """Of a key, scaled and masked."""
    largest: ScalarNode
    """The maximum of the scores of a row."""
    shift: ScalarNode
    """What is subtracted from the scores: `largest`, or 0 in its place where that is -inf."""
    power: ScalarNode
    """exp(score - shift)."""
    total: ScalarNode
    """The sum of the powers of a row."""
    weight: ScalarNode
    """The power times the factors of its row, and times what differs from key to key, such as dropout."""
    factors: tuple[Factor, ...]
    is_safe: bool
    """Whether rows of -inf give what the factors say; else NaN, as in -inf minus -inf."""
    hides: bool
    """Whether what rows do not see, by `of.seen`, has scores of -inf: weights of 0."""
    block: AttentionBlock


def trace_online_softmax(results: Sequence[SSAValue], members: Collection[Operation]) -> OnlineSoftmax:
    """What a group that gives `results` computes. Raises Unschedulable: why one pass over the keys does not."""
    return online_softmax(trace_attention(results, members))


def online_softmax(of: Attention) -> OnlineSoftmax:
    """The parts of attention. Raises Unschedulable where its weights are no softmax, or its rows are too long."""
    if any(access.panels is not None for access in (of.queries, of.keys, of.values)):
        raise Unschedulable("layout", "an operand lies in panels")
    if of.reads_in_place:
        raise Unschedulable("extents", f"there are {of.first.rows} queries, fewer than a block has rows")
    found = _Parts(of.weights).find()
    size = dtype(of.first_raw).itemsize
    block = _block(of.first.depth, of.second.columns, of.first.rows, size)
    if block is None:
        message = f"keys of {of.first.depth} and values of {of.second.columns} elements do not lie in a block's memory"
        raise Unschedulable("extents", message)
    hides = of.hides_alike and is_hidden(found.score)
    return OnlineSoftmax(
        of, found.score, found.largest, found.shift, found.power, found.total, found.weight, found.factors,
        found.is_safe, hides, block,
    )  # fmt: skip


def _block(depth: Extent, width: Extent, rows: Extent, itemsize: int) -> AttentionBlock | None:
    """The largest block whose tiles lie in shared memory, and whose sums in registers; no higher than there are rows."""
    if isinstance(depth, Size) or isinstance(width, Size):
        return None
    for height, keys in _BLOCKS:
        padded = depth | 1
        size = height * padded + keys * max(padded, width) + height * (keys + 1)
        sums = height // ROWS_AT_ONCE * -(-width // ROW_THREADS)
        smallest = height == ROWS_AT_ONCE or estimate(rows) > height // 2
        if smallest and size * itemsize <= SHARED_BYTES and sums * (itemsize // 4) <= MOST_SUMS:
            return AttentionBlock(height, keys)
    return None


def seen(node: ScalarNode) -> ScalarNode:
    """The node that views lead to."""
    while node.op is not None and not node.op.COMBINE and node.op.body().function == "operand":
        node = node.operands[int(node.op.body().value)]
    return node


class _Parts:
    """The nodes of a softmax, from the weight that is stored back to the scores."""

    def __init__(self, weights: LoopBody) -> None:
        self.columns = {dim for expression in weights.columns for dim in expression.dims()}
        reductions = [node for node in weights.nodes if node.op is not None and node.op.COMBINE]
        kinds = {node.op.COMBINE: node for node in reductions if node.op is not None}
        if len(weights.stores) != 1 or weights.stores[0].result != OWN:
            raise _no_softmax("the weights are results, too")
        if len(reductions) != 2 or set(kinds) != {"max", "add"}:
            raise _no_softmax("it has not one maximum and one sum of each row")
        self.weight = weights.stores[0].node
        self.largest, self.total = kinds["max"], kinds["add"]
        self.nodes = weights.nodes
        self.needing = {node: _needing(weights.nodes, node) for node in (self.largest, self.total)}

    def find(self) -> _Parts:
        self.power = seen(self.total.operands[0])
        self.score = seen(self.largest.operands[0])
        difference = self._inside("exp", self.power)
        body = _body(difference)
        if body is None or body.function != "sub" or [part.function for part in body.args] != ["operand"] * 2:
            raise _no_softmax("what is summed up is no exponential of a difference")
        left, self.shift = (difference.operands[int(part.value)] for part in body.args)
        if seen(left) is not self.score:
            raise _no_softmax("the maximum is not that of the scores")
        self.is_safe = self._is_safe(seen(self.shift))
        self.factors = tuple(self._factors())
        return self

    def _inside(self, function: str, node: ScalarNode) -> ScalarNode:
        """The operand of a node that computes a function of it."""
        body = _body(node)
        if body is None or body.function != function or body.args[0].function != "operand":
            raise _no_softmax("what is summed up is no exponential")
        return seen(node.operands[int(body.args[0].value)])

    def _is_safe(self, shift: ScalarNode) -> bool:
        """Whether the shift is 0 where the maximum is -inf; refuses others than the maximum."""
        if shift is self.largest:
            return False
        body = _body(shift)
        if body is not None and body.function == "select" and all(part.function == "operand" for part in body.args):
            asked, zero, largest = (seen(shift.operands[int(part.value)]) for part in body.args)
            compared = _body(asked)
            sides = [] if compared is None or compared.function != "eq" else [
                seen(asked.operands[int(part.value)]) for part in compared.args if part.function == "operand"
            ]  # fmt: skip
            constants = [constant_of(side) for side in sides]
            if constant_of(zero) == 0 and largest is self.largest and self.largest in sides and -inf in constants:
                return True
        raise _no_softmax("what is subtracted from scores is not their maximum")

    def _factors(self) -> list[Factor]:
        """The factors of a row, from the weight to the power; refuses what is not proportional to the power."""
        found: list[Factor] = []
        above = _needing(self.nodes, self.power, through_reductions=False)
        node = self.weight
        while node is not self.power:
            body = _body(node)
            if body is None or any(part.function != "operand" for part in body.args):
                raise _no_softmax("weights are not proportional to the exponentials")
            if body.function == "operand":
                node = node.operands[int(body.value)]
                continue
            parts = [node.operands[int(part.value)] for part in body.args]
            node = self._next(body.function, parts, above, found)
        return found

    def _next(
        self, function: str, parts: Sequence[ScalarNode], above: set[ScalarNode], found: list[Factor]
    ) -> ScalarNode:
        inner = [part for part in parts if part in above]
        others = [part for part in parts if part not in above]
        proportional = (
            (function == "mul" and len(parts) == 2)
            or (function == "div" and parts[0] in above)
            or (function == "select" and parts[1] in above and constant_of(seen(parts[2])) == 0)
        )
        if len(inner) != 1 or not proportional:
            raise _no_softmax("weights are not proportional to the exponentials")
        for other in others:
            varies = not self.columns.isdisjoint(other.dims)
            if any(other in needing for needing in self.needing.values()) and (varies or function == "select"):
                raise _no_softmax("what weights are multiplied with depends on the whole row, and on the key")
            if not varies and function != "select":
                found.append(Factor(other, function == "div"))
        return inner[0]


def _needing(nodes: Sequence[ScalarNode], start: ScalarNode, through_reductions: bool = True) -> set[ScalarNode]:
    """The node and all that are made from it; in the order of tracing what a node reads comes before it."""
    found = {start}
    for node in nodes:
        is_reduction = node.op is not None and bool(node.op.COMBINE)
        if not found.isdisjoint(node.operands) and (through_reductions or not is_reduction):
            found.add(node)
    return found


def _body(node: ScalarNode) -> Scalar | None:
    return None if node.op is None or node.op.COMBINE else node.op.body()


def constant_of(node: ScalarNode) -> float | None:
    """The number that a node is; constants join a kernel when it is built, until then they are read."""
    maker = node.value.owner
    is_read = node.op is None and isinstance(maker, StructuredOp) and maker.stored_value() is None
    body = maker.body() if is_read and isinstance(maker, StructuredOp) else _body(node)
    return float(body.value) if body is not None and body.function == "constant" else None


def is_hidden(score: ScalarNode) -> bool:
    """Whether a score is a choice whose other side is -inf."""
    body = _body(score)
    if body is None or body.function != "select" or any(part.function != "operand" for part in body.args):
        return False
    return constant_of(seen(score.operands[int(body.args[2].value)])) == -inf


def _no_softmax(why: str) -> Unschedulable:
    return Unschedulable("no-softmax", f"its weights are no softmax that goes key by key: {why}")
