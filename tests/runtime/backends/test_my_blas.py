"""The example of a user's backend, over a stub of the library that asserts every argument, and without the library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fuse_opt
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.tools.compiler import backend_switch
from fuse_opt.tools.compiler.pipeline import UsageError

EXAMPLE = str(Path(__file__).resolve().parents[3] / "examples" / "my_blas.py")
STUB = r"""
#include <stdlib.h>
void scipy_openblas_set_num_threads(int n) { if (n != 1) abort(); }
void scipy_cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                       const float *b, int ldb, float beta, float *c, int ldc) {
  if (order != 101 || alpha != 1 || beta != 0 || m < 1 || n < 1 || k < 1) abort();
  if (lda != (ta == 112 ? m : k) || ldb != (tb == 112 ? k : n) || ldc != n) abort();
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int p = 0; p < k; p++)
        sum += (ta == 112 ? a[p * lda + i] : a[i * lda + p]) * (tb == 112 ? b[j * ldb + p] : b[p * ldb + j]);
      c[i * ldc + j] = sum;
    }
}
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        pytest.skip("no C compiler builds the stub")
    (tmp_path / "stub.c").write_text(STUB, encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "stub.c", "-o", "libstub.so"], cwd=tmp_path, check=True)
    package = ModuleType("scipy_openblas32")
    vars(package).update(get_lib_dir=lambda: str(tmp_path), get_library=lambda: "stub")
    monkeypatch.setitem(sys.modules, "scipy_openblas32", package)
    backend_switch.forget_files()
    yield
    forget_backend("myblas")
    backend_switch.forget_files()


def product(ta: bool, tb: bool, tail: str = "") -> str:
    a, b = ("7x5" if ta else "5x7"), ("3x7" if tb else "7x3")
    flags = ", ".join(f"transpose_{side} = true" for side, on in (("lhs", ta), ("rhs", tb)) if on)
    name, more = ("%1", "%1 = graph.relu %0 : (tensor<5x3xf32>) -> tensor<5x3xf32>") if tail else ("%0", "")
    return (
        f"func.func @main(%x: tensor<{a}xf32>, %w: tensor<{b}xf32>) -> tensor<5x3xf32> {{\n"
        f"  %0 = graph.matmul %x, %w {{{flags}}} : (tensor<{a}xf32>, tensor<{b}xf32>) -> tensor<5x3xf32>\n"
        f"  {more}\n  func.return {name} : tensor<5x3xf32>\n}}\n"
    )


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("tail", ["", "relu"])
def test_it_runs_products(ta: bool, tb: bool, tail: str) -> None:
    program = fuse_opt.compile(product(ta, tb, tail), backend=f"none,{EXAMPLE}")
    assert "myblas.matmul" in str(program.module)
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (7, 5) if ta else (5, 7)), rng.integers(-4, 5, (3, 7) if tb else (7, 3))
    expected = (a.T if ta else a) @ (b.T if tb else b)
    found = program(a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(found, np.maximum(expected, 0) if tail else expected)


@pytest.mark.usefixtures("library")
def test_it_says_what_it_does_not_take() -> None:
    text = product(False, False).replace("f32", "f64")
    with pytest.raises(fuse_opt.InputError, match=r"no implementation runs it: myblas.matmul:dtype; allow"):
        fuse_opt.compile(text, backend=f"none,{EXAMPLE}")
    assert "numpy.matmul" in str(fuse_opt.compile(text, backend=f"{EXAMPLE},-fuse,-blas").module)


def test_without_the_library_it_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy_openblas32", None)
    backend_switch.forget_files()
    with pytest.raises(UsageError, match="my_blas.py' cannot be loaded: no scipy-openblas32"):
        fuse_opt.compile(product(False, False), backend=EXAMPLE)
