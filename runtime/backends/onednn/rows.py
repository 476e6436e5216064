"""Softmax and layer normalization as problems of oneDNN: of the rows of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fuse_opt.dialects.implementation.site import Saved
from fuse_opt.lowering.program import SAVED, ConfigValue
from fuse_opt.runtime.backends.onednn.primitives import Dense, PostOp, Problem, Rows
from fuse_opt.runtime.backends.onednn.products import Call, cut_rows

_EPSILON = 1e-5
"""Of a normalization that says none."""


def softmax_call(
    operands: Sequence[Dense], out: Dense, config: Mapping[str, ConfigValue], posts: Sequence[PostOp] = ()
) -> Call | None:
    """A softmax along the last axis of an array in C order; None along another one."""
    return _rows_call(operands[0], out, config, 1, Rows())


def layer_norm_call(
    operands: Sequence[Dense], out: Dense, config: Mapping[str, ConfigValue], posts: Sequence[PostOp] = ()
) -> Call | None:
    """
    A normalization over the last axes of an array in C order, with a scale, or that and what is added; variances and means of
    rows are left where `config` says so.
    """
    x, *parameters = operands
    epsilon, axis = config.get("epsilon"), _axis(config, len(x.shape))
    columns = prod(x.shape[axis:])
    flat = tuple(Dense.in_order((columns,), parameter.dtype) for parameter in parameters)
    statistics = (Dense.in_order((prod(x.shape[:axis]),), "f32"),) * (2 if SAVED in config else 0)
    rows = Rows(float(epsilon) if isinstance(epsilon, int | float) else _EPSILON, flat, statistics)
    return _rows_call(x, out, config, len(x.shape) - axis, rows)


def is_left(rank: int, config: Mapping[str, ConfigValue], saved: Saved) -> str | None:
    """Why a normalization of so many axes does not leave what another op makes: None of variances and means of its rows."""
    found = dict(saved.config)
    if saved.op != "graph.var_mean" or saved.operands != (0,):
        return "op"
    axes = found.get("axes", tuple(range(rank)))
    if not isinstance(axes, tuple) or {int(axis) % rank for axis in axes} != set(range(_axis(config, rank), rank)):
        return "axes"
    return "correction" if found.get("correction", 0) else None


def _rows_call(x: Dense, out: Dense, config: Mapping[str, ConfigValue], inner: int, rows: Rows) -> Call | None:
    """Over so many inner axes, where those are all from the axis on."""
    rank = len(x.shape)
    if 0 in x.shape or _axis(config, rank) != rank - inner:
        return None
    matrix = prod(x.shape[: rank - inner]), prod(x.shape[rank - inner :])
    src, dst = Dense.in_order(matrix, x.dtype), Dense.in_order(matrix, out.dtype)
    return cut_rows(Problem(src, None, dst, rows=rows))


def _axis(config: Mapping[str, ConfigValue], rank: int) -> int:
    axis = config.get("axis", -1)
    assert isinstance(axis, int)
    return axis % rank
