"""Make reads at positions that are data ones that kernels can do where they compute, by an index expression."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import directives, walk_open
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_sized, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.dialects.types.size import Extent
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

_INDEX_BYTES = 8
"""Of an index, at most."""


@dataclass(frozen=True)
class OpenReadsPass(RewritePass):
    """An opaque op that reads at positions that are data becomes a check of these and a read that fusion knows as a view.

    ```mlir
    %rows = graph.take %table, %ids : (tensor<50000x768xf32>, tensor<512xi64>) -> tensor<512x768xf32>
    %y = graph.relu %rows : (tensor<512x768xf32>) -> tensor<512x768xf32>
    ```
    becomes
    ```mlir
    %at = graph.checked_positions %ids {axis = 0 : i64, extent = 50000 : i64, op = "graph.take"} : ...
    %rows = graph.read_at %table, %at_column {axis = 0 : i64} : (tensor<50000x768xf32>, tensor<512x1xi32>) -> ...
    ```
    Only where something computes with what is read, or makes what is read and nothing else of it, as that is not stored then,
    or not made at all; or where a call would read positions again and again that go along axes of their own. The positions are
    to be fewer bytes than that saves.

    Ensures: a program is refused for the same indices as before. Requires: nothing; what is of unknown extents stays, and of
    sizes the typical ones count.
    """

    name = "open-reads"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions_of(op):
            calls = [inner for inner in walk_open(function) if isinstance(inner, OpaqueOp) and not directives(inner)]
            _open_all(self.name, dict.fromkeys(inner for inner in calls if inner.parent_op() is function))


def _open_all(name: str, calls: dict[OpaqueOp, None]) -> None:
    """Opens calls until none is left to be: one that is open is what its neighbours may be opened for."""
    waiting, why = deque(calls), dict[OpaqueOp, tuple[int, int]]()
    while waiting:
        op = waiting.popleft()
        if op not in calls:
            continue
        near = [*_makers(op), *(use.operation for result in op.results for use in result.uses)]
        why.pop(op, None)
        if (stays := _open(name, op)) is None:
            del calls[op]
            waiting.extend(other for other in near if isinstance(other, OpaqueOp))
        elif stays[1]:
            why[op] = stays
    for op, (cost, saved) in why.items():
        message = f"stays a call: its positions are {cost} bytes to store and read, to save {saved}"
        remark(name, op, "positions", message, numbers={"positions": cost, "saved": saved}, flip="fewer positions")


def _open(name: str, op: OpaqueOp) -> tuple[int, int] | None:
    """None where the op is opened; else the bytes that its positions would cost, and those that this would save."""
    if len(op.results) != 1 or not all(map(is_sized, (*op.operands, *op.results))):
        return 0, 0
    builder, saved = GraphBuilder(), 2 * max((_nbytes(value) for value in _unstored(op)), default=0)
    saved += _INDEX_BYTES * estimate(op.repeated_reads())
    if not all(_nbytes(value) for value in (*op.operands, *op.results)) or (read := op.as_reads(builder)) is None:
        return 0, 0
    checked = [inner for inner in builder.ops if isinstance(inner, OpaqueOp)]
    cost = 2 * sum(_nbytes(value) for inner in checked for value in inner.results)
    if saved < 2 * cost:
        builder.discard()
        return cost, saved
    remark(name, op, "opened", f"is read where it is needed, which saves up to {saved} bytes", numbers={"saved": saved})
    builder.replace(op, read)
    return None


def _makers(op: OpaqueOp) -> Iterator[Operation]:
    """What makes an op's operands, or what they are aliases of."""
    for value in op.operands:
        while isinstance(maker := value.owner, StructuredOp) and maker.is_alias():
            value = maker.operands[0]
        if isinstance(maker, Operation):
            yield maker


def _nbytes(value: SSAValue) -> int:
    return estimate(cast(Extent, prod(shape(value)))) * dtype(value).itemsize


def _unstored(op: OpaqueOp) -> Iterator[SSAValue]:
    """What need not be in memory where the op is a part of the kernels around it."""
    if any(isinstance(reader, StructuredOp) for reader in _readers(op.results[0])):
        yield op.results[0]
    if not op.operands:
        return
    source = op.operands[0]
    maker = source.owner
    if isinstance(maker, StructuredOp) and maker.operands and not maker.is_alias() and len(set(source.uses)) == 1:
        yield source


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Who reads a value or an alias of it."""
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses:
            reader = use.operation
            if isinstance(reader, StructuredOp) and reader.is_alias():
                waiting.extend(reader.results)
            else:
                yield reader
