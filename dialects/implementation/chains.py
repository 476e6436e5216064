"""Chains: pointwise ops behind an opaque op, each of which reads the one before at the same element, and at most one value more.

That is what libraries take as epilogues ("post-ops"): a list of steps over elements of the result before it is stored. What a
step may be is said by an offer; here is what steps a kernel has, whoever runs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from xdsl.ir import Block, BlockArgument, SSAValue

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.layouts import encoding, has_order
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import PlainValue, plain_properties
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.index_expr import constant, dimensions


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a chain."""

    op: str
    """The op's name."""
    config: tuple[tuple[str, PlainValue], ...] = ()
    """Its properties by name."""
    operand: int | None = None
    """What else it reads: an operand of the kernel by number, or where there is no kernel yet, by order of first use."""
    extents: tuple[int, ...] = ()
    """Of what it reads, aligned to the result, with 1 where it is broadcast."""
    number: float | None = None
    """Or a number that it reads."""
    swapped: bool = False
    """Whether the chain's own value is its second operand."""
    dtype: str = "f32"
    """The element type of its result, and so of all that the chain computes."""
    whole: bool = False
    """Whether what it reads has an element for each of the result's."""
    turned: bool = False
    """Whether these lie in another order than the result's."""

    def text(self) -> str:
        """The step as a text that `link_of` reads."""
        return json.dumps(
            [
                self.op, dict(self.config), self.operand, list(self.extents), self.number, self.swapped, self.dtype,
                self.whole, self.turned,
            ],
            sort_keys=True,
        )  # fmt: skip


def link_of(text: str) -> Link:
    """The step that a text is of."""
    found: tuple[str, dict[str, Any], int | None, list[int], float | None, bool, str, bool, bool] = json.loads(text)
    op, config, operand, extents, number, swapped, element, whole, turned = found
    pairs = [(name, untied(value)) for name, value in config.items()]
    return Link(op, tuple(sorted(pairs)), operand, tuple(extents), number, swapped, element, whole, turned)


def untied(value: Any) -> PlainValue:
    """A property as it was before it was written as JSON, which has lists alone."""
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@dataclass(frozen=True, slots=True)
class ChainOffer:
    """Which chains an implementation runs with its op: a grammar, step by step."""

    accepts: Callable[[Link], str | None]
    """Why it does not take a step, as a code for remarks; None: it does."""
    says: str
    """The steps in words, for tables of implementations."""
    max_ops: int = 32
    overwrites: Callable[[Sequence[Link]], Collection[int]] | None = None
    """Steps, by number, whose operand the result may be written over: pairs in place, one of which holds in a call."""

    orders: Callable[[Sequence[Link]], str | None] | None = None
    """Why it does not take steps, each of which it takes, one after another; None (or no function): it does."""

    def refusal(self, links: Sequence[Link]) -> str | None:
        """Why it does not take a chain, as a code; None: it does."""
        if len(links) > self.max_ops:
            return "max-ops"
        reason = next((reason for link in links if (reason := self.accepts(link)) is not None), None)
        return self.orders(links) if reason is None and self.orders is not None else reason


def trace_chain(
    raw: SSAValue,
    ops: Sequence[GraphOp],
    operands: Callable[[GraphOp], Sequence[SSAValue]],
    results: Sequence[SSAValue],
) -> tuple[list[Link], list[SSAValue]] | str:
    """
    Ops, in order, as a chain from `raw` to the only result, and the values that it reads from outside; else a code. `operands`
    gives what an op reads, numbers apart that are made inside.
    """
    value, links, outer = raw, list[Link](), list[SSAValue]()
    inner = {raw, *(result for op in ops for result in op.results)}
    for op in ops:
        read = operands(op)
        if not isinstance(op, StructuredOp) or op.COMBINE or len(op.results) != 1 or list(read).count(value) != 1:
            return "no-chain"
        if shape(op.results[0]) != shape(raw) or dtype(op.results[0]) is not dtype(raw):
            return "shape" if dtype(op.results[0]) is dtype(raw) else "element-type"
        if len(read) > 2 or not all(_is_aligned(op, number) for number in range(len(read))):
            return "no-chain"
        if any(other in inner for other in read if other is not value):
            return "multi-use"
        links.append(_link(op, read, value, outer))
        if (
            links[-1].operand is not None
            and not links[-1].whole
            and _is_turned(next(v for v in read if v is not value))
        ):
            return "step-order"
        value = op.results[0]
    return (links, outer) if list(results) == [value] else "several-results"


