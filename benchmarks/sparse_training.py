"""Steps of training on sparse values beside PyTorch's: a table of embeddings, and a graph network forward and backward.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/sparse_training.py

The table is 50,000 x 256 with 512 ids: its gradient from one of rows, then a step of gradient descent, in place. `dense` makes
the whole gradient; bytes are what a call of either reads and writes. `compiled` is a function of PyTorch by `compile_sparse`,
`adam` our SparseAdam, a step alone. The network is examples/graph_network.py with 20,000 nodes and 200,000 edges; PyTorch has
its matrix as csr and as coo, with its own gradients, and with a transposed copy (`held`), which its csr products are then
given. Calls take turns in slots of processor time; milliseconds are of a lower quartile, ratios medians of those of slots.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rotation import measure

import fuse_opt

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
Array = np.ndarray[Any, Any]
Calls = dict[str, Callable[[], Any]]
ROWS, WIDTH, IDS, RATE = 50_000, 256, 512, 0.01
SLOT_SECONDS = 20e-3


def step(kind: str) -> str:
    """A step on a table, whose gradient is stored as `kind`, or dense."""
    table, rows, ids = f"tensor<{ROWS}x{WIDTH}xf32>", f"tensor<{IDS}x{WIDTH}xf32>", f"tensor<{IDS}xi32>"
    gradient = f"tensor<{ROWS}x{WIDTH}xf32{kind}>"
    return f"""func.func @main(%w: {table} {{graph.donated}}, %dy: {rows}, %ids: {ids}) -> {table} {{
  %0 = graph.embedding_backward %dy, %ids {{rows = {ROWS} : i64}} : ({rows}, {ids}) -> {gradient}
  %rate = graph.constant dense<{RATE}> : tensor<f32>
  %1 = graph.multiply %0, %rate : ({gradient}, tensor<f32>) -> {gradient}
  %2 = graph.subtract %w, %1 : ({table}, {gradient}) -> {table}
  func.return %2 : {table}
}}"""


def embedding_calls() -> Calls:
    rng = np.random.default_rng(0)
    dy, ids = rng.standard_normal((IDS, WIDTH)).astype(np.float32), rng.integers(0, ROWS, IDS).astype(np.int32)
    start = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    programs = [fuse_opt.compile(step(kind)) for kind in (f", #graph.row_sparse<capacity = {IDS}>", "")]
    assert programs[0].fallbacks[0] == 0
    for name, program in zip(("ours", "dense"), programs, strict=True):
        print(
            f"embedding step, {name}: reads {program.stats.bytes_read:,} bytes, writes {program.stats.bytes_written:,}"
        )
    tables = [start.copy() for _ in programs]
    first = [program(table, dy, ids, out=table) for program, table in zip(programs, tables, strict=True)]
    np.testing.assert_array_equal(*first)  # equal bits
    ours, dense = (lambda p=p, t=t: p(t, dy, ids, out=t) for p, t in zip(programs, tables, strict=True))
    found: Calls = {"ours": ours, "dense": dense}
    if find_spec("torch") is not None:
        torch: Any = import_module("torch")
        torch.set_num_threads(1)
        layer = torch.nn.Embedding(ROWS, WIDTH, sparse=True, _weight=torch.from_numpy(start.copy()))
        wide, gradient = torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(dy)
        optimizer = torch.optim.SGD(layer.parameters(), lr=RATE)

        def backward() -> None:
            optimizer.zero_grad()
            layer(wide).backward(gradient)
            optimizer.step()

        def lean() -> None:
            """Without the graph of autograd: the two calls that it makes."""
            with torch.no_grad():
                rows = torch.ops.aten.embedding_sparse_backward(gradient, wide, ROWS, -1, False)
                layer.weight.add_(rows, alpha=-RATE)

        backward()
        np.testing.assert_allclose(layer.weight.detach().numpy(), _once(start, dy, ids), 1e-5, 1e-5)
        found |= {"torch": backward, "torch_lean": lean, **compiled_steps(torch, layer.weight.detach(), wide, gradient)}
    return found


def compiled_steps(torch: Any, weight: Any, ids: Any, gradient: Any) -> Calls:
    """A function of PyTorch with the layer, its gradient and the step in it; and SparseAdam, PyTorch's and ours."""
    sparse: Any = import_module("fuse_opt.frontends.torch.sparse")
    table = weight.clone()

    def step(weight: Any, ids: Any, gradient: Any) -> Any:
        leaf = weight.detach().requires_grad_()
        with torch.enable_grad():
            result = torch.nn.functional.embedding(ids, leaf, sparse=True)
            (rows,) = torch.autograd.grad(result, [leaf], gradient)
        return weight.add_(rows, alpha=-RATE)

    compiled = sparse.compile_sparse(step, strict=True)
    found: Calls = {"compiled": lambda: compiled(table, ids, gradient)}
    for name, kind in (("adam", sparse.SparseAdam), ("torch_adam", torch.optim.SparseAdam)):
        layer = torch.nn.Embedding(ROWS, WIDTH, sparse=True, _weight=weight.clone())
        layer(ids).backward(gradient)
        found[name] = kind(layer.parameters(), lr=RATE).step
    return found


