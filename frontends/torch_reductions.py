"""Records of reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.dtypes import BOOL
from fuse_opt.dialects.graph_op import dtype, shape
from fuse_opt.frontends.torch_records import Call, NotCoveredError, records

REDUCTIONS, record = records()


def _keepdims(call: Call) -> bool:
    return bool(call.arguments.get("keepdim"))


def _axes(call: Call, x: SSAValue) -> list[int]:
    return call.axes("dim", len(shape(x))) if "dim" in call.arguments else list(range(len(shape(x))))


@record("aten.sum.dim_IntList", "aten.sum.default")
def _sum(call: Call) -> SSAValue:
    x = call.tensor("self", call.dtype)
    return call.emit.sum(x, axes=_axes(call, x), keepdims=_keepdims(call)) if shape(x) else x


@record("aten.mean.dim", "aten.mean.default")
def _mean(call: Call) -> SSAValue:
    x = call.tensor("self", call.dtype)
    return call.emit.mean(x, axes=_axes(call, x), keepdims=_keepdims(call))


@record("aten.prod.dim_int", "aten.prod.default")
def _prod(call: Call) -> SSAValue:
    x = call.tensor("self", call.dtype)
    return call.emit.prod(x, axes=_axes(call, x), keepdims=_keepdims(call)) if shape(x) else x


@record("aten.amax.default", "aten.max.default")
def _amax(call: Call) -> SSAValue:
    x = call.tensor("self")
    return call.emit.max(x, axes=_axes(call, x), keepdims=_keepdims(call)) if shape(x) else x


@record("aten.amin.default", "aten.min.default")
def _amin(call: Call) -> SSAValue:
    x = call.tensor("self")
    return call.emit.min(x, axes=_axes(call, x), keepdims=_keepdims(call)) if shape(x) else x


@record("aten.any.default", "aten.any.dim", "aten.any.dims")
def _any(call: Call) -> SSAValue:
    x = call.tensor("self", BOOL)
    return call.result(call.emit.any(x, axes=_axes(call, x), keepdims=_keepdims(call)) if shape(x) else x)


@record("aten.all.default", "aten.all.dim", "aten.all.dims")
def _all(call: Call) -> SSAValue:
    x = call.tensor("self", BOOL)
    return call.result(call.emit.all("all", x, axes=_axes(call, x), keepdims=_keepdims(call))[0] if shape(x) else x)


@record("aten.max.dim")
def _max_dim(call: Call) -> Sequence[SSAValue]:
    return _extreme(call, "max", "argmax")


@record("aten.min.dim")
def _min_dim(call: Call) -> Sequence[SSAValue]:
    return _extreme(call, "min", "argmin")


def _extreme(call: Call, value: str, position: str) -> Sequence[SSAValue]:
    x = call.tensor("self")
    if not shape(x) or 0 in shape(x):
        raise NotCoveredError("is over a scalar or nothing")
    axis, keepdims = call["dim"] % len(shape(x)), _keepdims(call)
    found = getattr(call.emit, value)(x, axes=[axis], keepdims=keepdims)
    return found, getattr(call.emit, position)(x, axis=axis, keepdims=keepdims)


@record("aten.argmax.default", "aten.argmin.default")
def _argument(call: Call) -> SSAValue:
    x = call.tensor("self")
    if not shape(x) or dtype(x) is BOOL:
        raise NotCoveredError("is over a scalar or truth values")
    find = call.emit.argmax if "argmax" in str(call.node.target) else call.emit.argmin
    axis = call["dim"]
    return find(x, axis=None if axis is None else axis % len(shape(x)), keepdims=_keepdims(call))


@record("aten.var.correction", "aten.std.correction")
def _var(call: Call) -> SSAValue:
    x = call.tensor("self")
    find = call.emit.var if "var" in str(call.node.target) else call.emit.std
    return find(x, axes=_axes(call, x), keepdims=_keepdims(call), correction=_correction(call))


@record("aten.var_mean.correction", "aten.std_mean.correction")
def _var_mean(call: Call) -> Sequence[SSAValue]:
    x = call.tensor("self")
    options = {"axes": _axes(call, x), "keepdims": _keepdims(call)}
    variance, mean = call.emit.all("var_mean", x, correction=_correction(call), **options)
    return (variance if "var" in str(call.node.target) else call.emit.sqrt(variance)), mean


def _correction(call: Call) -> float:
    given = call["correction"]
    return 1.0 if given is None else float(given)
