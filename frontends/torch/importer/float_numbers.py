"""Floats that Python computes from extents while a graph runs: the program computes them, too, where it reads them as tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from xdsl.ir import SSAValue

from fuse_opt.dialects.types.dtypes import F64
from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.builder import Emitter
from fuse_opt.frontends.torch.fx.api import fx, torch
from fuse_opt.frontends.torch.fx.number_errors import is_above_zero

_python: Any = operator
_QUOTIENT = _python.truediv
_OPS: dict[Any, str | None] = {
    operator.add: "add",
    operator.sub: "subtract",
    operator.mul: "multiply",
    _QUOTIENT: "divide",
    operator.neg: "negative",
    torch.sym_float: None,
}
"""By function, the op that gives the same bits for f64; None for one that changes nothing."""


def is_float_number(node: Any, meta: Any, is_number: Callable[[Any], bool]) -> bool:
    """Whether a node is such a float: of extents, and of others for which `is_number` holds."""
    if not isinstance(meta, torch.SymFloat) or node.op != "call_function" or node.target not in _OPS or node.kwargs:
        return False
    if node.target is _QUOTIENT and not is_above_zero(node.args[1]):
        return False  # where it is, Python raises an error
    return all(isinstance(item, int | float) or (isinstance(item, fx.Node) and is_number(item)) for item in node.args)


def float_number(emit: Emitter, node: Any, value: Callable[[Any], SSAValue], metas: Callable[[Any], Any]) -> SSAValue:
    """The float as a tensor of rank 0 of f64, rounded where Python rounds; `value` gives those that it is computed from."""

    def operand(item: Any) -> SSAValue:
        known = metas(item) if isinstance(item, fx.Node) else item
        return emit.number(known, F64) if isinstance(known, int | float | Size) else value(item)

    operands, name = [operand(item) for item in node.args], _OPS[node.target]
    return operands[0] if name is None else getattr(emit, name)(*operands)
