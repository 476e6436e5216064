"""The factor that makes weights of a row's exponentials, 1 over their sum, behind the product with the values.

A row of the result then is multiplied in place of a row of weights, which has more elements, and exponentials are stored once
(the delayed division of online softmax, Milakov and Gimelshein 2018, as in FlashAttention-2, Dao 2023). Sums of values that are
not divided yet are at most so many times the largest of them as there are keys: where that may overflow, weights are divided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.types.dtypes import DType
from fuse_opt.lowering.kernel.range_analysis import bounds_of

FACTOR = -2
"""The number, among stores of the pass over rows of scores, of the factor of a row."""
MODEST = 4.0
"""What neither exponentials nor factors exceed, as far as the analysis of their bounds can tell."""


@dataclass(frozen=True, slots=True)
class LateFactor:
    """A pass that leaves `part` as weights, none of them negative, and stores the factor of a row for later."""

    part: ScalarNode
    weights: LoopBody


def late_factor(weights: LoopBody) -> LateFactor | None:
    """
    The pass as one whose factor comes later. None where its weights are no product of a number that is neither negative nor large
    and a factor of the row, made of these numbers, that is so, too; or where the pass gives other rows of elements.
    """
    own, *others = weights.stores
    if own.node.op is None or not all(store.per_row for store in others):
        return None
    body, columns = own.node.op.body(), {dim for place in weights.columns for dim in place.dims()}
    if body.function != "mul" or any(arg.function != "operand" for arg in body.args):
        return None
    for first, second in (body.args, body.args[::-1]):
        part, factor = (own.node.operands[int(arg.value)] for arg in (first, second))
        of_row = part.dims & columns and not factor.dims & columns
        bounds = [bounds_of(term, own.node.operands) for term in (first, second)]
        if of_row and all(bound.low >= 0 and bound.high <= MODEST for bound in bounds) and part in _made_of(factor):
            stores = replace(own, result=FACTOR, node=factor, per_row=True), *others
            return LateFactor(part, replace(weights, stores=stores))
    return None


def largest_value(element: DType, keys: int) -> float:
    """What values may not exceed for no sum of so many of them to overflow before the factor."""
    return float(np.finfo(element.numpy_name).max) / (keys * MODEST**2)


def _made_of(node: ScalarNode) -> Iterator[ScalarNode]:
    """All that a scalar is made of, the nearest first."""
    stack, seen = [node], {node}
    while stack:
        stack += (fresh := [other for other in stack.pop().operands if other not in seen])
        seen.update(fresh)
        yield from fresh
