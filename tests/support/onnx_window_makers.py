"""Nodes of random ONNX graphs: windows, products, normalisation, sampling, quantisation, attention, recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_programs import FLOATS, Builder, Tensor

REAL = ("float32", "float32", "float32", "float64", "float16")


def optional(b: Builder, value: Any, share: float = 0.6) -> Any:
    return value if b.chance(share) else None


def images(b: Builder, channels: int, count: int, dtype: str) -> Tensor:
    """An operand of windows: a value of the graph where one fits."""
    found = [
        t for t in b.tensors if t.dtype == dtype and t.rank == count + 2 and t.shape[1] == channels and t.array.size
    ]
    if found and b.chance(0.6):
        return b.rng.choice(found)
    least = {1: 50, 2: 14, 3: 6}[count] if b.large else {1: 5, 2: 4, 3: 3}[count]
    return b.fresh((b.rng.choice((1, 2, 3)), channels, *(b.rng.randint(least, least + 6) for _ in range(count))), dtype)


def window(b: Builder, kernel: list[int], pool: bool = False) -> dict[str, Any]:
    """Strides, dilations and pads, as attributes, some of them absent."""
    count = len(kernel)
    found: dict[str, Any] = {"strides": optional(b, [b.rng.choice((1, 1, 2, 3)) for _ in kernel])}
    if not pool or b.opset >= 19:
        found["dilations"] = optional(b, [b.rng.choice((1, 1, 2)) for _ in kernel], 0.4)
    match b.rng.choice(("none", "pads", "pads", "auto")):
        case "pads":
            most = [max(k - 1, 0) if pool else 2 for k in (*kernel, *kernel)]
            found["pads"] = [b.rng.randint(0, m) for m in most]
        case "auto":
            found["auto_pad"] = b.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
            if found.get("dilations") and found["auto_pad"].startswith("SAME") and count:
                found["dilations"] = None
        case _:
            pass
    return found


def convolutions(b: Builder) -> None:
    count, groups = b.rng.choice((1, 2, 2, 2, 3)), b.rng.choice((1, 1, 1, 2, 4))
    inner, outer = groups * b.rng.choice((1, 1, 2, 3, 4, 8)), groups * b.rng.choice((1, 2, 3, 5, 8, 16))
    if b.large and count < 3:
        inner, outer = inner * b.rng.choice((1, 2, 4)), outer * b.rng.choice((1, 2, 4))
    kernel = [b.rng.choice((1, 2, 3, 3, 5)) for _ in range(count)]
    dtype = b.rng.choice(FLOATS)
    x = images(b, inner, count, dtype)
    weight = b.fresh((outer, inner // groups, *kernel), dtype, -1, 1)
    bias = [b.fresh((outer,), dtype)] if b.chance(0.5) else []
    more: dict[str, Any] = {
        "group": groups if groups > 1 or b.chance(0.3) else None,
        "kernel_shape": optional(b, kernel),
    }
    b.node("Conv", [x, weight, *bias], **window(b, kernel), **more)


def transposed(b: Builder) -> None:
    count, groups = b.rng.choice((1, 2, 2, 3)), b.rng.choice((1, 1, 2))
    inner, outer = groups * b.rng.choice((1, 2, 3)), b.rng.choice((1, 2, 3, 8))
    kernel, dtype = [b.rng.choice((3, 4) if b.chance(0.5) else (1, 2)) for _ in range(count)], b.rng.choice(REAL)
    x = images(b, inner, count, dtype)
    more = window(b, kernel)
    strides = more["strides"] or [1] * count
    if any(k < s for k, s in zip(kernel, strides, strict=True)):
        more.pop("auto_pad", None)  # onnxruntime has a smaller result than the operator says
    if b.chance(0.4):
        more["output_padding"] = [b.rng.randint(0, s - 1) for s in strides]
    if b.chance(0.25):
        more.pop("pads", None)
        more["output_shape"] = [n * s + b.rng.choice((0, 0, -1, 1)) for n, s in zip(x.shape[2:], strides, strict=True)]
    bias = [b.fresh((outer * groups,), dtype)] if b.chance(0.5) else []
    weight = b.fresh((inner, outer, *kernel), dtype, -1, 1)
    b.node("ConvTranspose", [x, weight, *bias], group=groups if groups > 1 else None, **more)


def pools(b: Builder) -> None:
    op, count = b.rng.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool")), b.rng.choice((1, 2, 2, 3))
    x = images(b, b.rng.choice((1, 2, 3)), count, b.rng.choice((*REAL, "bfloat16")))
    kernel = [b.rng.choice((1, 2, 3, 4)) for _ in range(count)]
    more = window(b, kernel, pool=True)
    if op == "MaxPool":
        same = more.get("auto_pad", "").startswith("SAME")  # with dilations, onnxruntime pads as if there were none
        more["dilations"] = None if same else optional(b, [b.rng.choice((1, 2)) for _ in kernel], 0.3)
        if b.chance(0.3):
            more["storage_order"] = b.rng.choice((0, 1))
    if op == "LpPool":
        more["p"] = optional(b, b.rng.choice((1, 2, 3)))
    if op != "LpPool" or b.opset >= 18:
        more["ceil_mode"] = b.rng.choice((0, 1, None))
    if op == "AveragePool":
        more["count_include_pad"] = b.rng.choice((0, 1, None))
    b.node(op, [x], 2 if op == "MaxPool" and b.chance(0.4) else 1, kernel_shape=kernel, exact=op == "MaxPool", **more)


def whole_pools(b: Builder) -> None:
    op = b.rng.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = images(b, 3, b.rng.choice((1, 2, 3)), b.rng.choice(REAL))
    b.node(op, [x], p=b.rng.choice((None, 1, 3)) if op == "GlobalLpPool" else None)


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


def resizes(b: Builder) -> None:
    x = images(b, b.rng.choice((1, 2)), b.rng.choice((1, 2, 2)), b.rng.choice(("float32", "float32", "uint8")))
    mode = b.rng.choice(("nearest", "linear", "cubic")) if x.is_float else "nearest"
    transforms = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    how = b.rng.choice(transforms + (["half_pixel_symmetric"] if b.opset >= 19 else []))
    more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": optional(b, how, 0.8)}
    if mode == "nearest":
        more["nearest_mode"] = b.rng.choice((None, "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        more |= {"cubic_coeff_a": b.rng.choice((None, -0.5)), "exclude_outside": b.rng.choice((None, 0, 1))}
    if mode != "nearest" and b.opset >= 18:
        more["antialias"] = b.rng.choice((None, 0, 1))
    spatial = x.shape[2:]
    region = None
    if how == "tf_crop_and_resize" and more["coordinate_transformation_mode"]:
        region = b.known([0.0] * 2 + [0.25] * len(spatial) + [1.0] * 2 + [0.75] * len(spatial), "float32")
        more["extrapolation_value"] = b.rng.choice((None, 2.0))
    axes: dict[str, Any] = {}
    if b.opset >= 18 and b.chance(0.4) and region is None:
        axes = {"axes": [k + 2 - b.rng.choice((0, x.rank)) for k in range(len(spatial))]}
        if b.chance(0.4):
            axes["axes"] = list(range(2, x.rank))  # onnxruntime is wrong of those counted from the end
            more["keep_aspect_ratio_policy"] = b.rng.choice(("stretch", "not_larger", "not_smaller"))
    head = [] if axes else list(x.shape[:2])
    if b.chance(0.5) or "keep_aspect_ratio_policy" in more:
        b.node("Resize", [x, region, None, b.known(head + [b.rng.randint(1, 9) for _ in spatial])], **more, **axes)
    else:
        whole = (
            how == "align_corners"
        )  # else onnxruntime counts with the rounded extent, the reference with the exact one
        scales = [1.0] * len(head) + [
            b.rng.choice((1.0, 2.0, 3.0) if whole else (0.5, 0.75, 1.5, 1.3)) for _ in spatial
        ]
        b.node("Resize", [x, region, b.known(scales, "float32")], **more, **axes)


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


MAKERS = (
    convolutions, convolutions, convolutions, transposed, transposed, pools, pools, pools, whole_pools, products, products,
    products, gemms, gemms, einsums, norms, norms, norms, resizes, resizes, quantised, quantised, byte_products,
    byte_convolutions, dynamic_quantised, recurrences,
)  # fmt: skip
