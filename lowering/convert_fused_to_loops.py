"""Lower tensor functions of fused kernels to programs on buffers: loops, an arena, launches and library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ..dialects.fused import KernelOp
from ..dialects.pull import Pulled
from .kernel_buffers import Parameter
from .kernel_loops import KernelLoops, build_kernel_loops, kernel_function
from .kernel_text import kernel_comment, kernel_name
from .program_conversion import ModuleConverter, convert_programs
from .program_memory import put_first


@dataclass(frozen=True)
class ConvertFusedToLoopsPass(ModulePass):
    """A function on tensors becomes a program on buffers, and each kernel in it a function of loops.

    ```mlir
    func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %r = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) { ... graph.exp ... }
      func.return %r : tensor<8xf32>
    }
    ```
    becomes
    ```mlir
    func.func private @kernel_exp(%a: memref<8xf32>, %r: memref<8xf32>, %begin: index, %end: index) { ... scf.parallel ... }
    func.func @main(%x: memref<8xf32>, %r: memref<8xf32>) {
      gpu.bulk 0 {
        func.call @kernel_exp(%x, %r, %c0, %c8) : ...
      }
      func.return
    }
    ```
    A result is a buffer after the arguments, unless `fused.results` says that it is a donated argument or a copy.
    Kernels that say the same share a function. Decisions that are missing are made simply: an intermediate value without
    a slot gets a range of the arena to itself, a kernel without a segment one of its own.

    Requires: static shapes; every graph op but stored constants and views that move nothing is in a kernel.
    Ensures: no tensors but in the functions of kernels that only the reference can run.
    """

    name = "convert-fused-to-loops"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        convert_programs(op, _LoopsConverter)


@dataclass(frozen=True, slots=True)
class _Generated:
    function: func.FuncOp
    loops: KernelLoops


class _LoopsConverter(ModuleConverter[_Generated]):
    """Kernels as functions of loops."""

    def generate(self, kernel: KernelOp, pulled: Pulled, memory: Sequence[int], before: func.FuncOp) -> _Generated:
        loops = build_kernel_loops(kernel, pulled, memory)
        function = kernel_function(self.unique(kernel_name(kernel)), loops, kernel_comment(kernel))
        function.location = kernel.location
        self._declare_helpers(loops)
        self.define(function, before)
        return _Generated(function, loops)

    def parameters(self, generated: _Generated) -> Sequence[Parameter]:
        return generated.loops.parameters

    def launch(
        self, generated: _Generated, buffers: Sequence[SSAValue], number: Callable[[int], SSAValue]
    ) -> Operation:
        arguments = [*buffers, number(0), number(generated.loops.tasks)]
        return func.CallOp(generated.function.sym_name.data, arguments, [])

    def _declare_helpers(self, loops: KernelLoops) -> None:
        for name, (inputs, result) in loops.helpers.items():
            if name not in self.symbols:
                declaration = func.FuncOp.external(name, list(inputs), [result])
                self.symbols[name] = declaration
                put_first(self.block, declaration)
