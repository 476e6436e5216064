"""Steps behind an op as oneDNN's post-ops: those that mean the same for every number, NaN and infinities included.

`relu`, `exp` and clipping give no NaN for NaN in oneDNN, `sigmoid` no subnormal numbers, and `gelu` by the error function NaN for
infinity (with AVX-512): they are for `fast` implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuse_opt.dialects.implementation.chains import ChainOffer, Link, has_all_elements
from fuse_opt.runtime.backends.onednn.primitives import Dense, PostOp

MOST = 32
_ADD, _MULTIPLY, _DIVIDE, _SUBTRACT = 0x1FFF0, 0x1FFF1, 0x1FFF4, 0x1FFF5
_LINEAR = 0x26
_GELU_TANH = 0x2B, 0.0, 0.0
_Config = Mapping[str, object]
_Eltwise = tuple[int, float, float]


def _number(config: _Config, name: str, otherwise: float) -> float:
    value = config.get(name, otherwise)
    return float(value) if isinstance(value, int | float) else otherwise


_EXACT: Mapping[str, Callable[[_Config], _Eltwise | None]] = {
    "graph.abs": lambda config: (0x24, 0.0, 0.0),
    "graph.sqrt": lambda config: (0x25, 0.0, 0.0),
    "graph.square": lambda config: (0x23, 0.0, 0.0),
    "graph.tanh": lambda config: (0x21, 0.0, 0.0),
    "graph.silu": lambda config: (0x2C, 1.0, 0.0),
    "graph.gelu": lambda config: _GELU_TANH if config.get("approximate") == "tanh" else None,
    "graph.leaky_relu": lambda config: (0x20, a, 0.0) if (a := _number(config, "alpha", 0.01)) else None,
}
_LOOSE: Mapping[str, Callable[[_Config], _Eltwise | None]] = {
    "graph.gelu": lambda config: _GELU_TANH if config.get("approximate") == "tanh" else (0x31, 0.0, 0.0),
    "graph.relu": lambda config: (0x20, 0.0, 0.0),
    "graph.exp": lambda config: (0x2A, 0.0, 0.0),
    "graph.sigmoid": lambda config: (0x29, 0.0, 0.0),
}
_BINARY = {"graph.add": _ADD, "graph.multiply": _MULTIPLY, "graph.subtract": _SUBTRACT, "graph.divide": _DIVIDE}
_COMMUTES = ("graph.add", "graph.multiply")


def _eltwise(link: Link, fast: bool) -> _Eltwise | None:
    """A step that reads nothing else but a number."""
    if link.number is not None:
        if link.swapped and link.op not in _COMMUTES:
            return None
        match link.op:
            case "graph.multiply":
                return _LINEAR, link.number, 0.0
            case "graph.add":
                return _LINEAR, 1.0, link.number
            case "graph.subtract":
                return _LINEAR, 1.0, -link.number
            case _:
                return None
    make = (_LOOSE.get(link.op) if fast else None) or _EXACT.get(link.op)
    return None if make is None else make(dict(link.config))


def _accepts(link: Link, fast: bool) -> str | None:
    if (
        link.dtype != "f32"
    ):  # oneDNN computes in f32, which does not hold all integers and rounds once for narrow floats
        return f"step-{link.dtype}"
    if link.operand is None:
        return None if _eltwise(link, fast) is not None else f"step-{link.op}"
    if link.op not in _BINARY or link.config:
        return f"step-{link.op}"
    return "step-order" if link.swapped and link.op not in _COMMUTES else None


def _overwrites(links: Sequence[Link]) -> list[int]:
    """A sum that comes first: the library begins its own sums with what is in the place of the result."""
    first = [number for number, link in enumerate(links[:1]) if link.operand is not None]
    return [number for number in first if links[number].op == "graph.add"]


STEPS = (
    "add, multiply, subtract or divide by a vector, a tensor or a number, tanh, gelu (tanh), silu, leaky_relu, abs, sqrt, "
    "square"
)
EXACT = ChainOffer(lambda link: _accepts(link, False), STEPS, MOST, _overwrites)
FAST = ChainOffer(lambda link: _accepts(link, True), f"{STEPS}, gelu, relu, exp, sigmoid", MOST, _overwrites)


def post_ops(links: Sequence[Link], out: Dense, overwritten: int | None = None) -> list[PostOp]:
    """
    The steps, all of which an offer took; `overwritten` is the one whose operand the result lies over. Operands are aligned to
    the result; those of its extents lie as it does, others in C order.
    """
    found: list[PostOp] = []
    for number, link in enumerate(links):
        if number == overwritten:
            found.append(PostOp("sum"))
        elif link.operand is not None:
            found.append(
                PostOp(
                    "binary", _BINARY[link.op], operand=out if link.whole else Dense.in_order(link.extents, out.dtype)
                )
            )
        else:
            step = _eltwise(link, fast=True)
            assert step is not None, link
            found.append(PostOp("eltwise", *step))
    return found


def sums_of(links: Sequence[Link], result: Sequence[int]) -> list[int]:
    """The steps, by number, whose operand the result may lie over."""
    return [number for number in _overwrites(links) if has_all_elements(links[number], result)]
