"""A factorisation machine (Rendle 2010) on a csr matrix of samples, forward and backward.

    y = w0 + X w + 1/2 sum over f of (X V)^2 - X^2 V^2        loss = 1/2 sum over samples of (y - target)^2

`X^2` is the square of each entry: it has the pattern of X, whose indices are read for both. The gradients are those of w0, w
and V. Nothing is made dense: `program.fallbacks` is 0. `python examples/factorization_machine.py` compares it with NumPy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fuse_opt

Array = NDArray[Any]


@dataclass(frozen=True)
class Sizes:
    """Of the samples, and of the machine."""

    samples: int = 2000
    features: int = 5000
    factors: int = 16
    entries: int = 20
    """Of a sample, at most."""


def source(sizes: Sizes, entries: int) -> str:
    """The program as text: predictions, and gradients of w0, w and V."""
    n, m, k = sizes.samples, sizes.features, sizes.factors
    x, v, z = f"tensor<{n}x{m}xf32, #graph.csr<capacity = {entries}>>", f"tensor<{m}x{k}xf32>", f"tensor<{n}x{k}xf32>"
    w, y, one, column, rows = (
        f"tensor<{m}xf32>",
        f"tensor<{n}xf32>",
        "tensor<f32>",
        f"tensor<{n}x1xf32>",
        f"tensor<{m}x1xf32>",
    )
    return f"""func.func @main(%x: {x}, %w0: {one}, %w: {w}, %v: {v}, %target: {y}) -> ({y}, {one}, {w}, {v}) {{
  %half = graph.constant dense<0.5> : {one}
  %squares = graph.square %x : ({x}) -> {x}
  %linear = graph.matmul %x, %w : ({x}, {w}) -> {y}
  %sums = graph.matmul %x, %v : ({x}, {v}) -> {z}
  %0 = graph.square %sums : ({z}) -> {z}
  %1 = graph.square %v : ({v}) -> {v}
  %2 = graph.matmul %squares, %1 : ({x}, {v}) -> {z}
  %3 = graph.subtract %0, %2 : ({z}, {z}) -> {z}
  %4 = graph.sum %3 {{axes = array<i64: 1>, keepdims = false}} : ({z}) -> {y}
  %5 = graph.multiply %4, %half : ({y}, {one}) -> {y}
  %6 = graph.add %linear, %5 : ({y}, {y}) -> {y}
  %y = graph.add %6, %w0 : ({y}, {one}) -> {y}
  %d = graph.subtract %y, %target : ({y}, {y}) -> {y}
  %dw0 = graph.sum %d {{axes = array<i64: 0>, keepdims = false}} : ({y}) -> {one}
  %dw = graph.matmul %x, %d {{transpose_lhs = true}} : ({x}, {y}) -> {w}
  %7 = graph.reshape %d {{shape = array<i64: {n}, 1>}} : ({y}) -> {column}
  %8 = graph.multiply %sums, %7 : ({z}, {column}) -> {z}
  %9 = graph.matmul %x, %8 {{transpose_lhs = true}} : ({x}, {z}) -> {v}
  %10 = graph.matmul %squares, %7 {{transpose_lhs = true}} : ({x}, {column}) -> {rows}
  %11 = graph.multiply %v, %10 : ({v}, {rows}) -> {v}
  %dv = graph.subtract %9, %11 : ({v}, {v}) -> {v}
  func.return %y, %dw0, %dw, %dv : {y}, {one}, {w}, {v}
}}"""


def random_samples(sizes: Sizes, seed: int = 0) -> tuple[Array, Array, Array]:
    """indptr, indices and values of samples, of which some have no entries."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, min(sizes.entries, sizes.features) + 1, sizes.samples)
    columns: list[Array] = [np.sort(rng.permutation(sizes.features)[:count]) for count in counts.tolist()]
    indices = np.concatenate([*columns, np.empty(0)]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return indptr, indices, rng.standard_normal(indices.size).astype(np.float32)


def operands(sizes: Sizes, seed: int = 1) -> list[Array]:
    """w0, w, V and the targets."""
    rng = np.random.default_rng(seed)
    extents = ((), (sizes.features,), (sizes.features, sizes.factors), (sizes.samples,))
    return [np.asarray(rng.standard_normal(shape) / 4, np.float32) for shape in extents]


def expected(samples: tuple[Array, Array, Array], given: list[Array]) -> list[Array]:
    """The same in NumPy, on a matrix with all its elements."""
    indptr, columns, values = samples
    w0, w, v, target = (array.astype(np.float64) for array in given)
    x = np.zeros((target.size, w.size))
    x[np.repeat(np.arange(target.size), np.diff(indptr)), columns] = values
    sums = x @ v
    y = w0 + x @ w + (sums**2 - x**2 @ v**2).sum(1) / 2
    d = y - target
    return [y, d.sum(), x.T @ d, x.T @ (d[:, None] * sums) - (x**2).T @ d[:, None] * v]


def main() -> None:
    """Runs it on random samples, and says how far it is from NumPy."""
    sizes = Sizes()
    samples, given = random_samples(sizes), operands(sizes)
    program = fuse_opt.compile(source(sizes, samples[1].size))
    pairs = zip(program(samples, *given), expected(samples, given), strict=True)
    error = max(float(np.abs(found - value).max() / np.abs(value).max()) for found, value in pairs)
    print(f"fallbacks: {program.fallbacks}, relative error: {error:.1e}")
    assert error < 1e-4


if __name__ == "__main__":
    main()
