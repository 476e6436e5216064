"""A kernel as a `gpu.func`: its body by the schemes that fit, and the grid to launch it with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Region

from ..dialects import gpu
from ..dialects.fused import KernelOp
from ..dialects.pull import Pulled
from .gpu_parts import GpuParts, Grid
from .gpu_pointwise import build_pointwise
from .gpu_rows import build_rows, plan_rows
from .gpu_scope import KernelScope
from .kernel_buffers import KernelBuffers, Parameter
from .kernel_points import KernelPoints
from .pack_blocks import build_pack_blocks
from .program_memory import LoweringError

MOST_BLOCKS = 2**31 - 1
"""Blocks along x, the only ones that are used."""


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel's function with what a caller needs: which buffers it takes and how it is launched."""

    function: gpu.FuncOp
    parameters: tuple[Parameter, ...]
    grid: Grid
    helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]]


def build_gpu_kernel(
    name: str, kernel: KernelOp, passes: Sequence[Pulled], memory: Sequence[Hashable], comment: str
) -> GpuKernel:
    """
    The kernel's passes as a function; `memory` names the storage of each operand and result, so that equal ones are one
    buffer. Raises LoweringError for more blocks than a grid has.
    """
    buffers = KernelBuffers(kernel, passes, memory)
    scope = KernelScope(buffers.types)
    for argument, hint in zip(scope.parameters, buffers.hints, strict=True):
        argument.name_hint = hint
    grid = _build_passes([GpuParts(KernelPoints(pulled), buffers, scope) for pulled in passes])
    if grid.blocks > MOST_BLOCKS:
        message = f"'fused.kernel' needs a grid of {grid.blocks} blocks, which has {MOST_BLOCKS} at most"
        raise LoweringError(message, kernel)
    scope.block.add_op(gpu.ReturnOp())
    function = gpu.FuncOp(
        name,
        (buffers.types, []),
        Region(scope.block),
        kernel=True,
        known_block_size=(*grid.block, 1),
        workgroup_buffers=scope.workgroup_types,
        private_buffers=scope.private_types,
    )
    if buffers.shared:
        alias = DictionaryAttr({"fused.alias": UnitAttr()})
        function.arg_attrs = ArrayAttr(
            alias if k in buffers.shared else DictionaryAttr({}) for k in range(len(buffers.types))
        )
    function.attributes["fused.comment"] = StringAttr(comment)
    return GpuKernel(function, tuple(buffers.parameters), grid, scope.helpers)


def _build_passes(parts: Sequence[GpuParts]) -> Grid:
    if len(parts) > 1:
        return build_pack_blocks(parts)
    if not parts[0].points.pulled.is_row:
        return build_pointwise(parts[0])
    plan = plan_rows(parts[0])
    return build_rows(parts[0], plan, plan.shape())
