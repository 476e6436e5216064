"""Rows of pooling and its backward forms, by plain loops over windows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from graph_op_table import FLOATS, INTEGERS, Array, Case, Row, converted, decode, noise, ramp, rounded, samples, wide
from rows_windows import array_text, larger

NUMBERS = (*FLOATS, *INTEGERS)


@dataclass(frozen=True)
class Pool:
    """A pooling of x [2, 3, spatial...], and the attributes that say so."""

    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    ceil: bool = False
    leading: tuple[int, int] = (2, 3)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.leading, *self.spatial)

    @property
    def pooled(self) -> tuple[int, ...]:
        return (*self.leading, *(len(starts) for starts in self.starts()))

    def text(self, *more: str) -> str:
        given = {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "pads": self.pads,
            "dilations": self.dilations,
        }
        parts = [f"{name} = {array_text(values)}" for name, values in given.items() if values is not None]
        return ", ".join([*parts, *(["ceil_mode = true"] if self.ceil else []), *(part for part in more if part)])

    def starts(self) -> list[list[int]]:
        """By axis, where windows begin: before 0 in the padding."""
        found: list[list[int]] = []
        for axis, n in enumerate(self.spatial):
            low, high = self.padding(axis)
            span, stride = (self.kernel[axis] - 1) * self.dilation(axis) + 1, (self.strides or (1,) * 3)[axis]
            starts: list[int] = []
            at = -low
            while at + span <= n + high or (self.ceil and at < n and (not starts or starts[-1] + span < n + high)):
                starts.append(at)
                at += stride
            found.append(starts)
        return found

    def padding(self, axis: int) -> tuple[int, int]:
        count = len(self.spatial)
        pads = self.pads or (0,) * 2 * count
        return pads[axis], pads[count + axis]

    def dilation(self, axis: int) -> int:
        return (self.dilations or (1,) * 3)[axis]

    def places(self, start: tuple[int, ...], with_pads: bool = False) -> list[tuple[int, ...]]:
        """The elements of the window that begins there, in row-major order; with the padding those in it too."""
        along: list[list[int]] = []
        for axis, at in enumerate(start):
            low, high = self.padding(axis) if with_pads else (0, 0)
            places = [at + k * self.dilation(axis) for k in range(self.kernel[axis])]
            along.append([place for place in places if -low <= place < self.spatial[axis] + high])
        return list(product(*along))

    def windows(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Each window as the index of its result in a plane, and its beginning."""
        starts = self.starts()
        for index in product(*(range(len(s)) for s in starts)):
            yield index, tuple(s[i] for s, i in zip(starts, index, strict=True))


POOLS = [
    Pool((8,), (2,), (2,)),
    Pool((9,), (3,), (2,), (1, 1)),
    Pool((9,), (3,), (2,), (0, 2), (2,)),
    Pool((7,), (2,), (3,), None, None, True),
    Pool((6, 6), (2, 2), (2, 2)),
    Pool((7, 6), (3, 3), (2, 2), (1, 1, 1, 1)),
    Pool((7, 6), (3, 2), (1, 3), (2, 0, 1, 1)),
    Pool((6, 7), (3, 3), (2, 2), (1, 1, 1, 1), None, True),
    Pool((5, 8), (2, 3), (2, 3), (0, 1, 1, 0), (2, 1), True),
    Pool((5, 5), (2, 2), (3, 3), (1, 0, 1, 0), None, True),
    Pool((4, 5, 4), (2, 3, 2), (2, 1, 3), (0, 1, 1, 1, 0, 0), (1, 2, 1)),
    Pool((3, 4, 5), (2, 2, 2), (2, 2, 2), None, None, True),
    Pool((4, 4), (1, 1), (3, 2)),
    Pool((6,), (2,), (2,), leading=(0, 2)),
]


