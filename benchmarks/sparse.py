"""A csr matrix times a dense one beside our dense product, SciPy, PyTorch and a loop by Numba: `python benchmarks/sparse.py`.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/sparse.py [--only 0.01]

The matrix is 1024 x 1024, the dense one 1024 x n; all is f32. Ours is called as a person calls it: with a matrix of SciPy, whose
pattern is checked in each call (`ours`), and bound by `freeze`, as PyTorch's and Numba's have it before (`bound`). Calls take
turns in slots of processor time; microseconds are of a lower quartile, ratios the median of those of slots. Who is not
installed is left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from rotation import measure

import fuse_opt

Array = np.ndarray[Any, Any]
EXTENT = 1024
DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
WIDTHS = (1, 8, 128, 512)
SLOT_SECONDS = 4e-3


def parts(density: float) -> tuple[Array, Array, Array]:
    """indptr, indices and values of a random matrix."""
    rng = np.random.default_rng(1)
    there = rng.random((EXTENT, EXTENT)) < density
    indptr = np.concatenate([[0], np.cumsum(there.sum(1))]).astype(np.int32)
    indices = np.nonzero(there)[1].astype(np.int32)
    return indptr, indices, rng.standard_normal(indices.size).astype(np.float32)


def text(encoding: str, n: int) -> str:
    left, right, result = (
        f"tensor<{EXTENT}x{EXTENT}xf32{encoding}>",
        f"tensor<{EXTENT}x{n}xf32>",
        f"tensor<{EXTENT}x{n}xf32>",
    )
    body = f"%0 = graph.matmul %a, %x : ({left}, {right}) -> {result}\n  func.return %0 : {result}"
    return f"func.func @main(%a: {left}, %x: {right}) -> {result} {{\n  {body}\n}}"


def numba_call(given: tuple[Array, Array, Array], x: Array) -> Callable[[], Array]:
    numba: Any = import_module("numba")

    @numba.njit(fastmath=True)
    def product(indptr: Array, indices: Array, values: Array, x: Array) -> Array:
        out = np.zeros((indptr.size - 1, x.shape[1]), x.dtype)
        for row in range(indptr.size - 1):
            for p in range(indptr[row], indptr[row + 1]):
                for j in range(x.shape[1]):
                    out[row, j] += values[p] * x[indices[p], j]
        return out

    return lambda: product(*given, x)


def contenders(density: float, n: int) -> dict[str, Callable[[], Any]]:
    given = parts(density)
    indptr, indices, values = given
    x = np.random.default_rng(2).standard_normal((EXTENT, n)).astype(np.float32)
    full = np.zeros((EXTENT, EXTENT), np.float32)
    full[np.repeat(np.arange(EXTENT), np.diff(indptr)), indices] = values
    stored, bound = (fuse_opt.compile(text(f", #graph.csr<capacity = {indices.size}>", n)) for _ in range(2))
    dense, expected = fuse_opt.compile(text("", n)), full.astype(np.float64) @ x
    bound.freeze({0: given})
    argument: Any = given
    found: dict[str, Callable[[], Any]] = {}
    if find_spec("scipy") is not None:
        argument = matrix = import_module("scipy.sparse").csr_array((values, indices, indptr), shape=full.shape)
        found["SciPy"] = lambda: matrix @ x
    if find_spec("torch") is not None:
        torch: Any = import_module("torch")
        torch.set_num_threads(1)
        held = torch.sparse_csr_tensor(*map(torch.from_numpy, given), size=full.shape)
        right = torch.from_numpy(x)
        found["torch"] = lambda: torch.sparse.mm(held, right)
    if find_spec("numba") is not None:
        found["numba"] = numba_call(given, x)
    found = {"ours": lambda: stored(argument, x), "bound": lambda: bound(x), "dense": lambda: dense(full, x), **found}
    for name, call in found.items():
        np.testing.assert_allclose(np.asarray(call()), expected, rtol=1e-3, atol=1e-3, err_msg=name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="densities whose text has this")
    options = parser.parse_args()
    settings = {n: v for n, v in os.environ.items() if n.startswith(("OPENBLAS_", "MKL_", "OMP_", "FUSE_"))}
    print("environment:", " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "nothing set")
    for density in DENSITIES:
        for n in WIDTHS if options.only in str(density) else ():
            found = contenders(density, n)
            times = measure(list(found.values()), SLOT_SECONDS)
            names = list(found)
            low = np.quantile(times, 0.25, axis=0) * 1e6
            shown = "  ".join(f"{name} {value:8.1f}" for name, value in zip(names, low, strict=True))
            ends = [f"{name}/ours {np.median(times[:, k] / times[:, 0]):.2f}" for k, name in enumerate(names) if k > 1]
            ends += [
                f"{name}/bound {np.median(times[:, k] / times[:, 1]):.2f}" for k, name in enumerate(names) if k > 2
            ]
            print(f"density {density:5} n {n:3}  us: {shown}  {'  '.join(ends)}", flush=True)


if __name__ == "__main__":
    main()
