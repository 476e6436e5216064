"""Clones of ops in front of those that read them."""

from __future__ import annotations

from collections.abc import Container, Sequence

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.passes.recompute.proposals import Clones


def clone(clones: Clones) -> None:
    """Puts each clone before the first reader that needs it, and has the readers read clones."""
    made: dict[SSAValue, SSAValue] = {}
    ops = {op: place for place, op in enumerate(clones.ops)}
    for reader in clones.readers:
        missing = [op for op in _needed(reader, ops) if op.results[0] not in made]
        for op in sorted(missing, key=ops.__getitem__):
            copy = op.clone(dict(made))
            copy.attributes[RECOMPUTED] = IntegerAttr(clones.time, i64)
            copy.location = op.location
            copy.results[0].name_hint = op.results[0].name_hint
            assert reader.parent is not None
            reader.parent.insert_op_before(copy, reader)
            made[op.results[0]] = copy.results[0]
        reader.operands = [made.get(operand, operand) for operand in reader.operands]


def _needed(reader: Operation, ops: Container[Operation]) -> list[Operation]:
    """Those of the ops that the reader depends on, through no others."""
    found: dict[Operation, None] = {}
    waiting = [reader]
    while waiting:
        for value in waiting.pop().operands:
            maker = value.owner
            if isinstance(maker, Operation) and maker in ops and maker not in found:
                found[maker] = None
                waiting.append(maker)
    return list(found)


def erase_unread(made: Sequence[Clones]) -> None:
    """Erases those ops whose clones all of their readers read now."""
    ops = dict.fromkeys(op for clones in made for op in clones.ops)
    waiting = [op for op in ops if not op.results[0].uses]
    while waiting:
        op = waiting.pop()
        makers = [value.owner for value in op.operands]
        Rewriter.erase_op(op)
        waiting += [m for m in dict.fromkeys(makers) if m in ops and isinstance(m, Operation) and not m.results[0].uses]
