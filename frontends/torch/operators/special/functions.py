"""Records of special functions, and of floats taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from fuse_opt.dialects.interfaces.shapes import dtype
from fuse_opt.dialects.types.dtypes import F32, F64
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers

SPECIAL, handler = handlers()

_FUNCTIONS = {
    "aten.digamma.default": "digamma",
    "aten.erfinv.default": "erfinv",
    "aten.special_i0e.default": "i0e",
    "aten.special_i1e.default": "i1e",
}


def _function(overload: str, name: str) -> None:
    """One record of the dialect, in f32 where the result is narrower."""

    def build(call: Call) -> SSAValue:
        return call.result(getattr(call.emit, name)(call.tensor("self", call.compute())))

    handler(overload)(build)


for _overload, _name in _FUNCTIONS.items():
    _function(_overload, _name)


@handler("aten.signbit.default")
def _signbit(call: Call) -> SSAValue:
    x = call.tensor("self")
    if not dtype(x).is_float:
        raise NotCoveredError("is of integers")
    return call.emit.signbit(x)


@handler("aten.nextafter.default")
def _nextafter(call: Call) -> SSAValue:
    if call.dtype not in (F32, F64):
        raise NotCoveredError(f"is of {call.dtype}")
    return call.emit.nextafter(call.tensor("self", call.dtype), call.tensor("other", call.dtype))


@handler("aten.frexp.Tensor")
def _frexp(call: Call) -> Sequence[SSAValue]:
    x = call.tensor("self")
    if dtype(x) not in (F32, F64):
        raise NotCoveredError(f"is of {dtype(x)}")
    found: Any = call.emit.all("frexp", x)
    return found
