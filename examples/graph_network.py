"""A graph network of two layers (Kipf and Welling 2017) over a csr matrix, forward and backward.

    hidden = relu(A (X W1) + b1)    result = A (hidden W2) + b2

The gradients are those of weights and biases, for a gradient of the result. Nothing is made dense: `program.fallbacks` is 0. The
matrix is bound by `freeze`, so that its transpose is made once. `python examples/graph_network.py` compares it with NumPy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fuse_opt

Array = NDArray[Any]


@dataclass(frozen=True)
class Sizes:
    """Of a graph, and of a network on it."""

    nodes: int = 2000
    edges: int = 20000
    features: int = 64
    hidden: int = 32
    classes: int = 8


def source(sizes: Sizes, entries: int) -> str:
    """The program as text: result, and gradients of W1, b1, W2 and b2."""
    n, f, h, c = sizes.nodes, sizes.features, sizes.hidden, sizes.classes
    a = f"tensor<{n}x{n}xf32, #graph.csr<capacity = {entries}>>"
    x, z, y = (f"tensor<{n}x{width}xf32>" for width in (f, h, c))
    w1, b1, w2, b2, mask = (
        f"tensor<{f}x{h}xf32>",
        f"tensor<{h}xf32>",
        f"tensor<{h}x{c}xf32>",
        f"tensor<{c}xf32>",
        f"tensor<{n}x{h}xi1>",
    )
    return f"""func.func @main(%a: {a} {{graph.frozen}}, %x: {x}, %w1: {w1}, %b1: {b1}, %w2: {w2}, %b2: {b2}, %dy: {y})
    -> ({y}, {w1}, {b1}, {w2}, {b2}) {{
  %0 = graph.matmul %x, %w1 : ({x}, {w1}) -> {z}
  %1 = graph.matmul %a, %0 : ({a}, {z}) -> {z}
  %2 = graph.add %1, %b1 : ({z}, {b1}) -> {z}
  %hidden = graph.relu %2 : ({z}) -> {z}
  %3 = graph.matmul %hidden, %w2 : ({z}, {w2}) -> {y}
  %4 = graph.matmul %a, %3 : ({a}, {y}) -> {y}
  %result = graph.add %4, %b2 : ({y}, {b2}) -> {y}
  %db2 = graph.sum %dy {{axes = array<i64: 0>, keepdims = false}} : ({y}) -> {b2}
  %5 = graph.matmul %a, %dy {{transpose_lhs = true}} : ({a}, {y}) -> {y}
  %dw2 = graph.matmul %hidden, %5 {{transpose_lhs = true}} : ({z}, {y}) -> {w2}
  %6 = graph.matmul %5, %w2 {{transpose_rhs = true}} : ({y}, {w2}) -> {z}
  %zero = graph.constant dense<0.0> : tensor<f32>
  %on = graph.greater %2, %zero : ({z}, tensor<f32>) -> {mask}
  %7 = graph.where %on, %6, %zero : ({mask}, {z}, tensor<f32>) -> {z}
  %db1 = graph.sum %7 {{axes = array<i64: 0>, keepdims = false}} : ({z}) -> {b1}
  %8 = graph.matmul %a, %7 {{transpose_lhs = true}} : ({a}, {z}) -> {z}
  %dw1 = graph.matmul %x, %8 {{transpose_lhs = true}} : ({x}, {z}) -> {w1}
  func.return %result, %dw1, %db1, %dw2, %db2 : {y}, {w1}, {b1}, {w2}, {b2}
}}"""


def random_graph(sizes: Sizes, seed: int = 0) -> tuple[Array, Array, Array]:
    """indptr, indices and values of random edges, each once, with the mean over neighbours as their weight."""
    rng = np.random.default_rng(seed)
    places = np.unique(rng.integers(0, sizes.nodes**2, sizes.edges))
    counts = np.bincount(places // sizes.nodes, minlength=sizes.nodes)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)
    return indptr, (places % sizes.nodes).astype(np.int32), values


def operands(sizes: Sizes, seed: int = 1) -> list[Array]:
    """X, W1, b1, W2, b2 and the gradient of the result."""
    rng = np.random.default_rng(seed)
    n, f, h, c = sizes.nodes, sizes.features, sizes.hidden, sizes.classes
    return [rng.standard_normal(extents).astype(np.float32) for extents in ((n, f), (f, h), (h,), (h, c), (c,), (n, c))]


def expected(graph: tuple[Array, Array, Array], given: list[Array]) -> list[Array]:
    """The same in NumPy, with sums over edges as they are written."""
    indptr, columns, values = graph
    x, w1, b1, w2, b2, dy = (array.astype(np.float64) for array in given)
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))

    def product(to: Array, source: Array, of: Array) -> Array:
        found = np.zeros_like(of)
        np.add.at(found, to, values[:, None] * of[source])
        return found

    before = product(rows, columns, x @ w1) + b1
    hidden = np.maximum(before, 0)
    back = product(columns, rows, dy)
    inner = np.where(before > 0, back @ w2.T, 0)
    result = product(rows, columns, hidden @ w2) + b2
    return [result, x.T @ product(columns, rows, inner), inner.sum(0), hidden.T @ back, dy.sum(0)]


def main() -> None:
    """Runs it on a random graph, and says how far it is from NumPy."""
    sizes = Sizes()
    graph, given = random_graph(sizes), operands(sizes)
    program = fuse_opt.compile(source(sizes, graph[1].size)).freeze({"a": graph})
    pairs = zip(program(*given), expected(graph, given), strict=True)
    error = max(float(np.abs(found - value).max() / np.abs(value).max()) for found, value in pairs)
    print(f"fallbacks: {program.fallbacks}, relative error: {error:.1e}")
    assert error < 1e-4


if __name__ == "__main__":
    main()
