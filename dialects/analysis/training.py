"""Whether a module is the forward part of training: what runs it has to be what gradients are worked out of."""

from __future__ import annotations

from xdsl.ir import Operation

TRAINING = "graph.training"
"""The attribute of a module whose results have gradients, which somebody else computes, by the meaning of its ops."""


def is_training(op: Operation) -> bool:
    """What the module that holds the op says."""
    while (parent := op.parent_op()) is not None:
        op = parent
    return TRAINING in op.attributes
