"""ONNX's control flow where it is known when the model is read: a branch is chosen, loops are unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from fuse_opt.frontends.builder import Emitter, extents, rank
from fuse_opt.frontends.onnx.operators.node import Node, Slot

_LONGEST = 1024
"""Rounds that are unrolled."""

Run: TypeAlias = Callable[[Any, Sequence[Slot]], list[Slot]]
"""Builds a graph that is an attribute, on these inputs, in the scope of the node; gives its outputs."""


def branch(n: Node, g: Emitter, run: Run) -> list[Slot]:
    """An If whose condition is known."""
    return run(n.attributes["then_branch" if bool(n.known(0).reshape(())) else "else_branch"], [])


def loop(n: Node, g: Emitter, run: Run) -> list[Slot]:
    """A Loop whose trip count is known, or which ends by a condition that is."""
    body, limit = n.attributes["body"], n.known_integer(0) if n.has(0) else _LONGEST + 1
    going = bool(n.known(1).reshape(())) if n.has(1) else True
    carried = [slot for slot in n.slots[2:] if slot is not None]
    gathered: list[list[Slot]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    round_ = 0
    while going and round_ < limit:
        if round_ == _LONGEST:
            raise n.refuse(f"more than {_LONGEST} rounds are too many to unroll")
        count, on = Slot("round", np.array(round_, np.int64)), Slot("going", np.array(True))
        condition, *results = run(body, [count, on, *carried])
        if condition.array is None:
            raise n.refuse("expected a condition that is known when the model is read, got one that data decides")
        carried, going, round_ = results[: len(carried)], bool(condition.array.reshape(())), round_ + 1
        for row, slot in zip(gathered, results[len(carried) :], strict=True):
            row.append(slot)
    return [*carried, *(_stacked(n, g, row, 0) for row in gathered)]


def scan(n: Node, g: Emitter, run: Run) -> list[Slot]:
    """A Scan, whose length is an extent."""
    if n.opset < 9:
        raise n.refuse(f"expected the form of opset 9 or newer, got that of opset {n.opset}")
    body, count = n.attributes["body"], n.integer("num_scan_inputs")
    slots = [slot for slot in n.slots if slot is not None]
    states, scanned = slots[: len(slots) - count], slots[len(slots) - count :]
    axes, backward = n.integers("scan_input_axes", [0] * count), n.integers("scan_input_directions", [0] * count)
    values = [n.materialize(slot) for slot in scanned]
    lengths = {extents(value)[axis] for value, axis in zip(values, axes, strict=True)}
    if len(lengths) != 1 or max(lengths) > _LONGEST:
        raise n.refuse(f"expected scan inputs of one length of at most {_LONGEST}, got {sorted(lengths)}")
    (length,) = lengths
    depends = frozenset[str]().union(*(slot.depends for slot in scanned))
    gathered: list[list[Slot]] = [[] for _ in range(len(body.output) - len(states))]
    for round_ in range(length):
        elements: list[Slot] = []
        for value, axis, reverse in zip(values, axes, backward, strict=True):
            at = length - 1 - round_ if reverse else round_
            starts, stops = [0] * rank(value), list(extents(value))
            starts[axis], stops[axis] = at, at + 1
            part = g.squeeze(g.slice(value, starts=starts, stops=stops), axes=[axis % rank(value)])
            elements.append(Slot("element", value=part, depends=depends))
        results = run(body, [*states, *elements])
        states = results[: len(states)]
        for row, slot in zip(gathered, results[len(states) :], strict=True):
            row.append(slot)
    out_axes = n.integers("scan_output_axes", [0] * len(gathered))
    flipped = n.integers("scan_output_directions", [0] * len(gathered))
    return [
        *states,
        *(_stacked(n, g, row[:: -1 if f else 1], a) for row, a, f in zip(gathered, out_axes, flipped, strict=True)),
    ]


def _stacked(n: Node, g: Emitter, row: Sequence[Slot], axis: int) -> Slot:
    """The results of all rounds side by side on a new axis."""
    if not row:
        raise n.refuse("no round is run, so that the shape of a gathered result is not known")
    arrays = [slot.array for slot in row]
    if all(array is not None for array in arrays):
        return Slot("gathered", np.stack([array for array in arrays if array is not None], axis))
    values = [n.materialize(slot) for slot in row]
    axis = axis % (rank(values[0]) + 1)
    depends = frozenset[str]().union(*(slot.depends for slot in row))
    joined = g.concat(*(g.expand_dims(value, axes=[axis]) for value in values), axis=axis)
    return Slot("gathered", value=joined, depends=depends)


CONTROL: dict[str, Callable[[Node, Emitter, Run], list[Slot]]] = {"If": branch, "Loop": loop, "Scan": scan}
"""By operator."""