def _maxima(x: Array, pool: Pool, over_tensor: bool) -> tuple[list[Any], Array]:
    """The largest elements in row-major order, and where they are: the first of several, or the first NaN."""
    values = np.asarray(decode(x))
    found: list[Any] = []
    indices: list[int] = []
    for plane in product(*map(range, pool.leading)):
        for _, start in pool.windows():
            best: tuple[int, ...] | None = None
            for place in pool.places(start):
                value = values[(*plane, *place)].item()
                if best is None or (found[-1] == found[-1] and (value > found[-1] or value != value)):
                    if best is not None:
                        found.pop()
                    best = place
                    found.append(value)
            assert best is not None
            whole = (*plane, *best)
            flat = np.ravel_multi_index(whole, pool.shape) if over_tensor else np.ravel_multi_index(best, pool.spatial)
            indices.append(int(flat))
    return found, np.array(indices, np.int64).reshape(pool.pooled)


def _max_inputs(name: str) -> Iterator[tuple[Array, Pool]]:
    for pool in POOLS:
        yield ramp(name, *pool.shape), pool
    values = samples(name)
    around = Pool((len(values),), (3,), (1,), (1, 1), leading=(1, 1))
    yield values.reshape(around.shape), around
    if name in FLOATS:
        inf = math.inf
        x = [-inf, -inf, -inf, -inf, math.nan, 1.0, math.nan, inf, inf, -0.0, 0.0, -0.0]
        padded = Pool((12,), (2,), (2,), (1, 1), leading=(1, 1))
        yield converted(np.array(x), name).reshape(padded.shape), padded
    else:
        low = np.full((1, 1, 6), np.iinfo(samples(name).dtype).min, samples(name).dtype)
        yield low, Pool((6,), (3,), (2,), (2, 1), leading=(1, 1))


def _values(values: list[Any], name: str, pool: Pool) -> Array:
    made = rounded(np.array(values, np.float64), name) if name in FLOATS else np.array(values, samples(name).dtype)
    return made.reshape(pool.pooled)


def _max_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for x, pool in _max_inputs(name):
            values, _ = _maxima(x, pool, False)
            yield Case("graph.max_pool", pool.text(), (x,), _values(values, name, pool))


def _indices_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for x, pool in _max_inputs(name):
            for over_tensor in (False, True):
                values, indices = _maxima(x, pool, over_tensor)
                text = pool.text("over_tensor = true" if over_tensor else "")
                yield Case("graph.max_pool_with_indices", text, (x,), (_values(values, name, pool), indices))


PADS_COUNT = "count_include_pad = true"


def _avg_cases() -> Iterator[Case]:
    for name, pool, counted in product(FLOATS, POOLS, (False, True)):
        x = noise(name, *pool.shape)
        values = wide(x)
        result = np.zeros(pool.pooled)
        for index, start in pool.windows():
            total = sum((values[(..., *place)] for place in pool.places(start)), np.zeros(pool.leading))
            result[(..., *index)] = total / len(pool.places(start, with_pads=counted))
        yield Case("graph.avg_pool", pool.text(PADS_COUNT if counted else ""), (x,), rounded(result, name))
    for name in FLOATS:
        large = converted(np.array([[[60000.0, 50000.0, 40000.0, -60000.0]]]), name)
        expected = rounded(wide(large).reshape(1, 1, 2, 2).mean(axis=3), name)
        yield Case("graph.avg_pool", "kernel_shape = array<i64: 2>, strides = array<i64: 2>", (large,), expected)


WHOLE = [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 2, 4), (0, 3, 2), (3, 0, 2, 2)]


def _global_max_cases() -> Iterator[Case]:
    for name in NUMBERS:
        for shape in WHOLE:
            x = ramp(name, *shape)
            planes = np.asarray(decode(x)).reshape(*shape[:2], math.prod(shape[2:]))
            values = [_largest(row) for row in planes.reshape(-1, planes.shape[-1]).tolist()]
            extents = (*shape[:2], *[1] * (len(shape) - 2))
            made = rounded(np.array(values, np.float64), name) if name in FLOATS else np.array(values, x.dtype)
            yield Case("graph.global_max_pool", "", (x,), made.reshape(extents))
        values = samples(name)
        expected = [_largest([value]) for value in np.asarray(decode(values)).tolist()]
        made = rounded(np.array(expected, np.float64), name) if name in FLOATS else np.array(expected, values.dtype)
        yield Case("graph.global_max_pool", "", (values.reshape(1, -1, 1),), made.reshape(1, -1, 1))