def _once(start: Array, dy: Array, ids: Array) -> Array:
    found = start.astype(np.float64)
    np.subtract.at(found, ids, np.float32(RATE) * dy)
    return found


def network_calls() -> Calls:
    example: Any = import_module("graph_network")
    sizes = example.Sizes(20_000, 200_000, 128, 64, 16)
    graph, given = example.random_graph(sizes), example.operands(sizes)
    program = fuse_opt.compile(example.source(sizes, graph[1].size)).freeze({"a": graph})
    every = fuse_opt.compile(example.source(sizes, graph[1].size).replace(" {graph.frozen}", ""))
    print(f"graph network: fallbacks {program.fallbacks[0]}, {program.stats.kernels} kernels")
    wanted = example.expected(graph, given)
    found: Calls = {"ours": lambda: program(*given), "unbound": lambda: every(graph, *given)}
    if find_spec("torch") is not None:
        found |= torch_networks(graph, given)
    for name, call in found.items():
        for value, right in zip(call(), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(value), right, 1e-3, 1e-3 * np.abs(right).max(), err_msg=name)
    return found


def torch_networks(graph: tuple[Array, Array, Array], given: list[Array]) -> Calls:
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    x, w1, b1, w2, b2, dy = (torch.from_numpy(array) for array in given)
    weights = [w.clone().requires_grad_() for w in (w1, b1, w2, b2)]
    nodes = x.shape[0]
    csr = torch.sparse_csr_tensor(*map(torch.from_numpy, graph), size=(nodes, nodes))
    coo, turned = csr.to_sparse_coo().coalesce(), csr.to_sparse_coo().t().coalesce().to_sparse_csr()

    class Product(torch.autograd.Function):
        """A product whose gradient is one with a transposed copy."""

        @staticmethod
        def forward(ctx: Any, of: Any) -> Any:
            return csr @ of

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return turned @ gradient

    def network(product: Callable[[Any], Any]) -> list[Any]:
        v1, c1, v2, c2 = weights
        result = product(torch.relu(product(x @ v1) + c1) @ v2) + c2
        gradients = torch.autograd.grad(result, weights, dy)
        return [result.detach(), *gradients]

    def call(product: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: network(product)

    sparse: Any = import_module("fuse_opt.frontends.torch.sparse")

    def written(a: Any, x: Any, v1: Any, c1: Any, v2: Any, c2: Any) -> Any:
        return torch.sparse.mm(a, torch.relu(torch.sparse.mm(a, x @ v1) + c1) @ v2) + c2

    compiled = sparse.compile_sparse(written, strict=True)

    def call_compiled() -> list[Any]:
        result = compiled(csr, x, *weights)
        return [result.detach(), *torch.autograd.grad(result, weights, dy)]

    return {
        "compiled": call_compiled,
        "csr": call(lambda of: torch.sparse.mm(csr, of)),
        "coo": call(lambda of: torch.sparse.mm(coo, of)),
        "held": call(Product.apply),
    }


def report(what: str, found: Calls) -> None:
    times = measure(list(found.values()), SLOT_SECONDS)
    low = np.quantile(times, 0.25, axis=0) * 1e3
    shown = "  ".join(f"{name} {value:.3f}" for name, value in zip(found, low, strict=True))
    ratios = "  ".join(f"{n}/ours {np.median(times[:, k] / times[:, 0]):.2f}" for k, n in enumerate(found) if k)
    print(f"{what}  ms: {shown}  {ratios}", flush=True)


def main() -> None:
    settings = {n: v for n, v in os.environ.items() if n.startswith(("OPENBLAS_", "MKL_", "OMP_", "FUSE_"))}
    print("environment:", " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "nothing set")
    report("embedding step", embedding_calls())
    report("graph network", network_calls())


if __name__ == "__main__":
    main()
