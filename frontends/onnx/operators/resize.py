"""
ONNX operators that sample: Resize, Upsample, AffineGrid at places that are known, as products with constant matrices, and
GridSample at those that data has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from fuse_opt.dialects.interfaces.shapes import dtype, is_static
from fuse_opt.dialects.types.dtypes import F32, F64, I64, DType
from fuse_opt.frontends.builder import Array, Emitter, Value, extents, rank
from fuse_opt.frontends.onnx.operators.node import Node, Results, handler

_TAP_OF_ROWS, _TAP_OF_LINES = 40, 8
"""Multiplications of a product that take as long as one at a place that is read: along rows, where such are gathered, and along
other axes."""


@dataclass(frozen=True)
class Sampling:
    """How Resize reads one axis."""

    size: int
    wanted: int
    length: float
    """As many positions, before that is rounded."""
    scale: float
    transformation: str
    region: tuple[float, float]

    def positions(self) -> Array:
        """Where in the input each element of the result lies."""
        y, length = np.arange(self.wanted, dtype=np.float64), self.length
        start, end = self.region
        match self.transformation:
            case "align_corners":
                return y * 0.0 if length == 1 else y * (self.size - 1) / (length - 1)
            case "asymmetric":
                return y / self.scale
            case "tf_crop_and_resize":
                middle = y * 0.0 + (end - start) * (self.size - 1) / 2
                x = middle if length == 1 else y * (end - start) * (self.size - 1) / (length - 1)
                return x + start * (self.size - 1)
            case "pytorch_half_pixel" if length == 1:
                return y * 0.0 - 0.5
            case "half_pixel_symmetric":
                return self.size / 2 * (1 - self.wanted / length) + (y + 0.5) / self.scale - 0.5
            case "half_pixel" | "pytorch_half_pixel":
                return (y + 0.5) / self.scale - 0.5
            case other:
                raise ValueError(f"coordinate_transformation_mode '{other}' does not exist")


Coefficients = Callable[[float], Array]
"""Of the neighbours of a place, an even number of them, for its distance in (0, 1] from the lower middle one."""


def _coefficients(n: Node, scale: float) -> Coefficients:
    mode, antialias = n.text("mode", "nearest"), n.flag("antialias")
    if mode == "nearest":
        return _nearest(n.text("nearest_mode", "round_prefer_floor"))
    a = n.number("cubic_coeff_a", -0.75)
    reach = 1 if mode == "linear" else 2

    def weight(x: float) -> float:
        return max(1 - x, 0.0) if mode == "linear" else _cubic(x, a)

    shrink = min(scale, 1.0) if antialias else 1.0
    first = int(np.floor(-reach / shrink) + 1)

    def coefficients(ratio: float) -> Array:
        found = np.array([weight(abs(shrink * (k - ratio))) for k in range(first, 2 - first)])
        return found / found.sum() if antialias else found

    return coefficients


def _nearest(mode: str) -> Coefficients:
    upper: dict[str, Callable[[float], bool]] = {
        "round_prefer_floor": lambda ratio: ratio > 0.5,
        "round_prefer_ceil": lambda ratio: ratio >= 0.5,
        "floor": lambda ratio: ratio == 1,
        "ceil": lambda ratio: True,
    }
    return lambda ratio: np.array([0.0, 1.0] if upper[mode](ratio) else [1.0, 0.0])


def _linear(ratio: float) -> Array:
    return np.array([1 - ratio, ratio])


def _cubic(x: float, a: float) -> float:
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((x - 5) * x + 8) * x * a - 4 * a if x < 2 else 0.0


def sampling_matrix(sampling: Sampling, coefficients: Coefficients, exclude_outside: bool) -> Array:
    """The matrix [wanted, size] that an axis is multiplied with."""
    matrix = np.zeros((sampling.wanted, sampling.size))
    for row, position in enumerate(sampling.positions()):
        lower = int(np.ceil(position)) - 1
        weights = coefficients(float(position - lower))
        places = lower + 1 - len(weights) // 2 + np.arange(len(weights))
        if exclude_outside:
            weights = np.where((places < 0) | (places >= sampling.size), 0.0, weights)
            weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(places, 0, sampling.size - 1), weights)
    return matrix


def scaled_length(extent: int, scale: float) -> float:
    """As many positions, before that is rounded: 1.3 in f32 is a little less, and 10 times that, in f32, is 13 again."""
    return float(np.float32(extent) * np.float32(scale))


@handler("Resize")
def resize(n: Node, g: Emitter) -> Results:
    x = n.operand(0)
    axes = [axis % rank(x) for axis in n.integers("axes", range(rank(x)))]
    factors = n.known(2 if n.opset >= 11 else 1).reshape(-1) if n.has(2 if n.opset >= 11 else 1) else np.zeros(0)
    sizes = (n.known_integers(3) or []) if n.opset >= 11 else []
    transformation = "asymmetric" if n.opset < 11 else n.text("coordinate_transformation_mode", "half_pixel")
    region = n.known(1).reshape(-1) if transformation == "tf_crop_and_resize" else np.zeros(0)
    shape, element = extents(x), dtype(x)
    scales = [float(factor) for factor in factors] if factors.size else _scales(n, shape, axes, sizes)
    keeps = n.text("keep_aspect_ratio_policy", "stretch") != "stretch"
    for number, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        if factors.size:
            wanted = int(length := scaled_length(shape[axis], scale))
        elif keeps:
            wanted = int(np.floor((length := shape[axis] * scale) + 0.5))
        else:
            wanted = length = sizes[number]  # 49 times 1 / 49 is less than 1
        start, end = (float(region[number]), float(region[number + len(axes)])) if region.size else (0.0, 1.0)
        if wanted == shape[axis] and scale == 1 and (start, end) == (0.0, 1.0):
            continue
        sampling = Sampling(shape[axis], wanted, length, scale, transformation, (start, end))
        x = _sampled(n, g, x, axis, sampling)
    return g.cast(x, element)


def _scales(n: Node, shape: tuple[int, ...], axes: list[int], sizes: list[int]) -> list[float]:
    scales = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    match n.text("keep_aspect_ratio_policy", "stretch"):
        case "not_larger":
            return [min(scales)] * len(scales)
        case "not_smaller":
            return [max(scales)] * len(scales)
        case _:
            return scales


def _sampled(n: Node, g: Emitter, x: Value, axis: int, sampling: Sampling) -> Value:
    matrix = sampling_matrix(sampling, _coefficients(n, sampling.scale), n.flag("exclude_outside"))
    if n.text("mode", "nearest") == "nearest":
        y = _nearest_read(n, g, x, axis, matrix.argmax(1).astype(np.int64))
    else:
        y = _multiplied(n, g, x, axis, matrix)
    if sampling.transformation != "tf_crop_and_resize":
        return y
    positions = sampling.positions()
    outside = (positions < 0) | (positions > sampling.size - 1)
    condition = g.reshape(n.constant(outside), shape=[-1] + [1] * (rank(x) - 1 - axis))
    return g.where(condition, g.like(n.number("extrapolation_value", 0.0), y), y)


def _nearest_read(n: Node, g: Emitter, x: Value, axis: int, places: Array) -> Value:
    """Elements at places of an axis; each of them as often as the others is no read at places that are data."""
    size = int(extents(x)[axis])
    times = len(places) // max(size, 1)
    if times and np.array_equal(places, np.repeat(np.arange(size), times)):
        return x if times == 1 else g.repeat(x, repeats=times, axis=axis)
    return g.take(x, n.constant(places), axis=axis)


def _multiplied(n: Node, g: Emitter, x: Value, axis: int, matrix: Array) -> Value:
    """The sums of elements of an axis with the weights in rows of a matrix, in f32 or f64: nothing rounds them yet."""
    last = rank(x) - 1
    x = x if dtype(x) is F64 else g.cast(x, F32)
    taps = int((matrix != 0).sum(1).max(initial=0))
    if is_static(x) and taps * (_TAP_OF_ROWS if axis == last else _TAP_OF_LINES) < matrix.shape[1]:
        return _tapped(n, g, x, axis, matrix, taps)
    there = [k for k in range(rank(x)) if k != axis] + [axis]
    back = [*range(axis), last, *range(axis, last)]
    weights = g.cast(n.constant(matrix.astype(np.float32)), dtype(x))
    return g.permute_dims(g.matmul(g.permute_dims(x, axes=there), weights, transpose_rhs=True), axes=back)


def _tapped(n: Node, g: Emitter, x: Value, axis: int, matrix: Array, taps: int) -> Value:
    """The same where few weights are not zero, term by term."""
    places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :taps]
    weights = np.take_along_axis(matrix, places, 1).astype(np.float32)
    shape = [-1 if k == axis else 1 for k in range(rank(x))]
    total: Value | None = None
    for tap in range(taps):
        at = g.reshape(n.constant(places[:, tap].astype(np.int32)), shape=shape)
        weight = g.cast(g.reshape(n.constant(weights[:, tap].copy()), shape=shape), dtype(x))
        term = g.multiply(g.read_at(x, at, axis=axis), weight)
        total = term if total is None else g.add(total, term)
    return g.like(0.0, x) if total is None else total


@handler("Upsample")
def upsample(n: Node, g: Emitter) -> Results:
    x, mode, element = n.operand(0), n.text("mode", "nearest"), dtype(n.operand(0))
    given: Any = n.known(1).reshape(-1) if n.has(1) else n.attributes.get("scales", ())
    for axis, factor in enumerate(given):
        scale, size = float(factor), extents(x)[axis]
        if scale == 1:
            continue
        if mode == "nearest" and scale == int(scale):
            x = g.repeat(x, repeats=int(scale), axis=axis)
            continue
        length = scaled_length(size, scale)
        sampling = Sampling(size, int(length), length, scale, "asymmetric", (0.0, 1.0))
        coefficients = _nearest("floor") if mode == "nearest" else _linear
        x = _multiplied(n, g, x, axis, sampling_matrix(sampling, coefficients, False))
    return g.cast(x, element)


@handler("AffineGrid")
def affine_grid(n: Node, g: Emitter) -> Results:
    theta, (batch, _, *sizes) = n.operand(0), n.known_integers(1) or [0, 0]
    spatial = [int(size) for size in sizes]
    corners = n.flag("align_corners")
    lines = [np.linspace(-1, 1, size) if corners else (np.arange(size) * 2 + 1) / size - 1 for size in spatial]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(spatial)], -1)
    grid = g.cast(n.constant(places.reshape(-1, len(spatial) + 1).astype(np.float32)), dtype(theta))
    return g.reshape(g.matmul(grid, theta, transpose_rhs=True), shape=[batch, *spatial, len(spatial)])


@dataclass(frozen=True)
class Grid:
    """How GridSample reads one axis, at places that data has."""

    g: Emitter
    size: int
    padding: str
    corners: bool

    @property
    def _span(self) -> tuple[float, float]:
        return (0.0, self.size - 1.0) if self.corners else (-0.5, self.size - 0.5)

    def position(self, place: Value) -> Value:
        """Of -1 to 1 in elements."""
        g, factor = self.g, self.size - 1 if self.corners else self.size
        scaled = g.multiply(g.add(place, g.like(1.0, place)), g.like(factor / 2, place))
        return scaled if self.corners else g.subtract(scaled, g.like(0.5, scaled))

    def folded(self, place: Value) -> Value:
        """A place outside as that inside which stands for it; with zeros around, as it is."""
        g, (low, high) = self.g, self._span
        if self.padding == "border":
            return self.clipped(place)
        if self.padding != "reflection":
            return place
        if low == high:
            return g.multiply(place, g.like(0.0, place))
        turn = g.like(2 * (high - low), place)
        along = g.remainder(g.abs(g.subtract(place, g.like(low, place))), turn)
        return g.add(g.minimum(along, g.subtract(turn, along)), g.like(low, place))

    def clipped(self, place: Value) -> Value:
        return self.g.clip(place, self.g.like(0.0, place), self.g.like(self.size - 1.0, place))

    def taps(self, place: Value, mode: str) -> list[tuple[Value, Value | None]]:
        """The elements that a value is made of, and their weights."""
        g = self.g
        if mode == "nearest":
            return [(self.folded(g.round(place)), None)]
        place = place if mode == "cubic" else self.folded(place)
        lower = g.floor(place)
        ratio = g.subtract(place, lower)
        if mode == "linear":
            return [(lower, g.subtract(g.like(1.0, ratio), ratio)), (g.add(lower, g.like(1.0, lower)), ratio)]
        return [(g.add(lower, g.like(float(k), lower)), self._cubic(ratio, k)) for k in range(-1, 3)]

    def _cubic(self, ratio: Value, tap: int) -> Value:
        """The polynomial of Resize's cubic weights for a = -0.75, at the tap's distance."""
        g, a = self.g, -0.75
        away = g.abs(g.subtract(ratio, g.like(float(tap), ratio)))
        near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
        found = g.like((near if tap in (0, 1) else far)[0], ratio)
        for coefficient in (near if tap in (0, 1) else far)[1:]:
            found = g.add(g.multiply(found, away), g.like(coefficient, ratio))
        return found


@handler("GridSample")
def grid_sample(n: Node, g: Emitter) -> Results:
    x, grid = n.operand(0), n.operand(1)
    (batch, channels, *spatial), places = extents(x), extents(grid)[1:-1]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.text("mode", "linear"), n.text("mode", "linear"))
    count, padding = math.prod(places), n.text("padding_mode", "zeros")
    wide = F64 if dtype(x) is F64 else F32
    flat, axes = g.reshape(x, shape=[batch, channels, math.prod(spatial)]), list[Any]()
    for axis, size in enumerate(spatial):
        at = len(spatial) - 1 - axis  # the last axis comes first
        place = g.slice(grid, starts=[0] * (rank(grid) - 1) + [at], stops=[*extents(grid)[:-1], at + 1])
        place = g.cast(g.reshape(place, shape=[batch, 1, count]), wide)
        line = Grid(g, size, padding, n.flag("align_corners"))
        axes.append([(line, *tap) for tap in line.taps(line.position(place), mode)])
    parts = [_gathered(g, flat, taps, wide) for taps in product(*axes)]
    return g.reshape(g.cast(reduce(g.add, parts), dtype(x)), shape=[batch, channels, *places])


def _gathered(g: Emitter, flat: Value, taps: Sequence[tuple[Grid, Value, Value | None]], wide: DType) -> Value:
    """The elements [batch, channels, places] at one tap of each axis, times their weights."""
    index, inside, weights = g.number(0, I64, []), list[Value](), list[Value]()
    for line, place, weight in taps:
        place, before = line.clipped(line.folded(place)), place
        if line.padding == "zeros":
            inside.append(g.equal(place, before))
        index = g.add(g.multiply(index, g.like(line.size, index)), g.cast(place, I64))
        weights += [] if weight is None else [weight]
    shape = [*extents(flat)[:2], extents(index)[-1]]
    value = g.take_along_axis(flat, g.broadcast_to(index, shape=shape), axis=2)
    if inside:
        value = g.where(reduce(g.logical_and, inside), value, g.like(0, value))
    return g.multiply(g.cast(value, wide), reduce(g.multiply, weights)) if weights else value