def _largest(row: list[Any]) -> Any:
    best = row[0]
    for value in row[1:]:
        best = larger(best, value)
    return best


def _global_avg_cases() -> Iterator[Case]:
    for name in FLOATS:
        for shape in [*WHOLE, (2, 2, 0, 3)]:
            x = noise(name, *shape)
            total = wide(x).sum(axis=tuple(range(2, len(shape))), keepdims=True)
            value = total / np.float64(math.prod(shape[2:]))
            yield Case("graph.global_avg_pool", "", (x,), rounded(value, name))


def _adaptive_cases() -> Iterator[Case]:
    for name in FLOATS:
        for spatial, sizes in [((6,), (3,)), ((6, 4), (2, 4)), ((6, 4), (1, 1)), ((4, 6, 2), (2, 2, 1)), ((5,), (5,))]:
            x = noise(name, 2, 3, *spatial)
            result = np.zeros((2, 3, *sizes))
            for index in product(*map(range, sizes)):
                parts = [slice(i * (n // m), (i + 1) * (n // m)) for i, n, m in zip(index, spatial, sizes, strict=True)]
                result[(..., *index)] = wide(x)[(..., *parts)].mean(axis=tuple(range(2, 2 + len(spatial))))
            text = f"output_size = {array_text(sizes)}"
            yield Case("graph.adaptive_avg_pool", text, (x,), rounded(result, name))


def _avg_backward_cases() -> Iterator[Case]:
    for name, pool, counted in product(FLOATS, POOLS, (False, True)):
        grad = noise(name, *pool.pooled)
        result = np.zeros(pool.shape)
        for index, start in pool.windows():
            share = wide(grad)[(..., *index)] / len(pool.places(start, with_pads=counted))
            for place in pool.places(start):
                result[(..., *place)] += share
        text = pool.text(f"extents = {array_text(pool.spatial)}", PADS_COUNT if counted else "")
        yield Case("graph.avg_pool_backward", text, (grad,), rounded(result, name))


def _max_backward_cases() -> Iterator[Case]:
    for name in FLOATS:
        for (x, pool), over_tensor in product(_max_inputs(name), (False, True)):
            _, indices = _maxima(x, pool, over_tensor)
            grad = noise(name, *pool.pooled)
            size = math.prod(pool.spatial)
            result = np.zeros((math.prod(pool.leading), size))
            planes = indices.reshape(math.prod(pool.leading), math.prod(pool.pooled[2:]))
            for plane, (row, values) in enumerate(zip(planes, wide(grad).reshape(planes.shape), strict=True)):
                np.add.at(result[plane], row - plane * size * over_tensor, values)
            text = pool.text(f"extents = {array_text(pool.spatial)}", "over_tensor = true" if over_tensor else "")
            value = rounded(result.reshape(pool.shape), name)
            yield Case("graph.max_pool_backward", text, (grad, indices), value)


ROWS: list[Row] = [
    Row("max_pool", NUMBERS, _max_cases),
    Row("max_pool_with_indices", NUMBERS, _indices_cases),
    Row("avg_pool", FLOATS, _avg_cases),
    Row("global_max_pool", NUMBERS, _global_max_cases),
    Row("global_avg_pool", FLOATS, _global_avg_cases),
    Row("adaptive_avg_pool", FLOATS, _adaptive_cases),
    Row("avg_pool_backward", FLOATS, _avg_backward_cases),
    Row("max_pool_backward", FLOATS, _max_backward_cases),
]
