"""Lower tensor functions of fused kernels to GPU programs: kernels, an arena, launches in bulks and library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    ModuleOp,
    NoneType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    UnrealizedConversionCastOp,
    i32,
    i64,
)  # fmt: skip
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from fuse_opt.dialects import gpu
from fuse_opt.dialects.analysis.contractions.attention import ATTENTION, attention_of
from fuse_opt.dialects.analysis.contractions.online_softmax import online_softmax
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable
from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.gpu.kernels import ALIGNED, UNALIGNED, UNALIGNED_SIZES
from fuse_opt.dialects.types.extents import exact_quotient
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.dialects.types.symbolic_shape import SizeAttr
from fuse_opt.lowering.convert.functions import ConvertedKernel, ModuleConverter, convert_programs
from fuse_opt.lowering.convert.memory import put_first
from fuse_opt.lowering.gpu.attention.kernel import build_attention_kernel
from fuse_opt.lowering.gpu.kernel import GpuKernel, build_gpu_kernels
from fuse_opt.lowering.kernel.buffers import Parameter
from fuse_opt.lowering.kernel.naming import kernel_comment, kernel_name
from fuse_opt.lowering.program import VECTOR_BYTES


@dataclass(frozen=True)
class ConvertFusedToGpuPass(ModulePass):
    """A function on tensors becomes a program on buffers that launches a GPU kernel for each `fused.kernel`.

    ```mlir
    func.func @main(%x: tensor<512xf32>) -> tensor<512xf32> {
      %r = fused.kernel(%a = %x : tensor<512xf32>) -> (tensor<512xf32>) { ... graph.exp ... }
      func.return %r : tensor<512xf32>
    }
    ```
    becomes
    ```mlir
    gpu.module @kernels {
      gpu.func @kernel_exp(%a: memref<512xf32>, %r: memref<512xf32>) kernel known_block_size = (256, 1, 1) { ... }
    }
    func.func @main(%x: memref<512xf32>, %r: memref<512xf32>) {
      gpu.bulk 0 {
        gpu.launch_func @kernels::@kernel_exp blocks (2, 1, 1) threads (256, 1, 1) args(%x, %r)
      }
      func.return
    }
    ```
    In pointwise kernels a thread takes an element, or a vector of them where there are many; in row kernels a warp or a
    block takes a row, several blocks where rows are few, a block several rows where neighbours belong to different ones;
    tiles are transposed in shared memory; the parts of a pack have ranges of blocks. `fused.schedule` of a `gpu.func` says
    what was chosen, the entry `gpu` of a kernel's schedule changes it. Results, library calls and missing decisions are as in
    `convert-fused-to-loops`; the arena and what has no slot in it lie at multiples of 256 bytes.

    A kernel that moves vectors takes buffers that begin at multiples of 16 bytes. A launch on arguments and results, of
    which the program does not know where they begin, says which must (`fused.aligned`) and what to launch where one of
    them does not (`fused.unaligned`), with that kernel's own grid and block.

    Requires: static shapes; every graph op but stored constants and views that move nothing is in a kernel.
    Ensures: no tensors but in the functions of kernels that only the reference can run.
    """

    name = "convert-fused-to-gpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        convert_programs(op, _GpuConverter)

    def traced(self, op: ModuleOp) -> list[ConvertedKernel]:
        """The same with each kernel in a bulk of its own; gives what became of each, in order."""
        found: list[ConvertedKernel] = []
        convert_programs(op, _GpuConverter, found)
        return found


class _GpuConverter(ModuleConverter[list[GpuKernel]]):
    """Kernels as functions of one `gpu.module`, which is made with the first of them."""

    ALIGNMENT: ClassVar[int] = 256

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._container: gpu.ModuleOp | None = None
        self._helpers: set[str] = set()
        self._places: frozenset[Size] = frozenset()
        """Sizes where places of the arena begin, as vectors may."""

    def convert(self, function: func.FuncOp) -> None:
        orders = PlaceOrders.of(function)
        is_aligned = orders is not None and orders.alignment % VECTOR_BYTES == 0
        self._places = frozenset(orders.symbols()) if orders is not None and is_aligned else frozenset()
        super().convert(function)

    def generate(
        self, kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[int], before: func.FuncOp
    ) -> list[GpuKernel]:
        container = self._kernels(before)

        def name() -> str:
            found = self.unique(kernel_name(kernel))
            self.symbols[found] = container
            return found

        if passes:
            generated = build_gpu_kernels(kernel, passes, memory, name, kernel_comment(kernel))
        else:
            generated = build_attention_kernel(kernel, memory, name, kernel_comment(kernel))
        for each in generated:
            each.function.location = kernel.location
            self._place(each, container)
            if each.unaligned is not None:
                each.unaligned.function.location = kernel.location
        return generated

    def generates_product(self, kernel: KernelOp) -> bool:
        if kernel.schedule_kind() != ATTENTION:
            return False
        try:
            online_softmax(attention_of(kernel))
        except Unschedulable:
            return False
        return True

    def _place(self, generated: GpuKernel, container: gpu.ModuleOp) -> None:
        self.symbols[generated.function.sym_name.data] = generated.function
        container.body.block.add_op(generated.function)
        for helper, (inputs, result) in generated.helpers.items():
            if helper not in self._helpers:
                self._helpers.add(helper)
                results = [] if isinstance(result, NoneType) else [result]
                put_first(container.body.block, func.FuncOp.external(helper, list(inputs), results))

    def parameters(self, generated: list[GpuKernel]) -> Sequence[Parameter]:
        return generated[0].parameters

    def launch(
        self, generated: list[GpuKernel], buffers: Sequence[SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Operation:
        return self._launch_of(generated[0], buffers, number)

    def launches(
        self,
        generated: list[GpuKernel],
        buffer: Callable[[Parameter], SSAValue],
        number: Callable[[Extent], SSAValue],
    ) -> Sequence[Operation]:
        return [self._launch_of(each, [buffer(p) for p in each.parameters], number) for each in generated]

    def _launch_of(
        self, generated: GpuKernel, buffers: Sequence[SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Operation:
        assert self._container is not None
        grid = generated.grid
        launch = gpu.LaunchFuncOp(
            SymbolRefAttr(self._container.sym_name.data, [generated.function.sym_name.data]),
            [number(grid.blocks), number(1), number(1)],
            [*(number(size) for size in grid.block), number(1)],
            kernelOperands=[*buffers, *map(number, generated.sizes)],
            asyncDependencies=[],
        )
        unproven = [number for number in generated.aligned if not self._begins_aligned(buffers[number])]
        if unproven and (other := generated.unaligned) is not None:
            launch.attributes[ALIGNED] = DenseArrayBase.from_list(i64, unproven)
            launch.attributes[UNALIGNED] = SymbolRefAttr(
                self._container.sym_name.data, [self._unaligned(other, generated)]
            )
            if isinstance(other.grid.blocks, Size) or other.sizes:
                numbers = (other.grid.blocks, *other.sizes)
                launch.attributes[UNALIGNED_SIZES] = ArrayAttr(SizeAttr(each) for each in numbers)
        return launch

    def _begins_aligned(self, buffer: SSAValue) -> bool:
        """Whether it lies in the arena or is a constant, and begins where vectors may."""
        owner = buffer.owner
        while isinstance(owner, memref.ReinterpretCastOp | UnrealizedConversionCastOp):
            owner = owner.operands[0].owner
        if isinstance(owner, memref.ViewOp):
            shift = _number(owner.byte_shift)
            is_multiple = shift in self._places or exact_quotient(shift, VECTOR_BYTES) is not None
            return is_multiple and self._begins_aligned(owner.source)
        return isinstance(owner, gpu.ArenaOp | memref.GetGlobalOp)

    def _unaligned(self, other: GpuKernel, generated: GpuKernel) -> str:
        """The name of the kernel for other buffers, which is put into the module when it is first needed."""
        if other.function.parent is None:
            assert self._container is not None
            if isinstance(other.grid.blocks, int):
                other.function.known_grid_size = DenseArrayBase.from_list(i32, (other.grid.blocks, 1, 1))
            other.function.sym_name = StringAttr(self.unique(f"{generated.function.sym_name.data}_unaligned"))
            self._place(other, self._container)
        return other.function.sym_name.data

    def _kernels(self, before: func.FuncOp) -> gpu.ModuleOp:
        if self._container is None:
            name = self.unique("kernels")
            properties = {"sym_name": StringAttr(name)}
            self._container = gpu.ModuleOp.create(properties=properties, regions=[Region(Block())])
            self.symbols[name] = self._container
            self.block.insert_op_before(self._container, before)
            if (parent := self.block.parent_op()) is not None:
                parent.attributes["gpu.container_module"] = UnitAttr()
        return self._container


def _number(value: SSAValue) -> Extent:
    """What `ModuleConverter.launch` was given a number for."""
    if isinstance(value.owner, gpu.SizeOp):
        return value.owner.size.data
    assert isinstance(value.owner, arith.ConstantOp) and isinstance(value.owner.value, IntegerAttr)
    return value.owner.value.value.data
