"""Extrema that need not look for NaN, as what is stored is the same whatever they come to where one of their elements is NaN.

A softmax subtracts the greatest element of a row from each and divides by a sum over the row: where an element is NaN, so are
the sum and all results. Whether the maximum is NaN, too, makes no difference, and ignoring NaN takes a third of the operations.

For one extremum at a time, and the case that one of its elements is NaN, each scalar is looked at with the extremum once
as the IR says and once as any number: see `Fate`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from functools import cache

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.scalar import PRIMITIVES, Scalar, topological

MOST = 8
"""Extrema of a kernel that are looked at: each takes time that grows with the kernel."""


class Fate(Enum):
    """What becomes of a scalar when the NaN among an extremum's elements is ignored."""

    SAME = auto()
    NAN = auto()
    """The same, namely NaN."""
    NAN_THERE = auto()
    """NaN as before at the places where the extremum's element is NaN, but another number elsewhere."""
    OTHER = auto()


def extrema_without_nan(loop_body: LoopBody) -> frozenset[ScalarNode]:
    """The maxima and minima of the pass that may ignore elements that are NaN."""
    found: set[ScalarNode] = set()
    candidates = [node for node in loop_body.nodes if is_extremum(node)]
    for node in candidates[:MOST]:
        fates = _fates(loop_body, node, found)
        if all(fates[store.node] in (Fate.SAME, Fate.NAN) for store in loop_body.stores):
            found.add(node)
    return frozenset(found)


def is_extremum(node: ScalarNode) -> bool:
    """Whether it is a maximum or minimum of floats that are given as they are."""
    op = node.op
    return (
        op is not None and op.COMBINE in ("max", "min") and op.body().dtype.is_float and op.body().function == "operand"
    )


def _fates(loop_body: LoopBody, extremum: ScalarNode, ignoring: Collection[ScalarNode]) -> Mapping[ScalarNode, Fate]:
    """The fates of all nodes; those in `ignoring` are extrema that take no note of NaN already."""
    assert extremum.op is not None
    element = extremum.operands[int(extremum.op.body().value)]
    fates: dict[ScalarNode, Fate] = {}
    for node in loop_body.nodes:
        if node is element:
            fates[node] = Fate.NAN_THERE
        elif node is extremum:
            fates[node] = Fate.OTHER
        else:
            fates[node] = _fate(node, extremum, node in ignoring, fates)
    return fates


def _fate(node: ScalarNode, extremum: ScalarNode, ignores: bool, fates: Mapping[ScalarNode, Fate]) -> Fate:
    op, given = node.op, [fates[operand] for operand in node.operands]
    if op is None:  # it may be read at places that depend on the extremum
        return Fate.SAME if all(fate is Fate.SAME for fate in given) else Fate.OTHER
    passed = [given[number] for number in _passed_on(op) if not ignores]
    reduces = bool(op.COMBINE)
    if Fate.NAN in passed:
        return Fate.NAN
    if reduces and Fate.NAN_THERE in passed and node.loop == extremum.loop:
        return Fate.NAN
    if all(fate in (Fate.SAME, Fate.NAN) for fate in given):
        return Fate.SAME
    return Fate.NAN_THERE if not reduces and Fate.NAN_THERE in passed else Fate.OTHER


def _passed_on(op: StructuredOp) -> frozenset[int]:
    """The operands whose NaN makes the result NaN."""
    return _of_body(op.body()) if not op.COMBINE or PRIMITIVES[op.COMBINE].spreads_nan else frozenset()


@cache
def _of_body(body: Scalar) -> frozenset[int]:
    found: dict[Scalar, frozenset[int]] = {}
    for node in topological(body):
        found[node] = _of_node(node, [found[arg] for arg in node.args])
    return found[body]


def _of_node(node: Scalar, args: list[frozenset[int]]) -> frozenset[int]:
    if not node.dtype.is_float:
        return frozenset()
    if node.function == "operand":
        return frozenset((int(node.value),))
    if node.function == "select":
        return args[1] & args[2]
    converted = node.function == "cast" and node.args[0].dtype.is_float
    if converted or (node.args and PRIMITIVES[node.function].spreads_nan):
        return frozenset[int]().union(*args)
    return frozenset()
