"""Which products of few rows find their right operand in the last cache: those of functions that leave all they read there."""

from __future__ import annotations

from xdsl.dialects.func import FuncOp

from fuse_opt.dialects.analysis.contractions.computed_operands import ComputedOperand
from fuse_opt.dialects.analysis.contractions.product_copies import FEWEST_STREAMED, MOST_STREAMED, NEAR_BYTES
from fuse_opt.dialects.analysis.contractions.products import product_of
from fuse_opt.dialects.analysis.kernel_access import structure_now
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.extents import is_decided
from fuse_opt.passes.devices.device import Device

PART = 2
"""Of the last cache, the part that holds what a function reads and gives from one call to the next."""

MOST_TURNED = 3
"""Rows of a product with a transposed right operand that are faster so: one 1.06 to 1.25 times, two 1.12, three 1.03 (Zen 4)."""


class NearOperands:
    """What is known of a function: whether all of its values together fit into a part of the last cache."""

    def __init__(self, function: FuncOp, device: Device) -> None:
        self.function = function
        self.most = device.last_level_cache_bytes // PART
        self._fits: bool | None = None
        self._near: dict[tuple[object, ...], bool] = {}
        """By the structure of products: whether their right operands are, where all values are."""

    def is_near(self, kernel: KernelOp) -> bool:
        """Whether it is a product of few rows whose right operand is in the last cache, and in no nearer one."""
        if not self.most or kernel.schedule_kind() != "matmul":
            return False
        key = structure_now(kernel)
        if (is_wide := self._near.get(key)) is None:
            is_wide = self._near[key] = _is_wide(kernel)
        if is_wide and self._fits is None:
            self._fits = self._bytes() <= self.most
        return is_wide and bool(self._fits)

    def _bytes(self) -> int:
        """Of all values that kernels read and give; more than there is room for where some are not known."""
        block = self.function.body.block
        values = [*block.args, *(result for op in block.ops for result in op.results)]
        sizes = [byte_size(value) for value in values]
        known = [size for size in sizes if isinstance(size, int)]
        return sum(known) if len(known) == len(sizes) else self.most + 1


def _is_wide(kernel: KernelOp) -> bool:
    """Whether a product has few rows, and a right operand for which there is no room in the nearer caches."""
    product = product_of(kernel)
    of, size = product.contraction, dtype(product.op.operands[1]).itemsize
    if isinstance(product.rhs, ComputedOperand) or product.rhs.panels is not None or 1 not in of.rhs[-2:]:
        return False
    most, fewest = (MOST_STREAMED, FEWEST_STREAMED) if of.rhs[-1] == 1 else (MOST_TURNED, 1)
    few = is_decided(lambda: of.rows <= most and of.columns >= fewest)
    return few and is_decided(lambda: of.depth * of.columns * size > NEAR_BYTES)
