"""Mean and variance over leading axes, one way through memory: every extent, and what a point near the mean may spoil."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from ir_testing import apply, kernels, parse
from lowered_programs import Array, needs_compiler
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

pytestmark = needs_compiler


def mean_and_variance(x: Array, axes: Sequence[int], splits: int, called: str = "") -> tuple[Array, Array]:
    element = {"float32": "f32", "float64": "f64"}[x.dtype.name]
    full = "x".join([*map(str, x.shape), element])
    kept = "x".join([*(str(n) for axis, n in enumerate(x.shape) if axis not in axes), element])
    ends = f"{{axes = array<i64: {', '.join(map(str, axes))}>}} : (tensor<{full}>) -> tensor<{kept}>"
    module = parse(f"""
func.func @main(%x: tensor<{full}>) -> (tensor<{kept}>, tensor<{kept}>) {{
  %k:2 = fused.kernel(%a = %x : tensor<{full}>) -> (tensor<{kept}>, tensor<{kept}>) {{
    %r = graph.mean %a {ends}
    %s = graph.var %a {ends}
    fused.yield %r, %s : tensor<{kept}>, tensor<{kept}>
  }}
  func.return %k#0, %k#1 : tensor<{kept}>, tensor<{kept}>
}}""")
    module = apply(module, ["decompose", "cse"])
    for kernel in kernels(module):
        kernel.schedule = DictionaryAttr({"kind": StringAttr("column"), "splits": IntegerAttr(splits, i64)})
    program = build_program(apply(module, ["convert-fused-to-loops"]))
    assert "_near[" in program.source and called in program.source
    mean, variance = CpuProgram(program)(x)
    return mean, variance


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("shape", "axes", "splits"),
    [
        ((97, 64), (0,), 3),
        ((1025, 32), (0,), 2),
        ((9, 3, 40, 128), (0, 2), 2),
        ((5, 100, 96), (1,), 4),
        ((13, 384), (0,), 2),
        ((700, 1100), (0,), 2),
        ((390, 640), (0,), 1000),
    ],
)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_every_extent(shape: tuple[int, ...], axes: tuple[int, ...], splits: int, kind: str) -> None:
    x = (np.random.default_rng(1).standard_normal(shape) + 3.0).astype(kind)
    mean, variance = mean_and_variance(x, axes, splits)
    wide, unit = x.astype(np.longdouble), float(np.finfo(kind).eps)
    np.testing.assert_allclose(mean, wide.mean(axes), rtol=8 * unit)
    np.testing.assert_allclose(variance, wide.var(axes), rtol=20 * unit)


@pytest.mark.parametrize(
    ("shape", "axes"), [((530, 100), (0,)), ((1030, 64), (0,)), ((9, 3, 40, 128), (0, 2)), ((300, 1100), (0,))]
)
def test_arrays_outside_of_caches(
    shape: tuple[int, ...], axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task goes along memory there and asks for what comes next, where its rows are neither short nor long."""
    plain = mean_and_variance(x := np.random.default_rng(1).random(shape, np.float32) + 3, axes, 3)
    monkeypatch.setattr("fuse_opt.lowering.kernel.loop_splitting.OUTSIDE_CACHES", 1)
    for value, near in zip(
        mean_and_variance(x, axes, 3, "fo_prefetch_f32(" if shape[-1] < 1024 else ""), plain, strict=True
    ):
        np.testing.assert_allclose(value, near, rtol=40 * 2**-23)


def test_elements_far_from_the_mean() -> None:
    """A part is taken relative to some of its elements, which may be those that lie apart from all others."""
    x = np.random.default_rng(1).standard_normal((512, 64)).astype(np.float32) * 0.01 + 5
    x[:8] = 0.0
    x[::16, 1] = -1e4
    x[:, 2] = np.float32(0.1)
    mean, variance = mean_and_variance(x, (0,), 2)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-6)
    np.testing.assert_allclose(variance, wide.var(0), rtol=2e-6, atol=(0.1 * 2**-24) ** 2)
    assert variance[2] >= 0.0


@pytest.mark.parametrize("row", [0, 5, 77, 511])
def test_infinities_and_nan_stay_what_they_are(row: int) -> None:
    x = np.random.default_rng(1).standard_normal((512, 32)).astype(np.float32)
    x[row, :4] = np.inf, -np.inf, np.nan, np.inf
    x[row - 3, 3] = -np.inf
    mean, variance = mean_and_variance(x, (0,), 2)
    np.testing.assert_array_equal(mean[:4], np.array([np.inf, -np.inf, np.nan, np.nan]))
    assert np.all(np.isnan(variance[:4])) and np.all(np.isfinite(variance[4:]) & np.isfinite(mean[4:]))
