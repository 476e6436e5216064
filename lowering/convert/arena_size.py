"""How many bytes the arena of a program on the CPU will have, without the code of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.analysis.storage import functions_of
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.gpu import ArenaOp
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.convert.convert_fused_to_loops import build_phases, generates_loops_of_product
from fuse_opt.lowering.convert.functions import ModuleConverter, convert_programs
from fuse_opt.lowering.kernel.buffers import Parameter

_Buffers = tuple[Parameter, ...]
"""Those of all launches of a kernel."""


class ArenaSizes:
    """
    Knows what kernels work in that it has met: for modules that have most of their kernels in common, as what passes
    make of one program with other options.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _Buffers] = {}

    def of(self, module: ModuleOp, find: Callable[[ModuleOp], func.FuncOp] | None = None) -> int:
        """Bytes of the arena of the function that `find` gives, or the largest one, as `convert-fused-to-loops` makes it."""
        copy = module.clone()
        convert_programs(copy, lambda block: _BuffersConverter(block, self._known))
        functions = functions_of(copy) if find is None else [find(copy)]
        return max((_arena_bytes(function) for function in functions), default=0)


def _arena_bytes(function: func.FuncOp) -> int:
    return sum(op.size for op in function.body.block.ops if isinstance(op, ArenaOp))


class _BuffersConverter(ModuleConverter[_Buffers]):
    """Kernels as nothing but the buffers that they take."""

    def __init__(self, block: Block, known: dict[Hashable, _Buffers]) -> None:
        super().__init__(block)
        self.kernels = known

    def generate(
        self, kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[int], before: func.FuncOp
    ) -> _Buffers:
        return tuple(each for loops in build_phases(kernel, passes, memory) for each in loops.parameters)

    def generates_product(self, kernel: KernelOp) -> bool:
        return generates_loops_of_product(kernel)

    def parameters(self, generated: _Buffers) -> Sequence[Parameter]:
        return generated

    def launch(
        self, generated: _Buffers, buffers: Sequence[SSAValue], number: Callable[[Extent], SSAValue]
    ) -> Operation:
        return func.CallOp("kernel", list(buffers), [])

    def launches(
        self,
        generated: _Buffers,
        buffer: Callable[[Parameter], SSAValue],
        number: Callable[[Extent], SSAValue],
    ) -> Sequence[Operation]:
        return [self.launch(generated, list(map(buffer, generated)), number)]
