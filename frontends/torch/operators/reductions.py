"""Records of reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, I32, I64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

REDUCTIONS, handler = handlers()


def _keepdims(call: Call) -> bool:
    return bool(call.arguments.get("keepdim"))


def _axes(call: Call, x: SSAValue) -> list[int]:
    return call.axes("dim", len(shape(x))) if "dim" in call.arguments else list(range(len(shape(x))))


_REDUCED: dict[str, tuple[str, ...]] = {
    "sum": ("sum.dim_IntList", "sum.default"),
    "mean": ("mean.dim", "mean.default"),
    "prod": ("prod.dim_int", "prod.default"),
    "max": ("amax.default", "max.default"),
    "min": ("amin.default", "min.default"),
    "any": ("any.default", "any.dim", "any.dims"),
    "all": ("all.default", "all.dim", "all.dims"),
}
"""By graph op: overloads that reduce `self`, converted to the type of the result or to truth values first."""


def _reduction(name: str) -> None:
    def build(call: Call) -> SSAValue:
        x = call.tensor("self", BOOL if name in ("any", "all") else call.dtype)
        if not shape(x):
            return call.result(x)
        return call.result(call.emit.all(name, x, axes=_axes(call, x), keepdims=_keepdims(call))[0])

    handler(*(f"aten.{torch_name}" for torch_name in _REDUCED[name]))(build)


for _name in _REDUCED:
    _reduction(_name)


@handler("aten.max.dim", "aten.min.dim")
def _extreme(call: Call) -> Sequence[SSAValue]:
    x, emit = call.tensor("self"), call.emit
    if 0 in shape(x):
        raise NotCoveredError("is over nothing")
    if not shape(x):
        return x, call.number(0, I64)
    axis, keepdims = call["dim"] % len(shape(x)), _keepdims(call)
    value, position = (emit.max, emit.argmax) if "max" in str(call.node.target) else (emit.min, emit.argmin)
    numbers = call.cast(x, I32) if dtype(x) is BOOL else x
    extreme = call.cast(value(numbers, axes=[axis], keepdims=keepdims), dtype(x))
    return extreme, position(numbers, axis=axis, keepdims=keepdims)


@handler("aten.argmax.default", "aten.argmin.default")
def _argument(call: Call) -> SSAValue:
    x = call.tensor("self")
    if dtype(x) is BOOL:
        raise NotCoveredError("is over truth values")
    if not shape(x):
        return call.number(0, I64)
    find = call.emit.argmax if "argmax" in str(call.node.target) else call.emit.argmin
    axis = call["dim"]
    return find(x, axis=None if axis is None else axis % len(shape(x)), keepdims=_keepdims(call))


@handler("aten.var.correction", "aten.std.correction")
def _var(call: Call) -> SSAValue:
    x = call.tensor("self")
    find = call.emit.var if "var" in str(call.node.target) else call.emit.std
    return find(x, axes=_axes(call, x), keepdims=_keepdims(call), correction=_correction(call))


@handler("aten.var_mean.correction", "aten.std_mean.correction")
def _var_mean(call: Call) -> Sequence[SSAValue]:
    x = call.tensor("self")
    options = {"axes": _axes(call, x), "keepdims": _keepdims(call)}
    variance, mean = call.emit.all("var_mean", x, correction=_correction(call), **options)
    return (variance if "var" in str(call.node.target) else call.emit.sqrt(variance)), mean


def _correction(call: Call) -> float:
    given = call["correction"]
    return 1.0 if given is None else float(given)
