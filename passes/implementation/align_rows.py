"""Put elements behind the rows of a product's matrices, so that they begin where a library reads them in large words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.bare_ops import sweep_functions
from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.frozen.sources import Sources, may_move
from fuse_opt.passes.implementation.costs import alone_seconds, pass_seconds
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

_BYTES = 16
"""What a thread of a GPU reads at most at a time: rows begin at multiples of it."""


@dataclass(frozen=True)
class AlignRowsPass(DevicePass, RewritePass):
    """A product of matrices whose rows begin anywhere becomes one of matrices with zeros behind their rows.

    ```mlir
    %y = graph.matmul %x, %w : (tensor<1021x771xbf16>, tensor<771x520xbf16>) -> tensor<1021x520xbf16>
    ```
    becomes
    ```mlir
    %x_1 = graph.pad %x {pads = array<i64: 0, 0, 0, 5>} : (tensor<1021x771xbf16>) -> tensor<1021x776xbf16>
    %w_1 = graph.pad %w {pads = array<i64: 0, 0, 5, 0>} : (tensor<771x520xbf16>) -> tensor<776x520xbf16>
    %y = graph.matmul %x_1, %w_1 : (tensor<1021x776xbf16>, tensor<776x520xbf16>) -> tensor<1021x520xbf16>
    ```
    Only where the product and the copies take less time than the product as it was, as far as implementations say. A copy is
    counted where no kernel makes the operand, or reads the result, that could write or read it so, and none of what follows
    from frozen arguments.

    Requires: nothing; what is of unknown extents stays. Ensures: the same sums, and zeros.
    """

    name = "align-rows"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        machine = self.machine(op)
        if machine.platform == "cpu":
            return
        with choosing(self.name, op) as choices:
            for block in sweep_functions(op):
                function = block.parent_op()
                is_asked = isinstance(function, FuncOp) and frozen_arguments(function)
                sources = Sources(function) if is_asked and isinstance(function, FuncOp) else None
                for inner in list(block.ops):
                    if sources is not None and may_move(inner):
                        sources.follow(inner)
                    if isinstance(inner, OpaqueOp) and not directives(inner):
                        self._align(inner, machine, choices, sources)

    def _align(self, op: OpaqueOp, machine: Device, choices: Choices, sources: Sources | None) -> None:
        builder = GraphBuilder()
        if (result := op.aligned(builder, _BYTES)) is None:
            return
        before = alone_seconds(op, machine)
        products = [inner for inner in builder.ops if isinstance(inner, OpaqueOp)]
        copies = list(_copies(op, builder, products, sources))
        after = sum(alone_seconds(inner, machine) for inner in products)
        after += sum(pass_seconds(values, machine) for values in copies)
        numbers = {"us": round(after * 1e6, 1), "as_it_was_us": round(before * 1e6, 1), "copies": len(copies)}
        wanted = any(choices.told(op)) if choices.replays else after < before
        if not wanted or not choices.take(op, "aligned"):
            remark(self.name, op, "as-it-was", "stays: zeros behind rows would take no less time", numbers=numbers)
            builder.discard()
            return
        remark(self.name, op, "aligned", "is a product of matrices with zeros behind their rows", numbers=numbers)
        builder.replace(op, result)


def _copies(
    op: OpaqueOp, builder: GraphBuilder, products: list[OpaqueOp], sources: Sources | None
) -> Iterator[tuple[SSAValue, SSAValue]]:
    """What copies read and make that no other kernel does on its way."""
    for inner in builder.ops:
        if inner in products:
            continue
        (source,), (made,) = inner.operands, inner.results
        if source.owner in products:
            if not _are_fused({use.operation for use in op.results[0].uses}):
                yield source, made
        elif not _is_made(source) and not (sources is not None and sources.nbytes_of(source)):
            yield source, made


def _are_fused(readers: set[Operation]) -> bool:
    return bool(readers) and all(isinstance(reader, StructuredOp | CompositeOp) for reader in readers)


def _is_made(value: SSAValue) -> bool:
    """Whether a kernel makes the value, and nothing else reads it."""
    maker = value.owner
    return isinstance(maker, StructuredOp | CompositeOp) and bool(maker.operands) and len(set(value.uses)) == 1
