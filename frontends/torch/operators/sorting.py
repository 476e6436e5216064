"""Records of orders and running totals along an axis: sort, cumsum, cumprod, searchsorted."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.dtypes import BOOL, I64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

SORTING, handler = handlers()


@handler("aten.cumsum.default", "aten.cumprod.default")
def _cumulative(call: Call) -> SSAValue:
    x = call.tensor("self", call.dtype)
    if not shape(x):
        return x
    total = call.emit.cumulative_sum if "cumsum" in str(call.node.target) else call.emit.cumulative_prod
    return total(x, axis=call["dim"] % len(shape(x)))


@handler("aten.sort.default", "aten.sort.stable")
def _sort(call: Call) -> Sequence[SSAValue]:
    x = call.tensor("self")
    if not shape(x) or dtype(x) is BOOL:
        raise NotCoveredError("is over a scalar or truth values")
    options = {"axis": call["dim"] % len(shape(x)), "descending": bool(call["descending"])}
    if not call.is_used(1):
        return call.emit.sort(x, **options), call.number(0, I64, call.extents(call.out[1]))
    if not call.arguments.get("stable"):
        raise NotCoveredError("may give equal elements in any order, and who reads the order wants PyTorch's")
    order = call.emit.argsort(x, **options)
    return call.emit.take_along_axis(x, order, axis=options["axis"]), order


@handler("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def _searchsorted(call: Call) -> SSAValue:
    bounds = call.tensor("boundaries" if "boundaries" in call.arguments else "sorted_sequence")
    values = call.tensor("self")
    if len(shape(bounds)) != 1 or call.arguments.get("sorter") is not None:
        raise NotCoveredError("searches several rows, or rows in another order")
    if dtype(bounds) is not dtype(values):
        raise NotCoveredError("searches another type than that of the values")
    is_right = bool(call["right"]) or call.arguments.get("side") == "right"
    flat = call.reshaped(values, call.shape)
    return call.cast(call.emit.searchsorted(bounds, flat, side="right" if is_right else "left"), call.dtype)
