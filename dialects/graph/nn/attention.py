"""Attention, defined by decomposition into matrix products and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.creation.constant import scalar_constant
from fuse_opt.dialects.graph.creation.filled import IotaOp
from fuse_opt.dialects.graph.creation.random import RandomUniformOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, MultiplyOp, SubtractOp, WhereOp
from fuse_opt.dialects.graph.elementwise.comparison import EqualOp, GreaterEqualOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp, LogOp
from fuse_opt.dialects.graph.movement.views import BroadcastToOp
from fuse_opt.dialects.graph.nn.rotary_dropout import DropoutOp
from fuse_opt.dialects.graph.reductions.composite import (
    FloatComposite,
    check_shape,
    narrowed,
    number,
    reshaped,
    shares_of,
    softmax_of,
    total_of,
    widened,
)
from fuse_opt.dialects.graph.reductions.reductions import MaxOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import (
    bool_value,
    extents_array,
    flag,
    int_array,
    int_value,
    shape_attribute,
)
from fuse_opt.dialects.interfaces.shapes import AnyTensor, agree, dtype, shape, shape_text, tensor, tensor_type
from fuse_opt.dialects.types.dtypes import BOOL, F32, F64, I64


class Attention(FloatComposite):
    """Attention of queries to keys; with grouped heads, the queries of all heads of a group are rows of one product."""

    SLACK: ClassVar[float] = 64.0
    scale = opt_prop_def(FloatAttr)
    is_causal = opt_prop_def(BoolAttr)
    enable_gqa = opt_prop_def(BoolAttr)
    dropout_p = opt_prop_def(FloatAttr)
    seed = opt_prop_def(IntegerAttr)

    def check_operands(self, q: SSAValue, k: SSAValue, v: SSAValue, further: Sequence[SSAValue]) -> tuple[int, ...]:
        """The shape of the result; raises VerifyException when the operands do not go together."""
        a, b, c = shape(q), shape(k), shape(v)
        if len(a) < 2 or len(b) != len(a) or len(c) != len(a):
            raise VerifyException(
                f"expected q [..., L, E], k [..., S, E] and v [..., S, Ev] of one rank, "
                f"got {', '.join(map(shape_text, (a, b, c)))}"
            )
        if not agree((a[-1], b[-2]), (b[-1], c[-2])):
            raise VerifyException(
                f"q {shape_text(a)} and k {shape_text(b)} must have the same last extent, "
                f"k and v {shape_text(c)} the same last but one"
            )
        grouped = flag(self.enable_gqa) and len(a) > 2
        batch = len(a) - (3 if grouped else 2)
        if (
            not agree(b[:-2], c[:-2])
            or not agree(a[:batch], b[:batch])
            or (grouped and not _divides(b[batch], a[batch]))
        ):
            wanted = "k and v with heads that divide those of q" if grouped else "equal extents before the last two"
            raise VerifyException(f"expected {wanted}, got {', '.join(map(shape_text, (a, b, c)))}; see 'enable_gqa'")
        self.check_floats([q, k, v], list(self._operands).index(q))
        mask, _ = self._split(further)
        self._check_mask(mask, len(self._operands) - len(further), (*a[:-1], b[-2]))
        self._check_dropout((*a, *b), len(further) - len(mask))
        return (*a[:-1], c[-1])

    def _split(self, further: Sequence[SSAValue]) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
        """The mask and the offset, as far as they are there."""
        has_offset = bool(further) and tensor(further[-1]) == TensorType(I64.attribute, [])
        return (further[:-1], further[-1:]) if has_offset else (further, ())

    def _check_dropout(self, extents: Sequence[int], offsets: int) -> None:
        if not 0 <= (p := number(self.dropout_p, 0.0)) < 1:
            raise VerifyException(f"attribute 'dropout_p': expected 0 or more and less than 1, got {p}")
        if (self.seed is None) != (self.dropout_p is None):
            raise VerifyException("expected 'dropout_p' and 'seed' together, or neither")
        if offsets and self.dropout_p is None:
            raise VerifyException("expected no operand 'offset' where nothing is dropped, see 'dropout_p'")
        if DYNAMIC_INDEX in extents and self.dropout_p is not None:
            raise VerifyException("attribute 'dropout_p': expected static shapes, as random numbers follow positions")

    def _check_mask(self, mask: Sequence[SSAValue], first: int, scores: tuple[int, ...]) -> None:
        if len(mask) > 1:
            raise VerifyException(f"expected at most the operands mask and offset behind v, got {len(mask)} masks")
        for value in mask:
            if dtype(value) is not BOOL:
                self.check_floats([value], first)
            given = shape(value)
            aligned = zip(given, scores[len(scores) - len(given) :], strict=False)
            if len(given) > len(scores) or any(n != 1 and not agree((n,), (m,)) for n, m in aligned):
                raise VerifyException(
                    f"operand 'mask': expected a shape that broadcasts to {shape_text(scores)}, got {shape_text(given)}"
                )

    def weights(self, builder: GraphBuilder, q: SSAValue, k: SSAValue, further: Sequence[SSAValue]) -> SSAValue:
        """How much each query takes of each key's value: rows of sum 1, or of zeros where no key is left."""
        scores = self.scores(builder, q, k, further)
        if 0 in shape(scores):
            return scores
        has_mask = bool(self._split(further)[0])
        return _safe_softmax(builder, scores) if has_mask else softmax_of(builder, scores, len(shape(scores)) - 1)

    def scores(self, builder: GraphBuilder, q: SSAValue, k: SSAValue, further: Sequence[SSAValue]) -> SSAValue:
        """The products of queries and keys, scaled and masked."""
        mask, _ = self._split(further)
        transposed = bool_value(True)
        scores = builder(MatmulOp, self.stacked(builder, q, k), k, transpose_rhs=transposed)
        heads = (*shape(q)[:-1], shape(k)[-2])
        scores = reshaped(builder, scores, heads)
        scores = builder(MultiplyOp, scores, scalar_constant(builder, self.factor(q), scores))
        if flag(self.is_causal):
            scores = _where_kept(builder, _causal(builder, heads), scores)
        for value in mask:
            if dtype(value) is BOOL:
                scores = _where_kept(builder, value, scores)
            else:
                scores = builder(AddOp, scores, widened(builder, value))
        return scores

    def dropped(
        self, builder: GraphBuilder, weights: SSAValue, q: SSAValue, k: SSAValue, further: Sequence[SSAValue]
    ) -> SSAValue:
        """The weights, some of them dropped; as they are without `dropout_p`. `weights` may be their gradient."""
        heads, (_, offset) = (*shape(q)[:-1], shape(k)[-2]), self._split(further)
        if self.seed is None or 0 in heads or not (p := number(self.dropout_p, 0.0)):
            return weights
        kind = F64 if dtype(weights) is F64 else F32
        drawn = builder(
            RandomUniformOp, *offset, shape=int_array(heads), dtype=kind.attribute, seed=int_value(self.seed.value.data)
        )
        kept = builder(GreaterEqualOp, drawn, scalar_constant(builder, p, drawn))
        kept = reshaped(builder, kept, shape(weights))
        return builder(DropoutOp, weights, kept, p=FloatAttr(p, 64))

    def factor(self, q: SSAValue) -> float:
        return number(self.scale, max(shape(q)[-1], 1) ** -0.5)

    def stacked(self, builder: GraphBuilder, rows: SSAValue, keys: SSAValue) -> SSAValue:
        """[..., heads, L, n] as [..., key heads, heads of a group * L, n]."""
        given, heads = shape(rows), shape(keys)[:-2]
        count = prod(given[:-1]) // prod(heads) if prod(heads) else 0
        return reshaped(builder, rows, (*heads, count, given[-1]))


