"""Ops that an implementation runs as a whole, and what generated code knows of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.layouts import refuse_encodings
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.shapes import dtype, storage_error
from fuse_opt.dialects.interfaces.transformed_weight import TransformedWeight
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction


class OpaqueOp(GraphOp):
    """Run by an implementation as a whole; never inlined, never in place unless its implementation says so."""

    RUN_BY_CALLER: ClassVar[bool] = False
    """States that who calls the program runs the op between its steps, so that it stays in the function that is called."""

    TAKES_ORDERS: ClassVar[bool] = False
    """States that operands and results may lie in memory in any order; it is implementations that take some of them."""

    def check_encodings(self) -> None:
        """All are refused where the op does not say that it takes orders."""
        if not self.TAKES_ORDERS:
            refuse_encodings((*self._operands, *self.results))

    def as_reads(self, builder: GraphBuilder) -> SSAValue | None:
        """
        The only result by ops for which code is generated, where all that the op does is to read at positions that are data;
        these are checked before. None where it does more; the shapes are known.
        """
        return None

    def repeated_reads(self) -> int:
        """How many elements of its operands a call reads again that `as_reads` reads once; extents may be sizes."""
        return 0

    def as_sums(self, builder: GraphBuilder) -> SSAValue | None:
        """The only result by ops for which code is generated, where each element is a sum of few products; None elsewhere."""
        return None

    def otherwise(self, builder: GraphBuilder) -> SSAValue | None:
        """
        The only result by other ops, for where no implementation of a device takes this one: by such as libraries take, or for
        which code is generated. None where there are none.
        """
        return None

    def aligned(self, builder: GraphBuilder, nbytes: int) -> SSAValue | None:
        """
        The only result by the same op on operands with zeros behind their rows, which then begin at multiples of so many bytes,
        as those of its result do; None where they do so already, or it has no such form.
        """
        return None

    def contraction(self) -> Contraction | None:
        """The product of its first two operands that its only result is, for generated code; None where it is none."""
        return None

    def window_contraction(self) -> WindowContraction | None:
        """The convolution of its first operand by its second one that its only result is; None where it is none."""
        return None

    def transformed_weight(self) -> type[TransformedWeight] | None:
        """What gives its second operand where tiles of a convolution read transforms of it; None where there is no such op."""
        return None

    def weight_gradient(self) -> WindowContraction | None:
        """
        The convolution whose gradient by its weight the only result is, from that by its result and from its input, the first
        two operands; None where it is none.
        """
        return None

    def input_gradient(self) -> WindowContraction | None:
        """
        The convolution whose gradient by its input the only result is, from that by its result and from its weight, the first
        two operands; None where it is none.
        """
        return None

    def scaled_axes(self) -> tuple[int, int] | None:
        """
        An axis of the second operand and one of the only result such that who multiplies the operand along its axis multiplies
        the result along the other, and of a part of the operand the result is that part; None where there are none.
        """
        return None

    def permuted(self, order: Sequence[int]) -> GraphOp | None:
        """An op that gives the only result with its axes in another order, at no further cost; None where there is none."""
        return None

    def refuse_arithmetic(self) -> None:
        kept = next(dtype(value) for value in self.operands if dtype(value).storage_only)
        raise storage_error(kept, "it is computed with")
