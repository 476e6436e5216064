"""Records of distances between rows, and of histograms."""

from __future__ import annotations

from math import inf, isfinite, prod

import numpy as np
from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

DISTANCES, handler = handlers()
_ROWS = 25
"""More rows than these PyTorch compares by products of matrices, unless told otherwise."""
_PAIRED = 64
"""Rows of which all pairs are worth two tables of indices."""


def _norm(call: Call, difference: SSAValue, p: float) -> SSAValue:
    """The p-norm along the last axis; of p = 0 how many elements are not zero."""
    emit, element, axes = call.emit, dtype(difference), [len(shape(difference)) - 1]
    size = emit.abs(difference)
    if p == inf:
        return emit.max(size, axes=axes)
    if p == 0:
        return emit.sum(emit.minimum(emit.ceil(size), call.number(1, element)), axes=axes)
    if p == 1:
        return emit.sum(size, axes=axes)
    if p == 2:
        return emit.sqrt(emit.sum(emit.square(size), axes=axes))
    powers = emit.sum(emit.pow(size, call.number(p, element)), axes=axes)
    return emit.pow(powers, call.number(1 / p, element))


@handler("aten._cdist_forward.default")
def _cdist(call: Call) -> SSAValue:
    x, y, p, mode = call.tensor("x1"), call.tensor("x2"), call["p"], call["compute_mode"] or 0
    rows, others, width = shape(x)[-2], shape(y)[-2], shape(x)[-1]
    if 0 in (*call.shape, width):
        raise NotCoveredError("has no elements")
    if p == 2 and (mode == 1 or (mode == 0 and max(rows, others) > _ROWS)):
        raise NotCoveredError("is computed by a product of matrices")
    left = call.reshaped(x, [*shape(x)[:-1], 1, width])
    right = call.reshaped(y, [*shape(y)[:-2], 1, others, width])
    difference = call.emit.subtract(left, right)
    if p == inf:  # which is a maximum that passes over what is no number
        difference = call.emit.where(call.emit.isnan(difference), call.number(0, dtype(x)), difference)
    return _norm(call, difference, p)


@handler("aten._pdist_forward.default")
def _pdist(call: Call) -> SSAValue:
    x = call.tensor("self")
    rows, width = shape(x)
    if rows < 2 or width == 0:
        return call.number(0, call.dtype, call.shape)
    if rows > _PAIRED:
        raise NotCoveredError(f"compares more than {_PAIRED} rows")
    places = np.triu_indices(rows, 1)
    left, right = (call.emit.take(x, call.emit.dense(np.asarray(place, np.int64)), axis=0) for place in places)
    return _norm(call, call.emit.subtract(left, right), call["p"])


@handler("aten.histc.default")
def _histc(call: Call) -> SSAValue:
    """How many elements each bin holds; those outside, and what is no number, are counted in a bin that is taken off."""
    x, bins, low, high = call.tensor("self"), call["bins"], float(call["min"]), float(call["max"])
    element, emit, count = dtype(x), call.emit, prod(shape(x))
    if not element.is_float or element.bits < 32:
        raise NotCoveredError("rounds to a narrow type in between")
    if not (low < high and isfinite(low) and isfinite(high)):
        raise NotCoveredError("has the bounds of its data, which may not be finite, or none")
    if count == 0:
        return call.number(0, call.dtype, call.shape)
    flat = call.reshaped(x, [count])
    least, most = call.number(low, element), call.number(high, element)
    scaled = emit.multiply(emit.subtract(flat, least), call.number(bins, element))
    place = emit.cast(emit.divide(scaled, emit.subtract(most, least)), I64)
    place = emit.minimum(place, call.number(bins - 1, I64))  # the last bin holds its upper edge
    inside = emit.logical_and(emit.greater_equal(flat, least), emit.less_equal(flat, most))
    place = emit.where(inside, place, call.number(bins, I64))
    zeros, ones = call.number(0, element, [bins + 1]), call.number(1, element, [count])
    counted = emit.index_put(zeros, ones, place, axes=[0], accumulate=True)
    return emit.slice(counted, starts=[0], stops=[bins])
