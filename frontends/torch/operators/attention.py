"""Attention, generated: under inference one kernel; in training with a logarithm of each row's sum, from which the backward
graph computes the weights again. What the kernel does not take is a call of PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.attention import attention_problem
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, F32, F64, I64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

ATTENTION, handler = handlers()
MOST_WEIGHTS = 64 << 20
"""Bytes of all weights, which the backward graph has in memory; PyTorch's kernel never has."""


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
    weights = emit.exp(emit.subtract(_scores(call, q, k), logarithms))
    dv = emit.matmul(weights, grad, transpose_lhs=True)
    delta = emit.sum(emit.multiply(grad, call.tensor("out")), axes=[last], keepdims=True)
    inner = emit.subtract(emit.matmul(grad, v, transpose_rhs=True), delta)
    scores = emit.multiply(emit.multiply(weights, inner), call.number(_scale(call, q), dtype(q)))
    return emit.matmul(scores, k), emit.matmul(scores, q, transpose_lhs=True), dv


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
    *rows, _ = shape(q)
    if prod((*rows, shape(k)[-2], dtype(q).itemsize)) > MOST_WEIGHTS:
        raise NotCoveredError("is run by PyTorch's own kernel: its backward graph would have large weights in memory")


def _scale(call: Call, q: SSAValue) -> float:
    return shape(q)[-1] ** -0.5 if call["scale"] is None else float(call["scale"])


def _scores(call: Call, q: SSAValue, k: SSAValue) -> SSAValue:
    """The scores of queries and keys, masked, as the record of attention has them."""
    emit = call.emit
    products = emit.matmul(q, k, transpose_rhs=True)
    scores = emit.multiply(products, call.number(_scale(call, q), dtype(q)))
    if call["is_causal"]:
        queries, keys = shape(scores)[-2:]
        kept = emit.greater_equal(
            emit.iota(shape=[queries, 1], axis=0, dtype=I64), emit.iota(shape=[1, keys], axis=1, dtype=I64)
        )
        scores = emit.where(kept, scores, _lowest(call, scores))
    for mask in _mask(call):
        is_choice = dtype(mask) is BOOL
        scores = emit.where(mask, scores, _lowest(call, scores)) if is_choice else emit.add(scores, mask)
    return scores


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
