"""The launch that transforms the filters of a convolution by tiles of 2x2 positions, where that was not done once."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.convolutions import Convolution
from fuse_opt.dialects.interfaces.transformed_weight import PRODUCTS
from fuse_opt.lowering.cpu.convolution.winograd.tile_sums import Numbers, over_rows_and_columns
from fuse_opt.lowering.cpu.kernel import KernelLoops, launch_of, launch_root
from fuse_opt.lowering.cpu.matmul.copies import count_loop, parallel_loop, plus, times
from fuse_opt.lowering.kernel.buffers import WORK_PER_CHUNK, KernelBuffers, Scratch
from fuse_opt.lowering.kernel.loop_splitting import task_parts
from fuse_opt.lowering.kernel.scope import Scope

_WORK = 64
"""Simple operations of a channel of a filter."""


def transformed_filters(
    convolution: Convolution, panel: int, memory: KernelBuffers, scratch: Sequence[Scratch]
) -> KernelLoops:
    """Fills the first scratch memory, `[panels][16][channels][panel]`; a task is a channel of a panel."""
    root, (target, *_) = launch_root(memory, scratch)
    of, weight = convolution.contraction, root.block.args[memory.sources[convolution.weight]]
    constant, zero = root.index_constant, root.constant(0.0, convolution.sums)
    counts = (-(-of.filters // panel), of.channels)
    half = root.constant(0.5, convolution.sums)

    def build(task: Scope, number: SSAValue) -> None:
        some, channel = task_parts(task, root, number, counts)
        first = times(task, some, panel)
        count = task.add(arith.MinSIOp(task.add(arith.SubiOp(constant(of.filters), first)), constant(panel)))
        source = plus(task, times(task, first, of.filter_step), times(task, channel, of.channel_step))
        place = plus(task, times(task, some, PRODUCTS * of.channels * panel), times(task, channel, panel))
        to = [plus(task, place, constant(n * of.channels * panel)) for n in range(PRODUCTS)]

        def store(inner: Scope, values: Numbers, filter: SSAValue) -> None:
            for value, at in zip(values, to, strict=True):
                inner.block.add_op(memref.StoreOp.get(value, target, [plus(inner, at, filter)]))

        def one(inner: Scope, filter: SSAValue) -> None:
            at = plus(inner, source, times(inner, filter, of.filter_step))
            taps = [inner.add(memref.LoadOp.get(weight, [plus(inner, at, constant(n))])) for n in range(of.taps)]
            store(inner, over_rows_and_columns(taps, of.window[2], lambda g: _filter(inner, g, half)), filter)

        parallel_loop(task, "filter", (constant(0), count), one)
        parallel_loop(task, "filter", (count, constant(panel)), lambda s, f: store(s, [zero] * PRODUCTS, f))

    count_loop(root, "task", (root.block.args[-2], root.block.args[-1]), build)
    return launch_of(root, memory, scratch, counts[0] * counts[1], -(-WORK_PER_CHUNK // (_WORK * panel)))


def _filter(scope: Scope, g: Numbers, half: SSAValue) -> Numbers:
    """G times three numbers."""
    outer = scope.add(arith.AddfOp(g[0], g[2]))
    both = scope.add(arith.AddfOp(outer, g[1])), scope.add(arith.SubfOp(outer, g[1]))
    return [g[0], *(scope.add(arith.MulfOp(each, half)) for each in both), g[2]]
