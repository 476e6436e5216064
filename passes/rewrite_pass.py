"""What every pass that changes ops shares: plans do not outlive the program that they were made for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from fuse_opt.dialects.analysis.storage import ARENA, all_functions_of, forget_places
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.stored_values import holds_stored


class RewritePass(ModulePass, ABC):
    """
    A pass that may change which ops there are, their order, and who reads or returns a value.

    Slots, the arena and segments hold for all of a function's ops in their order: where any of that changes, they are
    dropped, and `plan-memory` and `bulk-launches` decide anew. In-place pairs stay: `plan-memory` drops those that do not hold.
    """

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with without_stale_plans(op):
            self.rewrite(ctx, op)

    @abstractmethod
    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        """What `apply` does, but for plans."""


@contextmanager
def without_stale_plans(module: ModuleOp) -> Generator[None]:
    """Drops the plan of each function that is another one after the body."""
    functions = [each for each in all_functions_of(module) if _is_planned(each) and not holds_stored(each)]
    planned = [(function, planned_for(function)) for function in functions]
    yield
    for function, before in planned:
        if planned_for(function) != before:
            forget_places(function)


def planned_for(function: FuncOp) -> list[object]:
    """All of a function that a plan depends on: equal as long as the plan holds."""
    blocks = function.body.blocks
    found: list[object] = [function.arg_attrs, *(value.type for block in blocks for value in block.args)]
    for op in (op for block in blocks for op in block.ops):
        known = isinstance(op, GraphOp | OutlinedOp)
        uses = tuple(op.operands) if known else tuple(value for inner in op.walk() for value in inner.operands)
        workspace = op.workspace if isinstance(op, OutlinedOp) else None
        found.append((op, uses, tuple(value.type for value in op.results), dict(op.attributes), workspace))
        if isinstance(op, OutlinedOp) and op.inplace is not None:  # which elements are read when decides about pairs
            found.extend((inner, tuple(inner.operands), dict(inner.properties)) for inner in op.block.ops)
    return found


def _is_planned(function: FuncOp) -> bool:
    if ARENA in function.attributes:
        return True
    ops = function.body.block.ops
    if not any(issubclass(kind, OutlinedOp) for kind in set(map(type, ops))):
        return False  # few types, which are asked faster than many ops
    return any(map(_is_placed, ops))


def _is_placed(op: Operation) -> bool:
    return isinstance(op, OutlinedOp) and (
        op.slots is not None or op.workspace_slot is not None or op.segment is not None
    )
