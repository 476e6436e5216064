"""Lower tensor functions of fused kernels to GPU programs: kernels, an arena, launches in bulks and library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from ..dialects import gpu
from ..dialects.fused import KernelOp
from ..dialects.pull import Pulled
from .gpu_kernel import GpuKernel, build_gpu_kernels
from .kernel_buffers import Parameter
from .kernel_text import kernel_comment, kernel_name
from .program_conversion import ModuleConverter, convert_programs
from .program_memory import put_first


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
    tiles are turned in shared memory; the parts of a pack have ranges of blocks. `fused.schedule` of a `gpu.func` says
    what was chosen, the entry `gpu` of a kernel's schedule changes it. Results, library calls and missing decisions are as in
    `convert-fused-to-loops`; the arena and what has no slot in it lie at multiples of 256 bytes.

    Requires: static shapes; every graph op but stored constants and views that move nothing is in a kernel.
    Ensures: no tensors but in the functions of kernels that only the reference can run.
    """

    name = "convert-fused-to-gpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        convert_programs(op, _GpuConverter)


class _GpuConverter(ModuleConverter[list[GpuKernel]]):
    """Kernels as functions of one `gpu.module`, which is made with the first of them."""

    ALIGNMENT: ClassVar[int] = 256

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._container: gpu.ModuleOp | None = None
        self._helpers: set[str] = set()

    def generate(
        self, kernel: KernelOp, passes: Sequence[Pulled], memory: Sequence[int], before: func.FuncOp
    ) -> list[GpuKernel]:
        container = self._kernels(before)

        def name() -> str:
            found = self.unique(kernel_name(kernel))
            self.symbols[found] = container
            return found

        generated = build_gpu_kernels(kernel, passes, memory, name, kernel_comment(kernel))
        for each in generated:
            each.function.location = kernel.location
            self.symbols[each.function.sym_name.data] = each.function
            container.body.block.add_op(each.function)
            for helper, (inputs, result) in each.helpers.items():
                if helper not in self._helpers:
                    self._helpers.add(helper)
                    put_first(container.body.block, func.FuncOp.external(helper, list(inputs), [result]))
        return generated

    def parameters(self, generated: list[GpuKernel]) -> Sequence[Parameter]:
        return generated[0].parameters

    def launch(
        self, generated: list[GpuKernel], buffers: Sequence[SSAValue], number: Callable[[int], SSAValue]
    ) -> Operation:
        return self._launch_of(generated[0], buffers, number)

    def launches(
        self,
        generated: list[GpuKernel],
        buffer: Callable[[Parameter], SSAValue],
        number: Callable[[int], SSAValue],
    ) -> Sequence[Operation]:
        return [self._launch_of(each, [buffer(p) for p in each.parameters], number) for each in generated]

    def _launch_of(
        self, generated: GpuKernel, buffers: Sequence[SSAValue], number: Callable[[int], SSAValue]
    ) -> Operation:
        assert self._container is not None
        grid = generated.grid
        return gpu.LaunchFuncOp(
            SymbolRefAttr(self._container.sym_name.data, [generated.function.sym_name.data]),
            [number(grid.blocks), number(1), number(1)],
            [*(number(size) for size in grid.block), number(1)],
            kernelOperands=list(buffers),
            asyncDependencies=[],
        )

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
