"""Nodes that reduce, order, or sum up along an axis."""

from __future__ import annotations

from typing import Any

from onnx_programs import FLOATS, NUMBERS, Builder


def reductions(b: Builder) -> None:
    op = b.rng.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"))
    x = b.pick(FLOATS if op in ("LogSumExp", "Prod", "L2") else NUMBERS)
    if op == "LogSum":
        x = b.fresh(x.shape, b.rng.choice(FLOATS), 0.5, 3)
    count = b.rng.randint(0, x.rank)
    axes = [k - b.rng.choice((0, x.rank)) for k in b.rng.sample(range(x.rank), count)]
    more: dict[str, Any] = {"keepdims": b.rng.choice((0, 1, None))}
    by_operand = b.opset >= (13 if op == "Sum" else 18)
    if by_operand and b.chance(0.3):
        more["noop_with_empty_axes"] = 1
    operands = [x, b.known(axes)] if by_operand and (axes or b.chance(0.3)) else [x]
    if not by_operand and axes:
        more["axes"] = axes
    b.node(f"Reduce{op}", operands, exact=op in ("Max", "Min") or not x.is_float, **more)


def arguments(b: Builder) -> None:
    x = b.pick(NUMBERS, 1, exact=True)
    more: dict[str, Any] = {
        "axis": b.axis(x.rank),
        "keepdims": b.rng.choice((0, 1, None)),
        "select_last_index": b.rng.choice((0, 1, None)),
    }
    b.node(b.rng.choice(("ArgMax", "ArgMin")), [x], exact=True, **more)


def orders(b: Builder) -> None:
    """Without ties: which of equal ones comes first is left open."""
    x = b.pick(("float32", "float64", "int64", "int32"), 1)
    distinct = b.feed((b.numbers.permutation(x.array.size).reshape(x.shape) / 4).astype(x.array.dtype))
    if not x.is_float:
        distinct = b.feed(b.numbers.permutation(x.array.size).reshape(x.shape).astype(x.array.dtype))
    axis = b.axis(x.rank)
    k = b.known([b.rng.randint(0 if b.chance(0.1) else 1, max(x.shape[axis], 1))])
    b.node("TopK", [distinct, k], 2, exact=True, axis=axis, largest=b.rng.choice((0, 1, None)))


def totals(b: Builder) -> None:
    x = b.pick(("float32", "float64", "int64", "int32"), 1)
    flags: dict[str, Any] = {"exclusive": b.rng.choice((0, 1, None)), "reverse": b.rng.choice((0, 1, None))}
    b.node("CumSum", [x, b.known(b.axis(x.rank), b.rng.choice(("int64", "int32")))], exact=not x.is_float, **flags)


def softmaxes(b: Builder) -> None:
    x = b.pick(FLOATS, 1)
    b.node(b.rng.choice(("Softmax", "LogSoftmax")), [x], axis=b.rng.choice((None, b.axis(x.rank))))