def _divides(count: int, whole: int) -> bool:
    return DYNAMIC_INDEX in (count, whole) or (count > 0 and whole % count == 0) or whole == count


def _causal(builder: GraphBuilder, scores: Sequence[int]) -> SSAValue:
    """Whether a key is not behind the query, counted from the first of each."""
    element = I64.attribute
    queries = builder(IotaOp, shape=shape_attribute([scores[-2], 1]), axis=int_value(0), dtype=element)
    keys = builder(IotaOp, shape=shape_attribute([1, scores[-1]]), axis=int_value(1), dtype=element)
    return builder(GreaterEqualOp, queries, keys)


def _where_kept(builder: GraphBuilder, kept: SSAValue, scores: SSAValue) -> SSAValue:
    return builder(WhereOp, kept, scores, scalar_constant(builder, float("-inf"), scores))


def _safe_softmax(builder: GraphBuilder, scores: SSAValue) -> SSAValue:
    """Softmax along the last axis, but 0 in rows of nothing but -inf."""
    powers, total, _, masked = _safe_powers(builder, scores)
    return shares_of(builder, powers, builder(WhereOp, masked, scalar_constant(builder, 1.0, scores), total))


def _safe_powers(builder: GraphBuilder, scores: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
    """
    exp(scores - largest) along the last axis, the sum of these, and the largest, which is 0 in rows of nothing but -inf; and
    whether a row is one.
    """
    axis = len(shape(scores)) - 1
    largest, masked = _finite(builder, builder(MaxOp, scores, axes=int_array([axis]), keepdims=bool_value(True)))
    powers = builder(ExpOp, builder(SubtractOp, scores, largest))
    return powers, total_of(builder, powers, [axis], True), largest, masked


def _finite(builder: GraphBuilder, rows: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The numbers of rows with 0 in the place of -inf, and where that is."""
    masked = builder(EqualOp, rows, scalar_constant(builder, float("-inf"), rows))
    return builder(WhereOp, masked, scalar_constant(builder, 0.0, rows), rows), masked


@irdl_op_definition
class ScaledDotProductAttentionOp(Attention):
    """softmax(q @ transpose(k) * scale, masked) @ v over the last two axes (Vaswani et al. 2017); semantics are torch's.

    Operands are q [..., L, E], k [..., S, E], v [..., S, Ev] and, which may be left out, a mask that broadcasts to
    [..., L, S], and an i64 scalar, the offset of random numbers. The mask is of i1 (true: the query may see the key), or of
    floats, which are added to the scaled products. `scale` is 1 / sqrt(E) when absent. With `is_causal` (default false)
    query i sees the keys up to number i, on top of the mask. With `enable_gqa` (default false) q may have a multiple of the
    heads (axis -3) of k and v, and consecutive heads of q share one (Ainslie et al. 2023). A query that a mask leaves no
    key, or that has none, gets 0. f16 and bf16 are computed in f32, but a weight may be rounded to their type.

    With `dropout_p` and `seed` a weight is 0 where the number at its place in [..., L, S] of `graph.random_uniform` (f64 for
    f64, else f32) of the seed and the offset is below `dropout_p`; other weights are divided by 1 - `dropout_p`.
    """

    name = "graph.scaled_dot_product_attention"
    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    further = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor_type(tensor(self.q).element_type, self.check_operands(self.q, self.k, self.v, self.further)),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        q, k, v = (widened(builder, value) for value in (self.q, self.k, self.v))
        weights = self.dropped(builder, self.weights(builder, q, k, self.further), q, k, self.further)
        weights = self.stacked(builder, weights, k)
        result = reshaped(builder, builder(MatmulOp, weights, v), (*shape(q)[:-1], shape(v)[-1]))
        return (narrowed(builder, result, self.q),)


@irdl_op_definition
class ScaledDotProductAttentionLogsumexpOp(Attention):
    """log(sum(exp(scores))) of each query, over the scores of scaled_dot_product_attention: what its gradients are made from.

    Operands and attributes are those of the op, but there is no v; the result [..., L] is f64 for f64, else f32, and -inf for a
    query without keys. Beside that op it is no more than a logarithm of each row. What is dropped does not count.
    """

    name = "graph.scaled_dot_product_attention_logsumexp"
    q = operand_def(TensorType)
    k = operand_def(TensorType)
    further = var_operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        *rows, _ = self.check_operands(self.q, self.k, self.k, self.further)
        return (tensor_type(dtype(self.q).compute.attribute, rows),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        q, k = (widened(builder, value) for value in (self.q, self.k))
        scores, rows = self.scores(builder, q, k, self.further), shape(q)[:-1]
        if 0 in shape(scores):
            return (builder(BroadcastToOp, scalar_constant(builder, float("-inf"), scores), shape=extents_array(rows)),)
        if self._split(self.further)[0]:
            _, total, largest, _ = _safe_powers(builder, scores)
        else:
            axes = int_array([len(rows)])
            largest = builder(MaxOp, scores, axes=axes, keepdims=bool_value(True))
            total = total_of(builder, builder(ExpOp, builder(SubtractOp, scores, largest)), [len(rows)], True)
        return (reshaped(builder, builder(AddOp, builder(LogOp, total), largest), rows),)


@irdl_op_definition
class ScaledDotProductAttentionBackwardOp(Attention):
    """The gradients (dq, dk, dv) of scaled_dot_product_attention, from `grad`, its operands and attributes, and its results.

    `out` is the result, `logsumexp` that of scaled_dot_product_attention_logsumexp. Weights p are exp(scores - logsumexp); with
    dp = grad @ transpose(v), dv is transpose(p) @ grad, and with ds = p * (dp - sum(grad * out)) * scale, dq is ds @ k and dk
    transpose(ds) @ q (Dao 2023, FlashAttention-2). There is none of the mask. What is dropped, of p for dv and of dp, follows
    from the seed and the offset again. A query without keys has and gives gradients of 0. As weights that a causal mask hides
    are 0, a key that no query sees may have a gradient of 0 where such a query's gradient is infinite or NaN.
    """

    name = "graph.scaled_dot_product_attention_backward"
    grad = operand_def(TensorType)
    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    out = operand_def(TensorType)
    logsumexp = operand_def(TensorType)
    further = var_operand_def(TensorType)
    dq = result_def(TensorType)
    dk = result_def(TensorType)
    dv = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        expected = self.check_operands(self.q, self.k, self.v, self.further)
        check_shape("grad", self.grad, expected)
        check_shape("out", self.out, expected)
        check_shape("logsumexp", self.logsumexp, expected[:-1])
        self.check_floats([self.grad])
        self.check_floats([self.out], 4)
        if dtype(self.logsumexp) is not (wanted := dtype(self.q).compute):
            raise VerifyException(f"operand 'logsumexp': expected {wanted}, got {dtype(self.logsumexp)}")
        return tuple(tensor(value) for value in (self.q, self.k, self.v))

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        operands = self.q, self.k, self.v, self.grad, self.out
        q, k, v, grad, out = (widened(builder, value) for value in operands)
        yes, last = bool_value(True), len(shape(q)) - 1
        delta = total_of(builder, builder(MultiplyOp, grad, out), [last], True)
        row_logs = reshaped(builder, self.logsumexp, (*shape(q)[:-1], 1))
        if self._split(self.further)[0]:
            row_logs, _ = _finite(builder, row_logs)
        scores = self.scores(builder, q, k, self.further)
        weights = self.stacked(builder, builder(ExpOp, builder(SubtractOp, scores, row_logs)), k)
        grad, rows, delta = (self.stacked(builder, value, k) for value in (grad, q, delta))
        kept = self.dropped(builder, weights, q, k, self.further)
        dv = builder(MatmulOp, kept, grad, transpose_lhs=yes)
        inner = builder(MatmulOp, grad, v, transpose_rhs=yes)
        inner = builder(SubtractOp, self.dropped(builder, inner, q, k, self.further), delta)
        scores = builder(MultiplyOp, weights, inner)
        scores = builder(MultiplyOp, scores, scalar_constant(builder, self.factor(q), scores))
        dq = reshaped(builder, builder(MatmulOp, scores, k), shape(q))
        dk = builder(MatmulOp, scores, rows, transpose_lhs=yes)
        return [narrowed(builder, value, self.q) for value in (dq, dk, dv)]
