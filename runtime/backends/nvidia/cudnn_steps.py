"""Steps behind a convolution in cuDNN's own code: a vector along the channels, a tensor like the result, then a ReLU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.dialects.implementation.chains import ChainOffer, Link


@dataclass(frozen=True)
class Steps:
    """A chain as the library has it; operands are those of the call, by number."""

    bias: int
    like_result: int | None
    relu: bool


def steps_of(links: Sequence[Link]) -> Steps | None:
    """The steps of a chain that was taken; None for the empty one."""
    if not links:
        return None
    operands = {is_bias(link): link.operand for link in links if link.operand is not None}
    bias = operands[True]
    assert bias is not None
    return Steps(bias, operands.get(False), links[-1].op == "graph.relu")


def is_bias(link: Link) -> bool:
    """Whether a vector along the second axis is added."""
    others = {extent for axis, extent in enumerate(link.extents) if axis != 1}
    return link.op == "graph.add" and link.operand is not None and others == {1} and link.extents[1] > 1


def _exact(link: Link) -> str | None:
    """
    Terms of f32 are more terms of sums of f32; of other types the convolution would not be rounded before. A ReLU is told to
    give NaN for NaN.
    """
    return _fast(link) if link.dtype == "f32" else f"step-{link.dtype}"


def _fast(link: Link) -> str | None:
    if link.dtype not in ("f32", "f16", "bf16"):
        return f"step-{link.dtype}"
    if link.turned:
        return "step-layout"
    is_relu = link.op == "graph.relu"
    is_term = is_bias(link) or (link.op == "graph.add" and link.operand is not None and link.whole)
    return None if is_relu or is_term else f"step-{link.op}"


def _orders(links: Sequence[Link]) -> str | None:
    """Exactly one vector, at most one tensor, and nothing behind a ReLU."""
    kinds = ["relu" if link.op == "graph.relu" else "bias" if is_bias(link) else "tensor" for link in links]
    terms = kinds[:-1] if kinds[-1] == "relu" else kinds
    return None if sorted(terms) in (["bias"], ["bias", "tensor"]) else "step-order"


def _overwrites(links: Sequence[Link]) -> list[int]:
    """cuDNN's manual lets the result lie over the tensor that is added to it."""
    return [number for number, link in enumerate(links) if link.operand is not None and not is_bias(link)]


_SAYS = "add of a vector along the channels, with add of a tensor like the result before or behind it, then relu"
EXACT = ChainOffer(_exact, f"{_SAYS} (f32)", 3, _overwrites, _orders)
FAST = ChainOffer(_fast, _SAYS, 3, _overwrites, _orders)
