"""Algebra on scalar bodies that changes no result: not for NaN, infinities or signed zeros, nor by rounding."""

from __future__ import annotations

from collections.abc import Mapping

from .scalar import Scalar, topological

_NEUTRAL_RIGHT = {"mul": 1, "div": 1, "sub": 0, "or": 0, "xor": 0}
_NEUTRAL_LEFT = {"mul": 1, "or": 0, "xor": 0}
_IDEMPOTENT = ("and", "or", "max", "min")


def simplify(body: Scalar, constants: Mapping[int, Scalar]) -> Scalar:
    """The body with some operands known; only exact rewrites are applied."""
    done: dict[int, Scalar] = {}
    for node in topological(body):
        if node.function == "operand" and int(node.value) in constants:
            done[id(node)] = constants[int(node.value)]
            continue
        args = tuple(done[id(arg)] for arg in node.args)
        same = all(new is old for new, old in zip(args, node.args, strict=True))
        done[id(node)] = _rewrite(node if same else Scalar(node.function, args, node.dtype, node.value))
    return done[id(body)]


def _rewrite(node: Scalar) -> Scalar:
    match node.function, node.args:
        case "cast", (x,) if x.dtype is node.dtype:
            return x
        case ("neg" | "not") as name, (Scalar(function=inner, args=(x,)),) if inner == name:
            return x
        case "select", (Scalar(function="constant", value=condition), x, y):
            return x if condition else y
        case "select", (_, x, y) if x is y:
            return x
        case name, (x, y) if x is y and name in _IDEMPOTENT:
            return x
        case "add", (x, y) if not node.dtype.is_float and _is(y, 0):
            return x
        case "add", (x, y) if not node.dtype.is_float and _is(x, 0):
            return y
        case name, (x, y) if name in _NEUTRAL_RIGHT and _is(y, _NEUTRAL_RIGHT[name]):
            return x
        case name, (x, y) if name in _NEUTRAL_LEFT and _is(x, _NEUTRAL_LEFT[name]):
            return y
        case _:
            return node


def _is(node: Scalar, value: int) -> bool:
    """Whether the node is the constant; for 0, the positive one: x - (-0.0) is not x for x = -0.0."""
    if node.function != "constant" or node.value != value:
        return False
    return not (node.dtype.is_float and str(node.value).startswith("-"))
