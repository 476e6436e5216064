"""Which of its buffers a kernel reads, and which it writes."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import func, memref, vector
from xdsl.ir import SSAValue

from fuse_opt.dialects import gpu
from fuse_opt.lowering.c.headers.functions import is_helper_target
from fuse_opt.lowering.inner_ops import inner_ops

Kernel = func.FuncOp | gpu.FuncOp
_TOUCHING = (memref.LoadOp, memref.StoreOp, vector.LoadOp, vector.StoreOp, memref.CastOp)


class KernelTraffic:
    """Of each kernel of a program by name, looked for once."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = kernels
        self._known: dict[str, tuple[frozenset[int], frozenset[int]]] = {}

    def of(self, name: str) -> tuple[frozenset[int], frozenset[int]]:
        """Which of a kernel's buffers it reads, and which it writes."""
        if name not in self._known:
            loaded: set[int] = set()
            stored: set[int] = set()
            kernel = self._kernels[name]
            blocks = kernel.arguments if isinstance(kernel, gpu.FuncOp) else kernel.body.block.args
            parameters: dict[SSAValue, int] = {argument: argument.index for argument in blocks}
            for op in inner_ops(kernel.body.blocks[0]):
                if type(op) not in _TOUCHING:
                    continue
                if isinstance(op, memref.LoadOp | memref.StoreOp) and op.memref in parameters:
                    (loaded if isinstance(op, memref.LoadOp) else stored).add(parameters[op.memref])
                elif isinstance(op, vector.LoadOp | vector.StoreOp) and op.base in parameters:
                    (loaded if isinstance(op, vector.LoadOp) else stored).add(parameters[op.base])
                elif isinstance(op, memref.CastOp) and op.source in parameters:
                    (stored if _is_target(op.dest) else loaded).add(parameters[op.source])
            self._known[name] = frozenset(loaded), frozenset(stored)
        return self._known[name]


def _is_target(memory: SSAValue) -> bool:
    """Whether a helper writes to memory that was cast for it."""
    uses = list(memory.uses)
    return any(
        isinstance(use.operation, func.CallOp) and is_helper_target(use.operation.callee.string_value(), use.index)
        for use in uses
    )
