"""In which order axes lie of what a call is given, for implementations that are told."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.queries import named_offer
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.types.encodings import OrderAttr
from fuse_opt.lowering.program import ORDERS


def orders_of(values: Sequence[SSAValue]) -> list[str] | None:
    """By value: its axes from outermost to innermost in memory, empty for row-major order; None where one lies otherwise."""
    found = [encoding(value) for value in values]
    if any(each is not None and not isinstance(each, OrderAttr) for each in found):
        return None
    return [" ".join(map(str, each.order)) if isinstance(each, OrderAttr) else "" for each in found]


def orders_entry(orders: Sequence[str]) -> dict[str, Attribute]:
    """What a call's `config` says of them; nothing where all are row-major."""
    return {ORDERS: ArrayAttr(map(StringAttr, orders))} if any(orders) else {}


def takes_orders(kernel: KernelOp) -> bool:
    """Whether what the kernel names is told the orders of its operands."""
    offer = named_offer(kernel)
    return offer is not None and offer.native and offer.layouts is not None
