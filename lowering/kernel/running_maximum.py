"""Sums of exp(x - m), m the maximum of x, made in the same parts as the maximum itself: one way through memory for both.

A part's sum is about the part's own maximum; what another maximum makes of it is a factor, exp(old - new), of at most one
(Milakov and Gimelshein 2018: online normalizer calculation for softmax). Each factor adds the error of an exponential.

A sum is one at least, and has a term exp(0): what an approximation loses of small terms, or relative to them, is little of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import BF16, F16, F32, F64
from fuse_opt.lowering.kernel.element_emitter import Stage
from fuse_opt.lowering.kernel.moments import is_operand_reduced, operands_of, viewed

Running = Mapping[ScalarNode, ScalarNode]
"""By sum: the maximum that is taken from its exponents."""


def find_running(stages: Sequence[Stage]) -> Running:
    """Those of two stages of which the second only sums exponentials below maxima of the first; else none."""
    if len(stages) != 2 or stages[1].stores or stages[0].stores or stages[0].dims != stages[1].dims:
        return {}
    largest, sums = stages[0].reductions, stages[1].reductions
    found = {node: below for node in sums if (below := _maximum_below(node, largest)) is not None}
    return found if len(found) == len(sums) and set(found.values()) == set(largest) else {}


def _maximum_below(node: ScalarNode, largest: Sequence[ScalarNode]) -> ScalarNode | None:
    """The maximum m of x where the node sums exp(x - m)."""
    if not is_operand_reduced(node, "add") or dtype(node.value) not in (F32, F64):
        return None
    powers = operands_of(viewed(node.operands[0]), "exp")
    difference = None if powers is None else operands_of(powers[0], "sub")
    if difference is None:
        return None
    x, below = difference
    if below in largest and is_operand_reduced(below, "max") and viewed(below.operands[0]) is x:
        return below
    return None


def only_scales(loop_body: LoopBody, node: ScalarNode) -> bool:
    """Whether a value is a factor or a divisor of what is rounded to 16 bits then, and nothing else: all have its error."""
    users: dict[ScalarNode, list[ScalarNode]] = {}
    for user in loop_body.nodes:
        for operand in user.operands:
            users.setdefault(operand, []).append(user)
    stored = {store.node for store in loop_body.stores}
    waiting, seen = [node], {node}
    while waiting:
        each = waiting.pop()
        if each in stored:
            return False
        for user in users.get(each, []):
            assert user.op is not None
            is_factor = not user.op.COMBINE and user.op.body().function in ("mul", "div", "cast", "operand")
            if not is_factor:
                return False
            if user not in seen and dtype(user.value) not in (F16, BF16):
                seen.add(user)
                waiting.append(user)
    return True
