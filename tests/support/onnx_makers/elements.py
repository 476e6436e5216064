"""Nodes of random ONNX graphs that work on each element, and conversions."""

from __future__ import annotations

from typing import Any

from onnx_programs import ANY, FLOATS, INTEGERS, NUMBERS, Builder, as_dtype, helper

SMOOTH = [
    "Abs",
    "Neg",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softsign",
    "Softplus",
    "Erf",
    "Exp",
    "Sin",
    "Cos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Elu",
    "Selu",
    "Celu",
    "LeakyRelu",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Gelu",
    "ThresholdedRelu",
    "Identity",
]
STEPS = ("Floor", "Ceil", "Round", "Sign", "Shrink", "IsNaN", "IsInf", "Hardmax")
PARAMETERS = {
    "Elu": ("alpha",), "Celu": ("alpha",), "LeakyRelu": ("alpha",), "Selu": ("alpha", "gamma"), "Shrink": ("lambd", "bias"),
    "HardSigmoid": ("alpha", "beta"), "ThresholdedRelu": ("alpha",),
}  # fmt: skip
RANGES = {
    "Sqrt": (0, 4), "Log": (0.125, 4), "Reciprocal": (0.25, 3), "Acos": (-1, 1), "Asin": (-1, 1), "Acosh": (1, 4),
    "Atanh": (-0.875, 0.875), "Tan": (-1, 1),
}  # fmt: skip
EXACT = {"Abs", "Neg", "Relu", "Identity", *STEPS}


def parameters(b: Builder, op: str) -> dict[str, Any]:
    return {name: b.rng.choice((0.25, 0.5, 1.5, 2.0)) for name in PARAMETERS.get(op, ()) if b.chance(0.5)}


def smooth(b: Builder) -> None:
    op = b.rng.choice(SMOOTH)
    more: dict[str, Any] = {"approximate": b.rng.choice(("none", "tanh"))} if op == "Gelu" and b.chance(0.7) else {}
    kinds = NUMBERS if op in ("Abs", "Neg", "Relu", "Identity", "Erf") else FLOATS
    b.node(op, [b.pick(kinds)], exact=op in EXACT, **parameters(b, op), **more)


def steps(b: Builder) -> None:
    op = b.rng.choice(STEPS)
    x = b.pick(FLOATS, 1 if op == "Hardmax" else 0, exact=True)
    more: dict[str, Any] = {"axis": b.axis(x.rank)} if op == "Hardmax" and b.chance(0.7) else {}
    if op == "Round":
        x = b.fresh(x.shape, x.dtype, -9, 9)
    b.node(op, [x], exact=True, **parameters(b, op), **more)


def ranged(b: Builder) -> None:
    op, (low, high) = b.rng.choice(list(RANGES.items()))
    b.node(op, [b.fresh(b.shape(), b.rng.choice(FLOATS), low, high)])


def binary(b: Builder) -> None:
    op = b.rng.choice(("Add", "Sub", "Mul", "Mul", "Max", "Min", "PRelu"))
    x = b.pick(FLOATS if op == "PRelu" else NUMBERS)
    y = b.partner(x)
    swap = op != "PRelu" and b.chance(0.3)
    b.node(op, [y, x] if swap else [x, y], exact=op in ("Max", "Min") or not x.is_float)


def several(b: Builder) -> None:
    op = b.rng.choice(("Max", "Min", "Sum", "Mean"))
    x = b.pick(FLOATS)
    b.node(op, [x, *(b.partner(x) for _ in range(b.rng.choice((0, 1, 2, 3))))], exact=op in ("Max", "Min"))


def quotients(b: Builder) -> None:
    x = b.pick(NUMBERS, exact=True)
    y = b.partner(x, 1, 3)
    if x.is_float and b.chance(0.5):
        b.node("Pow", [b.fresh(x.shape, x.dtype, 0.5, 2), b.fresh(b.broadcastable(x.shape), b.rng.choice(NUMBERS))])
    elif b.chance(0.5):
        b.node("Div", [x, y], exact=not x.is_float)
    else:
        b.node("Mod", [x, y], exact=True, fmod=1 if x.is_float else b.rng.choice((0, 1, None)))


def integer_powers(b: Builder) -> None:
    x = b.fresh(b.shape(), b.rng.choice(("int32", "int64")), -3, 3)
    b.node("Pow", [x, b.fresh(b.broadcastable(x.shape), b.rng.choice((x.dtype, "int64")), 0, 1)], exact=True)


def comparisons(b: Builder) -> None:
    op = b.rng.choice(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    x = b.pick(ANY if op == "Equal" else NUMBERS, exact=True)
    b.node(op, [x, b.fresh(b.broadcastable(x.shape), x.dtype)], exact=True)


def logic(b: Builder) -> None:
    x = b.pick(("bool",))
    op = b.rng.choice(("And", "Or", "Xor", "Not"))
    b.node(op, [x] if op == "Not" else [x, b.partner(x)], exact=True)


def bits(b: Builder) -> None:
    op = b.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if op == "BitShift":
        x = b.fresh(b.shape(), b.rng.choice(("uint8", "uint32", "uint64")), 0, 99)
        y = b.fresh(b.broadcastable(x.shape), x.dtype, 0, 2)
        b.node(op, [x, y], exact=True, direction=b.rng.choice(("LEFT", "RIGHT")))
        return
    x = b.pick(INTEGERS)
    b.node(op, [x] if op == "BitwiseNot" else [x, b.partner(x)], exact=True)


def where(b: Builder) -> None:
    x = b.pick(ANY)
    condition = b.pick(("bool",)) if b.chance(0.3) else b.fresh(b.broadcastable(x.shape), "bool")
    operands = [x, b.partner(x)]
    b.rng.shuffle(operands)
    b.node("Where", [condition, *operands], exact=True)


def clip(b: Builder) -> None:
    x = b.pick(NUMBERS)
    low, high = (b.feed(b.array((), x.dtype, *r)) if b.chance(0.7) else None for r in ((-2, 0), (0, 2)))
    b.node("Clip", [x, low, high] if high else [x, low] if low else [x], exact=True)


def casts(b: Builder) -> None:
    to = b.rng.choice((*ANY, "uint16", "int16", "uint32", "uint64"))
    x = b.pick(ANY, exact=to not in FLOATS)
    if to.startswith("u") and x.dtype not in ("bool", "uint8"):
        x = b.fresh(x.shape, x.dtype, 0, 5)

    if b.chance(0.3) and b.opset >= 15:
        b.node("CastLike", [x, b.fresh(b.shape(), to)], exact=True)
        return
    b.node("Cast", [x], exact=True, to=int(helper.np_dtype_to_tensor_dtype(as_dtype(to))))
