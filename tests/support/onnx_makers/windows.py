"""Nodes over windows: convolutions, pools, resizing."""

from __future__ import annotations

from typing import Any

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
        # else onnxruntime counts with the rounded extent, the reference with the exact one
        whole = how in ("align_corners", "tf_crop_and_resize")
        scales = [1.0] * len(head) + [
            b.rng.choice((1.0, 2.0, 3.0) if whole else (0.5, 0.75, 1.5, 1.3)) for _ in spatial
        ]
        b.node("Resize", [x, region, b.known(scales, "float32")], **more, **axes)
