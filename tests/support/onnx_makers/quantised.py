"""Nodes on bytes with scales."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_programs import Builder

from onnx_makers.windows import window


def quantised(b: Builder) -> None:
    """With scales that are powers of two, so that all quotients are exact."""
    x, kind = b.pick(("float32",), 1, exact=True), b.rng.choice(("int8", "uint8"))
    axis = b.axis(x.rank)
    per_axis = b.chance(0.4)
    shape = (x.shape[axis],) if per_axis else b.rng.choice(((), (), (1,)))
    scale = b.feed(b.numbers.choice([0.125, 0.25, 0.5], shape).astype(np.float32))
    zero = [b.fresh(shape, kind, 0, 5)] if b.chance(0.7) else []
    more: dict[str, Any] = {"axis": axis if per_axis or b.chance(0.2) else None}
    if b.chance(0.5):
        b.node("QuantizeLinear", [x, scale, *zero], exact=True, **more)
        return
    y = b.fresh(x.shape, kind if zero else b.rng.choice(("int8", "uint8", "int32")), 0, 60)
    b.node("DequantizeLinear", [y, scale, *zero], exact=True, **more)


def byte_products(b: Builder) -> None:
    kinds = [b.rng.choice(("int8", "uint8")) for _ in range(2)]
    m, k, n = b.extent(), b.rng.choice((1, 3, 4, 8, 16, 17)), b.extent()
    batch = b.broadcastable((2,)) if b.chance(0.3) else ()
    lhs, rhs = b.fresh((*batch, m, k), kinds[0], -60, 60), b.fresh((k, n), kinds[1], -60, 60)
    zeros = [b.fresh((), kinds[0], 0, 9), b.fresh(b.rng.choice(((), (n,))), kinds[1], 0, 9)]
    if b.chance(0.6):
        b.node("MatMulInteger", [lhs, rhs, *zeros[: b.rng.choice((0, 1, 2))]], exact=True)
        return
    scales = [b.feed(np.array(s, np.float32)) for s in (0.25, 0.125, 8.0)]
    zero = b.feed(np.array(4, b.rng.choice(("int8", "uint8"))))  # even: onnxruntime rounds behind it in some kernels
    operands = [lhs, scales[0], zeros[0], rhs, scales[1], b.fresh((), kinds[1], 0, 9), scales[2], zero]
    b.node("QLinearMatMul", operands, exact=True)


def byte_convolutions(b: Builder) -> None:
    kinds, groups = [b.rng.choice(("int8", "uint8")) for _ in range(2)], b.rng.choice((1, 1, 2))
    inner, outer = groups * b.rng.choice((1, 2, 8, 16)), groups * b.rng.choice((1, 3, 8))
    kernel = [b.rng.choice((1, 2, 3)) for _ in range(2)]
    x = b.fresh((b.rng.choice((1, 2)), inner, b.rng.randint(4, 8), b.rng.randint(4, 8)), kinds[0], -60, 60)
    w, more = b.fresh((outer, inner // groups, *kernel), kinds[1], -60, 60), {"group": groups, **window(b, kernel)}
    zeros = [b.fresh((), kind, 0, 9) for kind in kinds]
    if b.chance(0.5):
        b.node("ConvInteger", [x, w, *zeros[: b.rng.choice((0, 1, 2))]], exact=True, **more)
        return
    scales = [b.feed(np.array(s, np.float32)) for s in (0.25, 0.125, 16.0)]
    bias = [b.fresh((outer,), "int32")] if b.chance(0.5) else []
    operands = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], b.feed(np.array(4, kinds[0])), *bias]
    b.node("QLinearConv", operands, exact=True, **more)


def dynamic_quantised(b: Builder) -> None:
    """The scale is a quotient, so what is rounded by it may differ by one: only scale and zero point follow exactly."""
    x = b.pick(("float32",), 1, exact=True)
    b.node("DynamicQuantizeLinear", [x], 3)
