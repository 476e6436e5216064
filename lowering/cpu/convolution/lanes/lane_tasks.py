"""What tasks of depthwise convolutions whose vectors are of channels share: weights that lie tap by tap, turned once."""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.lowering.cpu.matmul.copies import Bounds, Matrix, copy_matrix, times
from fuse_opt.lowering.cpu.matmul.row_tiles import either
from fuse_opt.lowering.kernel.buffers import KernelBuffers
from fuse_opt.lowering.kernel.scope import Scope


class LaneTasks:
    """Tasks of `width` channels each: first those of the first channels."""

    counts: tuple[int, ...]
    """How many tasks there are, by what they are of, channels first."""
    turned: SSAValue
    """Memory for the weights of a task's channels, tap by tap."""

    def __init__(self, convolution: Convolution, memory: KernelBuffers, root: Scope, width: int) -> None:
        self.of, self.root, self.element, self.width = convolution.contraction, root, convolution.sums, width
        self.x, self.weight = (root.block.args[memory.sources[v]] for v in (convolution.x, convolution.weight))

    def stack(self, name: str, rows: int) -> SSAValue:
        """Memory of the function's own, for so many rows of the channels of a task."""
        memory = self.root.add(memref.AllocaOp.get(self.element.attribute, 64, [rows * self.width]))
        memory.name_hint = name
        return memory

    def turn_weights(self, task: Scope, number: SSAValue, panel: SSAValue, channels: Bounds) -> None:
        """Has the weights of a tap side by side: the first task of its channels here, others find them."""
        either(task, self._is_new(task, number, panel), lambda inner: self._turn(inner, channels))

    def _is_new(self, task: Scope, number: SSAValue, panel: SSAValue) -> SSAValue | bool:
        rest = prod(self.counts[1:])
        if rest == 1:
            return True
        begins = task.add(arith.CmpiOp(number, self.root.block.args[-2], "eq"))
        first = task.add(arith.CmpiOp(number, times(task, panel, rest), "eq"))
        return task.add(arith.OrIOp(begins, first))

    def _turn(self, scope: Scope, channels: Bounds) -> None:
        of, constant = self.of, self.root.index_constant
        source = Matrix(self.weight, times(scope, channels[0], of.group_step), 1, of.group_step)
        target = Matrix(self.turned, constant(0), self.width)
        count = scope.add(arith.SubiOp(channels[1], channels[0]))
        copy_matrix(scope, self.element, source, target, constant(of.taps), count)
