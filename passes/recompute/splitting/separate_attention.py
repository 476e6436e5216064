"""Give each pass of attention, forward and backward, scores and masks of its own, so that neither needs them in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.analysis.bare_ops import is_creation, sweep_functions
from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.switch import allowed_composites
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.fusion.engine.cost_model import work
from fuse_opt.passes.options import check_counts, tunable
from fuse_opt.passes.recompute.splitting.attention_halves import (
    Half,
    halves_of,
    is_product,
    made_from_positions,
    read_elsewhere,
)
from fuse_opt.passes.remarks import remark
from fuse_opt.passes.rewrite_pass import RewritePass

MOST_OPS = 16
"""That make a mask, or random numbers; of more it is read from memory."""


@dataclass(frozen=True)
class SeparateAttentionPass(DevicePass, RewritePass):
    """What the forward and the backward pass of attention both read of scores is computed once for each of them.

    ```mlir
    %s = graph.matmul %q, %k {transpose_rhs = true} : (Q, Q) -> S
    ...                                             // %p = softmax(%s) and its row sums
    %o = graph.matmul %p, %v : (S, Q) -> Q
    ...
    %e = graph.subtract %s, %logsumexp : (S, R) -> S
    %w = graph.exp %e : (S) -> S
    %dv = graph.matmul %w, %g {transpose_lhs = true} : (S, Q) -> Q
    ...                                             // %dq, %dk from %w and graph.matmul %g, %v
    ```
    becomes the same with `graph.matmul %q, %k` a second time, whose result `%e` reads. Numbers of rows, as of maxima and sums,
    stay common: the backward pass makes weights again from them, and `fuse-attention-gradient` then has one kernel of it that
    keeps no scores in memory, as `fuse-attention` has of the forward pass. It is done where code is generated for both, nothing
    else reads what they share, and scores of the whole function are more bytes than caches hold.

    What follows from positions alone, as a causal mask does, is computed for each pass of attention apart, if it is cheap: a
    kernel that knows the mask leaves out what it hides. Views in front of what it reads are its own, too: it reads by strides.

    Run it before the fusion passes and after cse, which joins such ops again. Requires: nothing. Ensures: values stay, bit
    for bit; ops with directives stay as they are.
    """

    name = "separate-attention"

    smallest_bytes: int = field(default=4194304, metadata=tunable(0))
    """What fewer bytes of scores a function shares is kept: caches have it until the backward pass reads it."""

    def __post_init__(self) -> None:
        check_counts(self)
        super().__post_init__()

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if not _offers(op):
            return
        most = self.machine(op).recompute_limit
        for block in sweep_functions(op):
            products = [inner for inner in block.ops if isinstance(inner, OpaqueOp) and is_product(inner)]
            if len(products) > 1:
                separation = _Separation(block, most)
                products += separation.scores_again(products, self.smallest_bytes)
                for product in products:
                    separation.masks_again(product)


@dataclass(frozen=True, slots=True)
class _Site:
    """Scores that two passes read."""

    product: OpaqueOp
    backward: Half
    needed: Sequence[Operation]
    """What has to be computed again for it."""

    @property
    def nbytes(self) -> int:
        scores = self.product.results[0]
        return prod(shape(scores)) * dtype(scores).itemsize


class _Separation:
    """Makes clones in a block."""

    def __init__(self, block: Block, most: int) -> None:
        """`most` is the work for an element up to which masks are computed again."""
        self.most = most
        self.place: dict[Operation, float] = {op: number for number, op in enumerate(block.ops)}
        self.free = made_from_positions(block)

    def scores_again(self, products: Sequence[OpaqueOp], smallest: int) -> list[OpaqueOp]:
        """Has backward passes make scores of the products again; gives the products that are made for that."""
        found = [site for site in map(self._site, products) if site is not None]
        total = sum(site.nbytes for site in found)
        if total >= smallest:
            return [copy for site in found for copy in self._separated(site)]
        for site in found:
            message = f"is kept for the backward pass of attention: all that is kept so are {total} bytes"
            flip = f"smallest-bytes={total}"
            remark(SeparateAttentionPass.name, site.product, "small", message, flip=flip, bytes=total)
        return []

    def _site(self, product: OpaqueOp) -> _Site | None:
        """What both passes over the scores of a product read, where kernels of both would make that for themselves."""
        forward, backward = halves_of(product, self.place)
        if forward is None or backward is None:
            return None
        shared = read_elsewhere((*backward.firsts, *backward.between), backward.members())
        offers = _offers(product) if shared else []
        if not forward.can_be_one(offers) or not backward.can_be_one(offers):
            return None
        own = forward.members()
        others = [reader for readers in shared.values() for reader in readers if reader not in own]
        if others:
            message = f"is kept for the backward pass of attention: '{others[0].name}' reads what that makes of it"
            remark(SeparateAttentionPass.name, product, "scores-read", message, flip="compute them again for it")
            return None
        needed = _with_sources(shared, backward)
        return None if any(map(directives, needed)) else _Site(product, backward, needed)

    def _separated(self, site: _Site) -> list[OpaqueOp]:
        """Clones what the forward pass reads, too; gives the products that are clones."""
        message = "is computed once more for the backward pass of attention, so that neither keeps scores in memory"
        remark(SeparateAttentionPass.name, site.product, "separated", message, ops=len(site.needed))
        readers = [op for op in site.backward.members() if op not in site.needed]
        return [copy for copy in self._cloned(site.needed, readers).values() if isinstance(copy, OpaqueOp)]

    def masks_again(self, product: OpaqueOp) -> None:
        """Has the passes over a product's scores make masks themselves."""
        halves = [half for half in halves_of(product, self.place) if half is not None and self._masks(half)]
        offers = _offers(product) if halves else []
        for half in halves:
            if half.can_be_one(offers):
                self._masks_again(half)

    def _masks(self, half: Half) -> list[Operation]:
        """What a half reads of positions alone, or through views, and might make itself, where others read that, too."""
        members = half.members()
        chains = [
            self._chain(value, half.scores) for op in members for value in op.operands if value.owner not in members
        ]
        inside = {**members, **dict.fromkeys(op for chain in chains for op in chain)}
        found = dict.fromkeys(op for chain in chains if read_elsewhere(chain, inside) for op in chain)
        return sorted(found, key=self.place.__getitem__)

    def _chain(self, value: SSAValue, scores: int) -> list[Operation]:
        """The ops that make a value, of positions or by views, if a kernel of so many scores computes them again."""
        if value.owner in self.free:
            chain = self._of_positions(value)
            is_cheap = prod(shape(value)) == scores or all(work(op) <= self.most for op in chain)
            return [*chain] if is_cheap and len(chain) <= MOST_OPS else []
        found: list[Operation] = []
        while isinstance(op := value.owner, StructuredOp) and op.operands and op.is_view() and not directives(op):
            if op not in self.place:
                break
            found.append(op)
            value = op.operands[0]
        return [] if all(isinstance(op, StructuredOp) and op.is_alias() for op in found) else found

    def _of_positions(self, value: SSAValue) -> list[GraphOp]:
        """All ops behind it, but for numbers that are alike everywhere."""
        found: dict[GraphOp, None] = {}
        waiting = [value]
        while waiting:
            op = waiting.pop().owner
            if op in self.free and isinstance(op, GraphOp) and op not in found and not is_creation(op):
                found[op] = None
                waiting.extend(op.operands)
        return list(found)

    def _masks_again(self, half: Half) -> None:
        if not (chain := self._masks(half)):
            return
        members = half.members()
        message = (
            f"is computed once more for {len(members)} ops of attention: masks of positions, and where operands lie"
        )
        remark(SeparateAttentionPass.name, chain[-1], "positions", message, ops=len(chain))
        made = self._cloned(chain, list(members))
        self.free.update(copy for op, copy in made.items() if op in self.free)
        for op in reversed(chain):
            if not any(result.uses for result in op.results):
                del self.place[op]
                self.free.discard(op)
                Rewriter.erase_op(op)

    def _cloned(self, ops: Sequence[Operation], readers: Sequence[Operation]) -> dict[Operation, Operation]:
        """Clones of ops, in the block's order, behind each of them, which the readers read; by op."""
        values: dict[SSAValue, SSAValue] = {}
        made: dict[Operation, Operation] = {}
        for op in ops:
            copy = made[op] = op.clone(dict(values))
            copy.location = op.location
            assert op.parent is not None
            op.parent.insert_op_after(copy, op)
            self.place[copy] = self.place[op] + 0.5
            for old, new in zip(op.results, copy.results, strict=True):
                new.name_hint = old.name_hint
                values[old] = new
        for reader in readers:
            reader.operands = [values.get(operand, operand) for operand in reader.operands]
        return made


def _with_sources(ops: Collection[Operation], half: Half) -> list[Operation]:
    """The ops and those of a half that they are made from, in the block's order."""
    inside = dict.fromkeys((*half.firsts, *half.between))
    found: dict[Operation, None] = {}
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found[op] = None
            waiting.extend(v.owner for v in op.operands if isinstance(v.owner, Operation) and v.owner in inside)
    return [op for op in inside if op in found]


def _offers(op: Operation) -> list[Offer]:
    """What may run several opaque ops at once."""
    return [offer for offer in allowed_composites(op) if offer.trace]
