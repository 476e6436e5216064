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
        # The views that `operands` and `successors` are cost more than all else here; a change gives an op another tuple.
        operands, successors = op._operands, op._successors  # pyright: ignore[reportPrivateUsage]
        found.append((op, op.parent, operands, types, successors, {**op.properties}, {**op.attributes}))
        for region in op.regions:
            found.append(region)
            for block in region.blocks:
                found.append((block, block.parent, [argument.type for argument in block.args]))
                inner = block.first_op
                while inner is not None:
                    pending.append(inner)
                    inner = inner.next_op
    return found
