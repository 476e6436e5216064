"""Scores of attention as a running softmax by powers of two has them: without their scale, and without a mask where all is seen.

A maximum of scores is that of the products where scores are these times a positive number and -inf elsewhere, so the scale joins
the factor that makes powers of two of exponentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from fuse_opt.dialects.analysis.contractions.attention import Attention
from fuse_opt.dialects.analysis.contractions.online_softmax import OnlineSoftmax, constant_of, is_hidden, seen
from fuse_opt.dialects.analysis.loop_body import ScalarNode


@dataclass(frozen=True, slots=True)
class Scores:
    """How scores are made from products."""

    products: tuple[ScalarNode, ...]
    """The nodes that are what the first product gives, up to `scale`."""
    scale: float
    """What scores, and their maximum, are to be multiplied with: 1 where the ops do it."""
    unmasked: ScalarNode
    """The score of a key that a row sees, as `Attention.seen` counts them; the score itself where that says nothing."""
    counts: bool
    """Whether the mask is no more than that count."""


def unscaled_scores(online: OnlineSoftmax) -> Scores:
    """The parts of scores that the ops scale."""
    of = online.of
    counts = of.seen is not None and online.hides and _is_comparison(online.score)
    unmasked = _kept(online.score) if counts else online.score
    return Scores(tuple(load for load in of.weights.loads() if load.value is of.first_raw), 1.0, unmasked, counts)


def scores_of(online: OnlineSoftmax) -> Scores:
    """The parts of scores, without their scale where it may join that of the exponents."""
    found = unscaled_scores(online)
    scaled = _scaled(online.of, online, found.products)
    return found if scaled is None else replace(found, products=(scaled[0],), scale=scaled[1])


def _kept(score: ScalarNode) -> ScalarNode:
    """What a choice gives where its condition holds."""
    assert score.op is not None
    return seen(score.operands[int(score.op.body().args[1].value)])


def _is_comparison(score: ScalarNode) -> bool:
    """Whether the condition of a choice is one comparison."""
    assert score.op is not None
    condition = seen(score.operands[int(score.op.body().args[0].value)])
    if condition.op is None or condition.op.COMBINE:
        return False
    return condition.op.body().function in ("ge", "gt", "le", "lt")


def _scaled(of: Attention, online: OnlineSoftmax, raw: Sequence[ScalarNode]) -> tuple[ScalarNode, float] | None:
    """The product times a positive constant, and that, where scores are no more than it behind masks of -inf."""
    chain: list[ScalarNode] = [online.score]
    while is_hidden(chain[-1]):
        chain.append(_kept(chain[-1]))
    last = chain[-1]
    if last.op is None or last.op.COMBINE or last.op.body().function != "mul":
        return None
    parts = [seen(operand) for operand in last.operands]
    numbers = [value for part in parts if (value := constant_of(part)) is not None]
    if len(parts) != 2 or len(numbers) != 1 or not 0 < numbers[0] < inf or not any(part in raw for part in parts):
        return None
    users = {id(node): _users(of, node) for node in (*chain, *raw)}
    if any(users[id(node)] != [last] for node in raw):
        return None
    if any(users[id(node)] != [user] for user, node in pairwise(chain)):
        return None
    if any(user not in (online.largest, _difference(online)) for user in users[id(online.score)]):
        return None
    return last, numbers[0]


def _difference(online: OnlineSoftmax) -> ScalarNode:
    return seen(online.power.operands[0])


def _users(of: Attention, node: ScalarNode) -> list[ScalarNode]:
    """The nodes that compute with it, seen through views."""
    found: list[ScalarNode] = []
    for other in of.weights.nodes:
        is_view = other.op is not None and not other.op.COMBINE and other.op.body().function == "operand"
        if not is_view and any(seen(operand) is node for operand in other.operands):
            found.append(other)
    return found