def _link(op: StructuredOp, read: Sequence[SSAValue], value: SSAValue, outer: list[SSAValue]) -> Link:
    others = [other for other in read if other is not value]
    config = tuple(sorted(plain_properties(op).items()))
    link = Link(op.name, config, swapped=read[-1] is value and bool(others), dtype=dtype(op.results[0]).name)
    if not others:
        return link
    (other,) = others
    if (number := _number(other)) is not None:
        return replace(link, number=number)
    if other not in outer:
        outer.append(other)
    result = shape(op.results[0])
    extents = (1,) * (len(result) - len(shape(other))) + shape(other)
    whole, order = extents == result, encoding(op.results[0])
    turned = whole and has_order(result) and encoding(other) != order
    return replace(link, operand=outer.index(other), extents=extents, whole=whole, turned=turned)


def _is_turned(value: SSAValue) -> bool:
    return encoding(value) is not None and has_order(shape(value))


def _number(value: SSAValue) -> float | None:
    """The number that a value is everywhere, where an op without operands makes it."""
    op = value.owner
    if isinstance(op, Block) or not isinstance(op, StructuredOp) or op.operands or op.stored_value() is not None:
        return None
    body = op.body()
    return float(body.value) if body.function == "constant" and body.dtype.is_float else None


def _is_aligned(op: StructuredOp, number: int) -> bool:
    """Whether the op reads an operand at the place of its result, but for axes along which that is broadcast."""
    extents, result = shape(op.operands[number]), shape(op.results[0])
    index = dimensions("i", result)
    behind = len(result) - len(extents)
    pairs = zip(extents, result[behind:], index[behind:], strict=True)
    wanted = tuple(axis if own == whole else constant(0) for own, whole, axis in pairs)
    return tuple(op.operand_index(number, index, ())) == wanted


def kernel_chain(kernel: KernelOp) -> tuple[Link, ...] | str:
    """
    The chain behind the only opaque op of a kernel, whose operands are all the kernel's, or the code of why it has none. No
    chain, the empty one, is behind an op that is alone.
    """
    ops = kernel.ops()
    opaque = [op for op in ops if isinstance(op, OpaqueOp)]
    if len(opaque) != 1 or len(opaque[0].results) != 1 or len(kernel.results) != 1:
        return "no-chain"
    op = opaque[0]
    values = [*kernel.block.args, *(value for inner in ops for value in inner.results)]
    if not all(map(is_static, values)) or not all(isinstance(value, BlockArgument) for value in op.operands):
        return "no-chain"
    behind = [inner for inner in ops if inner is not op and not _is_made_inside(inner)]
    traced = trace_chain(op.results[0], behind, lambda inner: list(inner.operands), kernel.yielded())
    if isinstance(traced, str):
        return traced
    links, outer = traced
    if not all(isinstance(value, BlockArgument) for value in outer):
        return "no-chain"
    numbers = [value.index for value in outer if isinstance(value, BlockArgument)]
    return tuple(link if link.operand is None else replace(link, operand=numbers[link.operand]) for link in links)


def _is_made_inside(op: GraphOp) -> bool:
    return not op.operands and len(op.results) == 1 and _number(op.results[0]) is not None


def has_all_elements(link: Link, result: Sequence[int]) -> bool:
    """Whether a step reads as many elements as the result has."""
    return link.operand is not None and prod(link.extents) == prod(result)
