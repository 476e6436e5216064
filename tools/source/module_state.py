"""What verifiers look at in a module, to see whether a pass has changed any of it: a fifth of the time that verifying takes."""

from __future__ import annotations

from xdsl.ir import Operation


def state_of(root: Operation) -> list[object]:
    """
    Of all ops and blocks, in their order: where they stand, what they read, their types, properties and attributes. Two
    states are equal where nothing that a verifier may look at has changed between them.
    """
    found: list[object] = []
    pending = [root]
    while pending:
        op = pending.pop()
        types = [result.type for result in op.results]
        found.append(
            (op, op.parent, tuple(op.operands), types, tuple(op.successors), {**op.properties}, {**op.attributes})
        )
        for region in op.regions:
            found.append(region)
            for block in region.blocks:
                found.append((block, block.parent, [argument.type for argument in block.args]))
                pending += block.ops
    return found
