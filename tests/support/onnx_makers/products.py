"""Nodes of products, norms and recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_programs import FLOATS, Builder, Tensor

from onnx_makers.windows import images, optional


def products(b: Builder) -> None:
    dtype = b.rng.choice((*FLOATS, "int32", "int64"))
    m, k, n = b.extent(), b.extent(), b.extent()
    batch = b.shape(0, 2) if b.chance(0.6) else ()
    batch = tuple(min(size, 4) for size in batch)
    lhs, rhs = (*b.broadcastable(batch), m, k), (*b.broadcastable(batch), k, n)
    if b.chance(0.15):
        lhs = (k,)
    if b.chance(0.15):
        rhs = (k,)
    found = [t for t in b.tensors if t.dtype == dtype and t.rank >= 2 and t.array.size]
    if found and b.chance(0.6):
        x = b.rng.choice(found)
        rhs = (x.shape[-1], n)
    else:
        x = b.fresh(lhs, dtype)
    b.node("MatMul", [x, b.fresh(rhs, dtype)], exact=dtype.startswith("int"))


def gemms(b: Builder) -> None:
    dtype = b.rng.choice((*FLOATS, "int32"))
    m, k, n = b.extent(), b.extent(), b.extent()
    a, c = b.chance(0.4), b.chance(0.4)
    addend = [b.fresh(b.broadcastable((m, n)), dtype)] if b.chance(0.6) else []
    numbers = (1.0, 2.0) if dtype == "int32" else (0.5, 1.0, 2.0, 0.0)
    more: dict[str, Any] = {
        "alpha": optional(b, b.rng.choice(numbers), 0.4),
        "beta": optional(b, b.rng.choice(numbers), 0.4),
    }
    operands = [b.fresh((k, m) if a else (m, k), dtype), b.fresh((n, k) if c else (k, n), dtype), *addend]
    b.node("Gemm", operands, transA=int(a) or None, transB=int(c) or None, **more)


def einsums(b: Builder) -> None:
    sizes = {letter: b.rng.choice((1, 2, 3, 5)) for letter in "abcd"}
    equation = b.rng.choice(
        ("ab,bc->ac", "ab,cb->ca", "abc,abd->acd", "abc,cd->abd", "a,b->ab", "aab->b", "ab,ab->", "abc->cab", "ab,b", "ab->",
         "...a,ab->...b", "abc,bd,a->dc", "aa->a", "a...b,b...->a...")
    )  # fmt: skip
    operands: list[Tensor] = []
    for term in equation.partition("->")[0].split(","):
        shape = [size for part in term.replace("...", ".") for size in ((3, 2) if part == "." else (sizes[part],))]
        operands.append(b.fresh(shape, b.rng.choice(("float32", "float64")) if not operands else operands[0].dtype))
    b.node("Einsum", operands, equation=equation)


def norms(b: Builder) -> None:
    dtype = b.rng.choice(FLOATS)
    epsilon = b.rng.choice((None, 1e-3))
    match b.rng.choice(("batch", "instance", "group", "layer", "layer", "rms", "lp", "lrn", "mvn")):
        case "layer" | "rms" as name:
            x = b.pick((dtype,), 1)
            axis = b.axis(x.rank)
            shape = x.shape[axis % x.rank :]
            scale = b.fresh(shape if b.chance(0.7) else b.broadcastable(shape), dtype)
            bias = [b.fresh(shape, dtype)] if b.chance(0.5) and name == "layer" else []
            if name == "rms":
                b.node("RMSNormalization", [x, scale], axis=axis, epsilon=epsilon)
                return
            more: dict[str, Any] = {"axis": axis if axis != -1 or b.chance(0.5) else None, "epsilon": epsilon}
            b.node("LayerNormalization", [x, scale, *bias], b.rng.choice((1, 1, 3)), **more)
        case "lp":
            x = b.fresh(b.shape(1), dtype, 0.5, 2)
            b.node("LpNormalization", [x], axis=b.axis(x.rank), p=b.rng.choice((None, 1, 2)))
        case "lrn":
            x = images(b, b.rng.choice((3, 8)), 2, dtype)
            more: dict[str, Any] = {
                "alpha": b.rng.choice((None, 0.5)),
                "beta": b.rng.choice((None, 0.5)),
                "bias": b.rng.choice((None, 2.0)),
            }
            b.node("LRN", [x], size=b.rng.choice((1, 3, 5, 4)), **more)
        case "mvn":
            b.node("MeanVarianceNormalization", [images(b, 3, 2, dtype)], axes=b.rng.choice((None, [0, 2], [1, 3])))
        case "batch":
            x = images(b, 3, b.rng.choice((1, 2, 3)), dtype)
            numbers = [b.fresh((3,), dtype, *r) for r in ((-2, 2), (-2, 2), (-1, 1), (0.5, 2))]
            training = b.chance(0.2) and b.opset >= 14
            more: dict[str, Any] = {
                "epsilon": epsilon,
                "momentum": b.rng.choice((None, 0.5)),
                "training_mode": 1 if training else None,
            }
            b.node("BatchNormalization", [x, *numbers], 3 if training else 1, **more)
        case "instance":
            x = images(b, 3, b.rng.choice((1, 2)), dtype)
            b.node("InstanceNormalization", [x, b.fresh((3,), dtype), b.fresh((3,), dtype)], epsilon=epsilon)
        case _:
            x = images(b, 4, b.rng.choice((1, 2)), dtype)
            count = 4 if b.opset >= 21 else 2
            b.node(
                "GroupNormalization",
                [x, b.fresh((count,), dtype), b.fresh((count,), dtype)],
                num_groups=2,
                epsilon=epsilon,
            )


def recurrences(b: Builder) -> None:
    op, count = b.rng.choice(("LSTM", "GRU", "RNN")), b.rng.choice((1, 1, 2))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, width, hidden = b.rng.randint(1, 4), b.rng.choice((1, 2)), b.rng.choice((2, 3)), b.rng.choice((2, 4))
    x = b.fresh((steps, batch, width), "float32")
    weights = [b.fresh((count, gates * hidden, n), "float32", -1, 1) for n in (width, hidden)]
    bias = b.fresh((count, 2 * gates * hidden), "float32") if b.chance(0.5) else None
    lengths = b.feed(b.numbers.integers(1, steps + 1, batch).astype(np.int32), plain=True) if b.chance(0.3) else None
    start = b.fresh((count, batch, hidden), "float32") if b.chance(0.4) else None
    direction = "bidirectional" if count == 2 else b.rng.choice((None, "forward", "reverse"))
    more: dict[str, Any] = {"direction": direction, "hidden_size": hidden, "clip": optional(b, 0.75, 0.2)}
    operands = [x, *weights, bias, lengths, start]
    if op == "LSTM":
        operands.append(b.fresh((count, batch, hidden), "float32") if b.chance(0.4) else None)
        operands.append(b.fresh((count, 3 * hidden), "float32") if b.chance(0.3) else None)
    if op == "GRU":
        more["linear_before_reset"] = b.rng.choice((None, 0, 1))
    b.node(op, operands, 3 if op == "LSTM" else 2, **more)
