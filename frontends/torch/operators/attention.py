"""Attention, generated: under inference one kernel; in training with a logarithm of each row's sum, from which the backward
graph computes the weights again, for some keys at a time. What the kernel does not take is a call of PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import OpResult, SSAValue

from fuse_opt.dialects.analysis.contractions.attention import attention_problem
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, F32, F64, I64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

ATTENTION, handler = handlers()
BLOCK_WEIGHTS = 16 << 20
"""Bytes of the weights of a block of keys, which the backward graph has in memory."""
MOST_WEIGHTS = 64 << 20
"""Bytes of these where there would be more blocks than `MOST_BLOCKS`; beyond PyTorch's kernel runs, which never has any."""
MOST_BLOCKS = 8
"""Of keys: each takes five kernels."""
CAUSAL_BLOCKS = 4
"""Of keys at least, with a causal mask: of n blocks, (n + 1) / 2n of all weights are computed."""
BLOCK_KEYS = 128
"""Blocks are multiples of this."""


@handler("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention(call: Call) -> Sequence[SSAValue]:
    q, k, v = _operands(call)
    scale = call["scale"]
    options = {"is_causal": bool(call["is_causal"]), "scale": None if scale is None else float(scale)}
    y = call.emit.scaled_dot_product_attention(q, k, v, *_mask(call), **options)
    if call.exported or not call.is_used(1):
        return y, call.number(0, call.element(call.out[1].dtype), call.extents(call.out[1]))
    _refuse_training(call, q, k)
    return y, _row_logarithms(call, q, k)


@handler("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def _attention_backward(call: Call) -> Sequence[SSAValue]:
    """Dao et al. 2022 (FlashAttention), section 3: weights are exp(scores - logsumexp); rows of grad * out are summed once."""
    q, k, v = _operands(call)
    _refuse_training(call, q, k)
    emit, grad, last = call.emit, call.tensor("grad_out"), len(shape(q)) - 1
    logarithms = call.reshaped(call.tensor("logsumexp"), (*shape(q)[:-1], 1))
    if _mask(call):
        logarithms = _finite(call, logarithms)
    delta = emit.sum(emit.multiply(grad, call.tensor("out")), axes=[last], keepdims=True)
    rows, blocks = _Rows(q, grad, logarithms, delta), _key_blocks(call, q, k)
    if len(blocks) > 1 and isinstance(logarithms, OpResult):
        # all readers of a view are fused with it, and so would be blocks, whose weights were in memory at a time
        logarithms.op.attributes["no_fuse"] = UnitAttr()
    parts = [_backward_of_keys(call, rows, k, v, *bounds) for bounds in blocks]
    dq, dk, dv = zip(*parts, strict=True)
    return _joined(call, _added(call, dq)), _joined(call, dk), _joined(call, dv)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the backward graph knows of each query."""

    q: SSAValue
    grad: SSAValue
    logarithms: SSAValue
    """Of the sum of exponentials of its scores."""
    delta: SSAValue
    """The sum of its gradient times its result."""

    def since(self, call: Call, first: int) -> _Rows:
        """The same from a query on."""
        values = (self.q, self.grad, self.logarithms, self.delta)
        return _Rows(*(_part(call, value, first, shape(value)[-2]) for value in values))


def _key_blocks(call: Call, q: SSAValue, k: SSAValue) -> list[tuple[int, int]]:
    """
    The keys cut into blocks, so that weights of one block at a time are in memory. With a causal mask later queries alone see
    later keys, so that there are some blocks in any case.
    """
    keys = shape(k)[-2]
    wanted = max(-(-_weight_bytes(q, k) // BLOCK_WEIGHTS), CAUSAL_BLOCKS if call["is_causal"] else 1)
    size = max(-(-keys // (min(wanted, MOST_BLOCKS) * BLOCK_KEYS)) * BLOCK_KEYS, BLOCK_KEYS)
    return [(first, min(first + size, keys)) for first in range(0, max(keys, 1), size)]


def _backward_of_keys(
    call: Call, rows: _Rows, k: SSAValue, v: SSAValue, first: int, last: int
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """What a block of keys adds to the gradients of the queries that see one, and the gradients of its keys and values."""
    emit = call.emit
    start = min(first, shape(rows.q)[-2]) if call["is_causal"] else 0
    rows = rows.since(call, start)
    k, v = (_part(call, value, first, last) for value in (k, v))
    weights = emit.exp(emit.subtract(_scores(call, rows.q, k, (start, first)), rows.logarithms))
    dv = emit.matmul(weights, rows.grad, transpose_lhs=True)
    inner = emit.subtract(emit.matmul(rows.grad, v, transpose_rhs=True), rows.delta)
    scores = emit.multiply(emit.multiply(weights, inner), call.number(_scale(call, rows.q), dtype(rows.q)))
    return emit.matmul(scores, k), emit.matmul(scores, rows.q, transpose_lhs=True), dv


def _added(call: Call, parts: Sequence[SSAValue]) -> list[SSAValue]:
    """The rows of the sum of parts that end at the same one, and begin later and later, piece by piece."""
    pieces: list[SSAValue] = []
    total, *others = parts
    for part in others:
        first = shape(total)[-2] - shape(part)[-2]
        if first:
            pieces.append(_part(call, total, 0, first))
        total = call.emit.add(part, _part(call, total, first, shape(total)[-2]))
    return [*pieces, total]


def _joined(call: Call, pieces: Sequence[SSAValue]) -> SSAValue:
    return pieces[0] if len(pieces) == 1 else call.emit.concat(*pieces, axis=len(shape(pieces[0])) - 2)


def _part(call: Call, value: SSAValue, first: int, last: int, axis: int = -2) -> SSAValue:
    """The elements within the bounds along an axis."""
    stops = list(shape(value))
    if (first, last) == (0, stops[axis]):
        return value
    starts = [0] * len(stops)
    starts[axis], stops[axis] = first, last
    return call.emit.slice(value, starts=starts, stops=stops)


def _operands(call: Call) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Queries, keys and values. Raises NotCoveredError for what PyTorch's own kernel runs."""
    q, k, v = (call.tensor(name) for name in ("query", "key", "value"))
    if call["dropout_p"]:
        raise NotCoveredError("drops out")
    if call.exported:
        return q, k, v
    if dtype(q) not in (F32, F64):
        raise NotCoveredError(f"is run by PyTorch's own kernel: no code is generated for attention of {dtype(q)}")
    problem = attention_problem(shape(q)[-2], shape(k)[-2], shape(k)[-1], shape(v)[-1], dtype(q).itemsize)
    if problem is not None:
        raise NotCoveredError(f"is run by PyTorch's own kernel: {problem}")
    return q, k, v


def _refuse_training(call: Call, q: SSAValue, k: SSAValue) -> None:
    """What holds for the forward graph holds for the backward one, too: one reads what the other keeps of its rows."""
    if _weight_bytes(q, k) > MOST_BLOCKS * MOST_WEIGHTS:
        raise NotCoveredError("is run by PyTorch's own kernel: its backward graph would have large weights in memory")


def _weight_bytes(q: SSAValue, k: SSAValue) -> int:
    return prod((*shape(q)[:-1], shape(k)[-2], dtype(q).itemsize))


def _scale(call: Call, q: SSAValue) -> float:
    return shape(q)[-1] ** -0.5 if call["scale"] is None else float(call["scale"])


def _scores(call: Call, q: SSAValue, k: SSAValue, first: tuple[int, int] = (0, 0)) -> SSAValue:
    """The scores of queries and keys, from those of these numbers on, masked, as the record of attention has them."""
    emit = call.emit
    products = emit.matmul(q, k, transpose_rhs=True)
    scores = emit.multiply(products, call.number(_scale(call, q), dtype(q)))
    queries, keys = shape(scores)[-2:]
    if call["is_causal"]:
        kept = emit.greater_equal(_positions(call, [queries, 1], 0, first[0]), _positions(call, [1, keys], 1, first[1]))
        scores = emit.where(kept, scores, _lowest(call, scores))
    for mask in _mask(call):
        for axis, start, count in ((-2, first[0], queries), (-1, first[1], keys)):
            if len(shape(mask)) >= -axis and shape(mask)[axis] != 1:
                mask = _part(call, mask, start, start + count, axis)
        is_choice = dtype(mask) is BOOL
        scores = emit.where(mask, scores, _lowest(call, scores)) if is_choice else emit.add(scores, mask)
    return scores


def _positions(call: Call, extents: list[int], axis: int, first: int) -> SSAValue:
    """The numbers of queries or of keys."""
    found = call.emit.iota(shape=extents, axis=axis, dtype=I64)
    return call.emit.add(found, call.number(first, I64)) if first else found


def _mask(call: Call) -> list[SSAValue]:
    return [call.tensor("attn_mask")] if call.has("attn_mask") else []


def _lowest(call: Call, like: SSAValue) -> SSAValue:
    return call.number(float("-inf"), dtype(like))


def _finite(call: Call, rows: SSAValue) -> SSAValue:
    """The same with 0 in rows that a mask leaves no key, where differences to -inf were NaN."""
    emit = call.emit
    return emit.where(emit.equal(rows, _lowest(call, rows)), call.number(0.0, dtype(rows)), rows)


def _row_logarithms(call: Call, q: SSAValue, k: SSAValue) -> SSAValue:
    """log(sum(exp(scores))) of each query, -inf where it has no key; all but the logarithm is what attention computes anyway."""
    emit, last = call.emit, [len(shape(q)) - 1]
    scores = _scores(call, q, k)
    largest = emit.max(scores, axes=last, keepdims=True)
    if _mask(call):
        largest = _finite(call, largest)
    total = emit.sum(emit.exp(emit.subtract(scores, largest)), axes=last, keepdims=True)
    return call.reshaped(emit.add(emit.log(total), largest), shape(q)[:-1])
