"""Rows of quantisation: the definition, element by element, in Python numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import (
    FLOATS,
    IN_F32,
    STORAGE,
    TYPES,
    UNSIGNED,
    Array,
    Case,
    Row,
    converted,
    noise,
    ramp,
    rounded,
    wide,
)

TARGETS = ("i8", "ui8", "i16", "ui16")
LARGEST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}
LAYOUTS: list[tuple[tuple[int, ...], int | None, bool]] = [
    ((4, 6), None, False),
    ((4, 6), None, True),
    ((3, 2, 5), -1, True),
    ((2, 3, 2), 0, True),
    ((5,), None, True),
    ((), None, False),
    ((0, 3), None, True),
]
"""Shape, axis and whether there is a scale for each of its positions."""


def layouts(targets: Sequence[str]) -> Iterator[tuple[str, str, tuple[tuple[int, ...], int | None, bool]]]:
    """Element types of floats and of what they are quantised to, with all layouts in f32 and some in others."""
    for name in FLOATS:
        yield from product([name], targets, LAYOUTS if name == "f32" else LAYOUTS[1:3])


def parameters(name: str, target: str, shape: tuple[int, ...], axis: int | None, many: bool) -> tuple[Array, Array]:
    extents = (shape[min(1, len(shape) - 1) if axis is None else axis],) if many else ()
    scale = converted(np.abs(wide(ramp(name, *extents))) / 64 + 0.03125, name)
    zero = np.zeros(extents) if target in LARGEST else wide(ramp(target, *extents))
    return scale, converted(np.abs(zero) if target in UNSIGNED else zero, target)


def on_axis(values: Array, shape: tuple[int, ...], axis: int | None) -> Any:
    """Parameters, as they broadcast to a shape."""
    if not values.ndim:
        return wide(values)
    extents = [1] * len(shape)
    extents[min(1, len(shape) - 1) if axis is None else axis] = -1
    return wide(values).reshape(extents)


def quotients(x: Array, scale: Any, name: str) -> Array:
    """x / scale in the type that it is computed in, as float64."""
    computed = np.float32 if name in IN_F32 else TYPES[name]
    with np.errstate(all="ignore"):
        return np.asarray(np.divide(wide(x).astype(computed), np.asarray(scale).astype(computed))).astype(np.float64)


def quantized(x: Array, scale: Any, zero: Any, name: str, target: str) -> Array:
    values = quotients(x, scale, name)
    if target in LARGEST:
        return converted(np.clip(values, -LARGEST[target], LARGEST[target]).astype(np.float32), target)
    info = np.iinfo(TYPES[target])
    zero = np.broadcast_to(zero, values.shape)

    def one(value: float, offset: float) -> int:
        if math.isnan(value):
            return 0
        return int(min(max(float(np.rint(value)) + offset, info.min), info.max))

    found = [one(v, z) for v, z in zip(values.reshape(-1).tolist(), zero.reshape(-1).tolist(), strict=True)]
    return np.array(found, TYPES[target]).reshape(values.shape)


def axis_text(axis: int | None) -> str:
    return "" if axis is None else f"axis = {axis} : i64"


def _quantize_cases() -> Iterator[Case]:
    for name, target, (shape, axis, many) in layouts((*TARGETS, *LARGEST)):
        x = converted(wide(noise(name, *shape)) * 8, name)
        scale, zero = parameters(name, target, shape, axis, many)
        value = quantized(x, on_axis(scale, shape, axis), on_axis(zero, shape, axis), name, target)
        yield Case("graph.quantize_linear", axis_text(axis), (x, scale, zero), value)
    halves = np.arange(-6, 7) / 2
    special = np.array([*halves, np.nan, np.inf, -np.inf, 1e9, -1e9, 126.6, -128.5, 254.5, 255.5, 447.0, 470.0, 1e-3])
    for name, target in product(("f32", "f64"), (*TARGETS, *LARGEST)):
        x, one, zero = converted(special, name), np.array(1.0, TYPES[name]), converted(np.array(0.0), target)
        yield Case("graph.quantize_linear", "", (x, one, zero), quantized(x, 1.0, 0.0, name, target))
    for target in LARGEST:
        x = np.array([1e5, -1e5, np.inf, np.nan, 3.3], np.float32)
        operands = (x, np.array(1.0, np.float32), converted(np.array(0.0), target))
        yield Case("graph.quantize_linear", "saturate = false", operands, converted(x, target))


def _dequantize_cases() -> Iterator[Case]:
    for name, source, (shape, axis, many) in layouts((*TARGETS, "i32", *STORAGE)):
        x = ramp(source, *shape)
        scale, zero = parameters(name, source, shape, axis, many)
        for operands in ((x, scale), (x, scale, zero)):
            offset = on_axis(zero, shape, axis) if len(operands) == 3 else 0.0
            value = (wide(x) - offset) * on_axis(scale, shape, axis)
            yield Case("graph.dequantize_linear", axis_text(axis), operands, rounded(value, name))
    for source in ("i8", "ui8", "i16", "ui16", "i32"):
        info = np.iinfo(TYPES[source])
        x, zero = np.array([info.min, 0, info.max], TYPES[source]), np.array(info.max, TYPES[source])
        value = (wide(x) - float(info.max)) * 0.5
        yield Case("graph.dequantize_linear", "", (x, np.array(0.5), zero), value)


def _dynamic_cases() -> Iterator[Case]:
    """With ranges whose 255th part every type holds, so that nothing depends on how it was rounded."""
    ranges = [(-2.0, 49.0), (0.5, 51.0), (-51.0, -1.0), (0.0, 0.0), (-255.0, 255.0)]
    for name, (low, high) in product(("f32", "f64"), ranges):
        x = converted(np.linspace(low, high, 24).reshape(2, 3, 4), name)
        least, most = min(0.0, float(wide(x).min())), max(0.0, float(wide(x).max()))
        scale = rounded((most - least) / 255 or 1.0, name)
        zero = float(np.rint(-least / float(scale)))
        y = quantized(x, float(scale), zero, name, "ui8")
        yield Case("graph.dynamic_quantize_linear", "", (x,), (y, scale, np.array(zero, np.uint8)))
    for name in ("f16", "bf16"):
        x = converted(np.array([-255.0, 0.0, 100.0, 255.0]), name)
        y, zero = np.array([0, 128, 178, 255], np.uint8), np.array(128, np.uint8)
        yield Case("graph.dynamic_quantize_linear", "", (x,), (y, converted(np.array(2.0), name), zero))
    scalar = np.array(5.1, np.float32)
    scale = np.array(np.float32(5.1) / np.float32(255))
    expected = (np.array(255, np.uint8), scale, np.array(0, np.uint8))
    yield Case("graph.dynamic_quantize_linear", "", (scalar,), expected)


ROWS: list[Row] = [
    Row("quantize_linear", FLOATS, _quantize_cases),
    Row("dequantize_linear", (*TARGETS, "i32", *STORAGE), _dequantize_cases),
    Row("dynamic_quantize_linear", FLOATS, _dynamic_cases),
]
