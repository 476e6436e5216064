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
from .gpu_kernel import GpuKernel, build_gpu_kernel
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
    Pointwise kernels have a thread for each element (each 4 elements in large ones), row kernels a block or a warp for
    each row; the parts of a pack have ranges of blocks. Results, library calls and missing decisions are as in
    `convert-fused-to-loops`; the arena and what has no slot in it lie at multiples of 256 bytes.

    Requires: static shapes; every graph op but stored constants and views that move nothing is in a kernel.
    Ensures: no tensors but in the functions of kernels that only the reference can run.
    """

    name = "convert-fused-to-gpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        convert_programs(op, _GpuConverter)


class _GpuConverter(ModuleConverter[GpuKernel]):
    """Kernels as functions of one `gpu.module`, which is made with the first of them."""

    ALIGNMENT: ClassVar[int] = 256

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._container: gpu.ModuleOp | None = None
        self._helpers: set[str] = set()

    def generate(
        self, kernel: KernelOp, passes: Sequence[Pulled], memory: Sequence[int], before: func.FuncOp
    ) -> GpuKernel:
        name = self.unique(kernel_name(kernel))
        generated = build_gpu_kernel(name, kernel, passes, memory, kernel_comment(kernel))
        generated.function.location = kernel.location
        self.symbols[name] = generated.function
        container = self._kernels(before)
        container.body.block.add_op(generated.function)
        for helper, (inputs, result) in generated.helpers.items():
            if helper not in self._helpers:
                self._helpers.add(helper)
                put_first(container.body.block, func.FuncOp.external(helper, list(inputs), [result]))
        return generated

    def parameters(self, generated: GpuKernel) -> Sequence[Parameter]:
        return generated.parameters

    def launch(self, generated: GpuKernel, buffers: Sequence[SSAValue], number: Callable[[int], SSAValue]) -> Operation:
        assert self._container is not None
        grid = generated.grid
        kernel = SymbolRefAttr(self._container.sym_name.data, [generated.function.sym_name.data])
        return gpu.LaunchFuncOp(
            kernel,
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
