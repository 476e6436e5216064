"""The example of a backend that is called through Python: SciPy's sparse product."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fuse_opt
from fuse_opt.dialects.implementation.offers import forget_backend
from fuse_opt.tools.compiler import backend_switch
from fuse_opt.tools.compiler.pipeline import UsageError

EXAMPLE = str(Path(__file__).resolve().parents[3] / "examples" / "sparse_scipy.py")


@pytest.fixture
def example() -> Iterator[str]:
    pytest.importorskip("scipy", reason="the example calls scipy.sparse")
    backend_switch.forget_files()
    yield EXAMPLE
    forget_backend("scipy")
    backend_switch.forget_files()


def product(ta: bool = False, tb: bool = False, element: str = "f32") -> str:
    a, b = ("70x50" if ta else "50x70"), ("30x70" if tb else "70x30")
    flags = ", ".join(f"transpose_{side} = true" for side, on in (("lhs", ta), ("rhs", tb)) if on)
    return (
        f"func.func @main(%x: tensor<{a}x{element}>, %w: tensor<{b}x{element}>) -> tensor<50x30x{element}> {{\n"
        f"  %0 = graph.matmul %x, %w {{{flags}}} : (tensor<{a}x{element}>, tensor<{b}x{element}>)"
        f" -> tensor<50x30x{element}>\n"
        f"  %1 = graph.relu %0 : (tensor<50x30x{element}>) -> tensor<50x30x{element}>\n"
        f"  func.return %1 : tensor<50x30x{element}>\n}}\n"
    )


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_few_elements(example: str, ta: bool, tb: bool, element: str) -> None:
    program = fuse_opt.compile(product(ta, tb, element), backend=f"none,{example}")
    assert program.implementations == {"scipy.matmul": 1}
    rng = np.random.default_rng(2)
    a = rng.integers(-4, 5, (50, 70)) * (rng.random((50, 70)) < 0.05)
    b = rng.integers(-4, 5, (70, 30))
    dtype = np.float32 if element == "f32" else np.float64
    given = [np.ascontiguousarray(x.T if turn else x, dtype) for x, turn in ((a, ta), (b, tb))]
    np.testing.assert_array_equal(program(*given), np.maximum(a @ b, 0))


def test_a_zero_times_infinity_is_not_left_out(example: str) -> None:
    a, b = np.zeros((50, 70), np.float32), np.ones((70, 30), np.float32)
    b[3, 4] = np.inf
    found = fuse_opt.compile(product(), backend=f"none,{example}")(a, b)
    assert np.isnan(found[:, 4]).all() and not found[:, :4].any()


def test_large_products_choose_it_and_small_ones_do_not(example: str) -> None:
    text = product().replace("50x70", "2048x2048").replace("70x30", "2048x512").replace("50x30", "2048x512")
    for wanted, source in (("scipy.matmul", text), ("fuse.matmul", product())):
        assert fuse_opt.compile(source, backend=example).implementations == {wanted: 1}


def test_without_scipy_it_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    backend_switch.forget_files()
    with pytest.raises(UsageError, match=r"sparse_scipy.py' cannot be loaded: no scipy"):
        fuse_opt.compile(product(), backend=EXAMPLE)
