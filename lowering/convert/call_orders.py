"""What a call's `config` says beside its op's properties: orders of axes, panels, what it leaves beside the results."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.implementation.offers import BackendFault
from fuse_opt.dialects.implementation.queries import named_offer, saved_beside, saved_problem
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.types.encodings import EncodingPart, OrderAttr, PanelAttr, parts_of
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.program import ORDERS, SAVED


def orders_of(values: Sequence[SSAValue]) -> list[str] | None:
    """
    By value: its axes from outermost to innermost in memory, empty for row-major order, and behind `|` the place among them and
    the width of an axis in panels and how many of the innermost other axis lie side by side there (`2 3 1 0|3:64:1`); None where
    one lies otherwise.
    """
    found = [_text(encoding(value)) for value in values]
    return None if None in found else [text for text in found if text is not None]


def _text(found: EncodingPart | None) -> str | None:
    parts = () if found is None else parts_of(found)
    order = next((part for part in parts if isinstance(part, OrderAttr)), None)
    panels = [part for part in parts if isinstance(part, PanelAttr)]
    if len(panels) > 1 or len(panels) + (order is not None) != len(parts):
        return None
    behind = "".join(f"|{panel.axis.data}:{panel.width.data}:{panel.group.data}" for panel in panels)
    return ("" if order is None else " ".join(map(str, order.order))) + behind


def orders_entry(orders: Sequence[str]) -> dict[str, Attribute]:
    """What a call's `config` says of them; nothing where all are row-major."""
    return {ORDERS: ArrayAttr(map(StringAttr, orders))} if any(orders) else {}


def takes_orders(kernel: KernelOp) -> bool:
    """Whether what the kernel names is told the orders of its operands."""
    offer = named_offer(kernel)
    return offer is not None and offer.native and offer.layouts is not None


def saved_entry(kernel: KernelOp) -> dict[str, Attribute]:
    """What a call's `config` says of what it leaves beside its op's results. Raises LoweringError where it does not."""
    if kernel.saved is None:
        return {}
    try:
        reason = saved_problem(kernel)
    except BackendFault as fault:
        raise LoweringError(str(fault), kernel) from fault
    if reason is not None:
        raise LoweringError(
            f"'fused.kernel' property 'saved': its implementation does not leave that: {reason}; run unfuse and "
            "select-composites again",
            kernel,
        )
    return {SAVED: ArrayAttr(StringAttr(each.text()) for each in saved_beside(kernel))}
