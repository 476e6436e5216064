"""Orders and running totals in NumPy. NaN is the greatest; equal elements keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fuse_opt.lowering.program import Array, Config
from fuse_opt.lowering.reference.kernels.config import integer, text
from fuse_opt.lowering.reference.kernels.costs import moving_cost
from fuse_opt.lowering.reference.kernels.registry import implementation

_LONG_ROW = 512
"""Elements from which on the first few of a row are found without sorting it."""
_CHUNK_BYTES = 4 << 20
"""Of float64 totals at a time."""


@implementation("numpy.sort", "graph.sort", sized=True)
def sort(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """In place in the output; descending is the ascending order of the reversed line, reversed."""
    (x,), (out,) = inputs, outputs
    axis = integer(config, "axis", -1)
    if integer(config, "descending", 0):
        x, out = np.flip(x, axis), np.flip(out, axis)
    out[...] = x
    # Of numbers that are equal only zeros can be told apart.
    matters = integer(config, "stable", 1) and x.dtype.kind == "f"
    out.sort(axis=axis, kind="stable" if matters else None)


@implementation("numpy.argsort", "graph.argsort", sized=True)
def argsort(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Stable np.argsort; descending is the ascending order of the reversed line, reversed."""
    outputs[0][...] = _order(inputs[0], integer(config, "axis", -1), integer(config, "descending", 0) != 0)


def _order(x: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(np.subtract(x.shape[axis] - 1, order, out=order), axis)


@implementation("numpy.top_k", "graph.top_k", cost=moving_cost, sized=True)
def top_k(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """The first k in order; of long lines by partition, without sorting the rest."""
    (x,) = inputs
    axis, k = integer(config, "axis", -1), integer(config, "k")
    lines = np.moveaxis(x, axis, -1)
    values, indices = (np.moveaxis(out, axis, -1) for out in outputs)
    largest = integer(config, "largest", 1) != 0
    if lines.shape[-1] < _LONG_ROW or k > lines.shape[-1] // 8 or k == 0:
        order = _order(lines, -1, largest)[..., :k]
        indices[...] = order
        values[...] = np.take_along_axis(lines, order, -1)
        return
    for line in np.ndindex(lines.shape[:-1]):
        indices[line] = found = _first(lines[line], k, largest)
        values[line] = lines[line][found]


def _first(line: Array, k: int, largest: bool) -> Array:
    """Where the first k elements in order are: those beyond the last of them, and as many that are equal to it."""
    at = line.size - k if largest else k - 1
    last = np.partition(line, at)[at]
    with np.errstate(invalid="ignore"):
        beyond, same = (line > last if largest else line < last), line == last
    if line.dtype.kind == "f":
        nan = np.isnan(line)
        if np.isnan(last):
            beyond, same = (np.zeros_like(nan) if largest else ~nan), nan
        elif largest:
            beyond |= nan
    chosen = np.flatnonzero(beyond)
    chosen = np.sort(np.concatenate([chosen, np.flatnonzero(same)[: k - chosen.size]]))
    return chosen[_order(line[chosen], -1, largest)]


@implementation("numpy.searchsorted", "graph.searchsorted", cost=moving_cost, sized=True)
def searchsorted(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.searchsorted."""
    x, values = inputs
    right = text(config, "side", "left") == "right"
    outputs[0][...] = np.searchsorted(x, values, side="right" if right else "left")


@implementation("numpy.cumulative_sum", "graph.cumulative_sum", cost=moving_cost, sized=True)
def cumulative_sum(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.add.accumulate from +0 on, of floats in float64, rounded once at each element."""
    _scan(np.add, inputs[0], outputs[0], config)


@implementation("numpy.cumulative_prod", "graph.cumulative_prod", cost=moving_cost, sized=True)
def cumulative_prod(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.multiply.accumulate, of floats in float64, rounded once at each element."""
    _scan(np.multiply, inputs[0], outputs[0], config)


def _scan(combine: np.ufunc, x: Array, out: Array, config: Config) -> None:
    axis = integer(config, "axis", 0) % x.ndim
    extents = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    source = x.reshape(extents)
    target = out.reshape(extents[0], out.shape[axis], extents[2])
    if integer(config, "reverse", 0):
        source, target = source[:, ::-1], target[:, ::-1]
    if integer(config, "exclusive", 0) and extents[1]:
        target[:, 0] = combine.identity
        source, target = source[:, :-1], target[:, 1:]
    elif integer(config, "include_initial", 0):
        target[:, 0] = combine.identity
        target = target[:, 1:]
    if x.dtype.kind != "f" or x.dtype == np.float64:
        combine.accumulate(source, axis=1, dtype=x.dtype, out=target)
        if combine is np.add and x.dtype.kind == "f":
            np.add(target, 0.0, out=target)  # no total is -0
        return
    step = max(1, _CHUNK_BYTES // max(1, 8 * extents[1] * extents[2]))
    for first in range(0, extents[0], step):
        some = slice(first, first + step)
        totals = combine.accumulate(source[some], axis=1, dtype=np.float64)
        target[some] = totals + 0.0 if combine is np.add else totals
