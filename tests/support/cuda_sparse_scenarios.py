"""Products of csr matrices by cuSPARSE on a CUDA device: on its stand-in, which checks every argument, and on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from cuda_library_scenarios import check_workspace, implementations, stand_in
from cuda_running import Array, compiled, counters

from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.tools.compiler.api import evaluate
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE


def csr_product_text(rows: int, columns: int, capacity: int, width: int, dtype: str, promise: str = "") -> str:
    """A product of the parts of a csr matrix and a dense one."""
    given = [f"tensor<{rows + 1}xi32>", f"tensor<{capacity}xi32>", f"tensor<{capacity}x{dtype}>"]
    given.append(f"tensor<{columns}x{width}x{dtype}>")
    result = f"tensor<{rows}x{width}x{dtype}>"
    wish = f'{{use_implementation = "{promise}"}} ' if promise else ""
    arguments = ", ".join(f"%{name}: {each}" for name, each in zip("pivx", given, strict=True))
    line = f"%r = graph.csr_matmul %p, %i, %v, %x {wish}: ({', '.join(given)}) -> {result}"
    text = f"func.func @main({arguments}) -> {result} {{\n{line}\nfunc.return %r : {result}\n}}"
    if not promise.startswith("cusparse"):
        return text
    return f'builtin.module attributes {{graph.numerics = "fast"}} {{\n{text}\n}}'


def _pattern(counts: Sequence[int], columns: int, capacity: int) -> tuple[Array, Array]:
    """Rows of so many entries; what is behind the last one is no column."""
    random = np.random.default_rng(sum(counts))
    rows = [np.sort(random.permutation(columns)[:count]) for count in counts]
    behind = np.full(capacity - sum(counts), 1 << 30)
    return np.cumsum([0, *counts], dtype=np.int32), np.concatenate([*rows, behind]).astype(np.int32)


CASES: list[tuple[list[int], int, int, int, str]] = [
    # entries by row, columns, capacity beyond them, width, element type
    ([3, 0, 5, 1, 0, 0, 7, 2], 9, 11, 5, "f32"),
    ([0, 0, 0], 4, 6, 2, "f64"),
    ([40, 40, 40], 40, 0, 70, "f32"),
    ([1], 3, 2, 33, "f64"),
]


PIPELINE = f"attach-backends{{backends=cusparse}},{','.join(DEFAULT_PIPELINE)}"


def csr_products() -> str:
    """Products by cuSPARSE, launched, captured and replayed, whatever lies behind the last entry; infinite ones, too."""
    if problem := unavailable_backends("cuda").get("cusparse"):
        assert counters() is None, problem
        return f"none: {problem}"
    library = stand_in("FUSE_OPT_CUSPARSE")
    for buffer in (4096, 5 << 20):  # the second one is more than was planned
        if library is not None:
            library.fake_cusparse_buffer_bytes(ctypes.c_size_t(buffer))
        for number, case in enumerate(CASES if buffer == 4096 else CASES[:1]):
            _csr_product(case, number, None if buffer > 4096 else library)
    return f"{len(CASES)} programs and what is refused"


def _csr_product(case: tuple[list[int], int, int, int, str], seed: int, library: ctypes.CDLL | None) -> None:
    counts, columns, more, width, dtype = case
    capacity, random, name = sum(counts) + more, np.random.default_rng(seed), np.dtype(f"f{int(dtype[1:]) // 8}")
    text = csr_product_text(len(counts), columns, capacity, width, dtype, "cusparse.csr_matmul")
    program = compiled(text, PIPELINE)
    assert implementations(program) == ["cusparse.csr_matmul"], text
    indptr, indices = _pattern(counts, columns, capacity)
    values, x = random.standard_normal(capacity).astype(name), random.standard_normal((columns, width)).astype(name)
    values[sum(counts) :], x[-1] = np.nan, np.inf
    indices[indptr[-2] : indptr[-1]] = np.minimum(indices[indptr[-2] : indptr[-1]], columns - 2)  # not by the last row
    expected = evaluate(text, indptr, indices, values, x)
    bound = 1e-12 if dtype == "f64" else 2e-5
    found = [program(indptr, indices, values, x) for _ in range(3)]
    for each in found:
        np.testing.assert_allclose(each, expected, bound, bound, err_msg=text)
    assert program.stats.host_ops == 0 and program.stats.graph_launches == 2, program.stats
    if library is not None:
        check_workspace(program, library, "fake_cusparse_buffer")
    if not (sum(counts) and len(counts) > 1):
        return
    for place, wrong, error in ((indices, columns, IndexError), (indptr, capacity + 1, ValueError)):
        broken = place.copy()
        broken[1] = wrong
        given = (broken, indices) if place is indptr else (indptr, broken)
        for _ in range(2):
            try:
                program(*given, values, x)
            except error as raised:
                assert "graph.csr_matmul" in str(raised), raised
            else:
                raise AssertionError(f"{error.__name__} was expected: {text}")
    np.testing.assert_allclose(program(indptr, indices, values, x), expected, bound, bound)


SPARSE_SCENARIOS: list[Callable[[], str]] = [csr_products]
