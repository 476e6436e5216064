"""Put every graph op that is not yet in a kernel into one of its own; views that move nothing stay outside."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import is_creation, sweep_functions
from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import is_static
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Limits
from fuse_opt.passes.fusion.engine.outline import build_kernels
from fuse_opt.passes.fusion.engine.worklist import merge_named_groups
from fuse_opt.passes.rewrite_pass import RewritePass


@dataclass(frozen=True)
class WrapKernelsPass(RewritePass):
    """One kernel for each remaining op.

    ```mlir
    %r = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    ```
    becomes
    ```mlir
    %r = fused.kernel(%x_1 = %x : tensor<8xf32>) -> (tensor<8xf32>) { ... graph.exp ... fused.yield ... }
    ```
    Ops of one `fuse_group` share a kernel. Left outside: views that keep every element in its place (they alias their
    operand), constants whose elements are numbers, and composites, which `decompose` takes apart first. What is made from sizes
    has a kernel where something outside of kernels reads it, such as `func.return`; kernels have copies of it.

    Ensures: every other graph op of a function is inside a `fused.kernel`.
    """

    name = "wrap-kernels"

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for block in sweep_functions(op):
            graph = GroupGraph(block, Limits(max_ops=2**62, max_operands=2**62, max_results=2**62))
            merge_named_groups(graph)
            build_kernels(graph, [group for group in graph.groups() if group.merged or _is_bare(group)])
            for made in [each for each in block.ops if _is_made_from_sizes(each)]:
                _wrap(made)


def _is_made_from_sizes(op: Operation) -> bool:
    """Whether an op that each kernel has a copy of is read outside of kernels, where it is no constant."""
    if not isinstance(op, StructuredOp) or not is_creation(op) or not any(result.uses for result in op.results):
        return False
    return op.body().function != "constant" or not is_static(op.results[0])


def _wrap(op: Operation) -> None:
    (result,), inner = op.results, op.clone()
    yielded = YieldOp.create(operands=inner.results)
    kernel = KernelOp([], [result.type], Region(Block([inner, yielded])), {})
    kernel.location, kernel.results[0].name_hint = op.location, result.name_hint
    Rewriter.replace_op(op, kernel)


def _is_bare(group: Group) -> bool:
    op = group.first
    if isinstance(op, KernelOp | CompositeOp) or not isinstance(op, GraphOp):
        return False
    return not (isinstance(op, StructuredOp) and (op.stored_value() is not None or op.is_alias()))
