"""Functions of moderate arguments: the same bits, whatever is beside an element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ir_testing import apply, parse, text_of
from lowered_programs import needs_compiler

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

PASSES = ["decompose", "fuse-elementwise", "fuse-row", "wrap-kernels", "schedule-kernels", "infer-inplace"]


def pointwise(size: int, attributes: str = "") -> str:
    t = f"tensor<{size}xf32>"
    return f"""func.func @main(%x: {t}{attributes}) -> {t} {{
  %c = graph.constant dense<3.0> : tensor<f32>
  %a = graph.multiply %x, %c : ({t}, tensor<f32>) -> {t}
  %s = graph.sin %a : ({t}) -> {t}
  %u = graph.cos %x : ({t}) -> {t}
  %r = graph.add %s, %u : ({t}, {t}) -> {t}
  func.return %r : {t}
}}"""


ROWS = """func.func @main(%x: tensor<5x1300xf32>) -> tensor<5x1300xf32> {
  %s = graph.sin %x : (tensor<5x1300xf32>) -> tensor<5x1300xf32>
  %m = graph.sum %s {axes = array<i64: 1>, keepdims = true} : (tensor<5x1300xf32>) -> tensor<5x1xf32>
  %r = graph.subtract %s, %m : (tensor<5x1300xf32>, tensor<5x1xf32>) -> tensor<5x1300xf32>
  func.return %r : tensor<5x1300xf32>
}"""


def run(text: str, x: Any) -> Any:
    return CpuProgram(build_program(apply(parse(text), PASSES)))(x)


@needs_compiler
@pytest.mark.parametrize("size, attributes", [(1300, ""), (1024, " {graph.donated}"), (70, "")])
def test_an_element_does_not_depend_on_those_beside_it(size: int, attributes: str) -> None:
    x = np.random.default_rng(2).uniform(-9999 / 3, 9999 / 3, size).astype(np.float32)
    text = pointwise(size, attributes)
    alone = run(text, x.copy())
    wanted = np.sin(3 * x.astype(np.float64)) + np.cos(x.astype(np.float64))
    assert np.max(np.abs(alone - wanted)) < 1e-3  # the product is rounded
    for other in (3e38, np.inf, np.nan, 10000.0):
        beside = x.copy()
        beside[5::97] = other
        got = run(text, beside.copy())
        kept = np.ones(size, bool)
        kept[5::97] = False
        np.testing.assert_array_equal(got[kept], alone[kept])
        if other == 10000.0:
            exact = np.float64(np.sin(30000.0) + np.cos(10000.0))
            np.testing.assert_allclose(got[~kept], exact, rtol=1e-6)


@needs_compiler
def test_tangents_ask_as_sines_do() -> None:
    """Near their poles, too, and beside an element that is none of moderate size."""
    t = "tensor<1300xf32>"
    text = f"""func.func @main(%x: {t}) -> {t} {{
  %r = graph.tan %x : ({t}) -> {t}
  func.return %r : {t}
}}"""
    assert "call @fo_moderate_tan_f32" in text_of(apply(parse(text), [*PASSES, "convert-fused-to-loops"]))
    x = np.random.default_rng(5).uniform(-9999, 9999, 1300).astype(np.float32)
    x[::9] = (np.arange(1, 1300, 9) * np.pi / 2).astype(np.float32)
    alone, beside = run(text, x), x.copy()
    np.testing.assert_allclose(alone, np.tan(x.astype(np.float64)), rtol=1e-6)
    beside[700] = 3e38
    got = run(text, beside)
    np.testing.assert_array_equal(np.delete(got, 700), np.delete(alone, 700))
    np.testing.assert_allclose(got[700], np.tan(np.float64(np.float32(3e38))), rtol=1e-6)


def test_a_loop_asks_on_the_way_where_it_may_run_again() -> None:
    alone, in_place = (
        text_of(apply(parse(pointwise(1300, a)), [*PASSES, "convert-fused-to-loops"])) for a in ("", " {graph.donated}")
    )
    assert ("arith.cmpi sge" in alone, "arith.cmpi slt" in alone) == (True, False)
    assert ("arith.cmpi sge" in in_place, "arith.cmpi slt" in in_place) == (False, True)


@needs_compiler
def test_rows_ask_for_each_loop() -> None:
    text = text_of(apply(parse(ROWS), [*PASSES, "convert-fused-to-loops"]))
    assert "fo_moderate_sin_f32" in text
    x = np.random.default_rng(3).uniform(-50, 50, (5, 1300)).astype(np.float32)
    x[2, 7] = 1e30
    s = np.sin(x.astype(np.float64))
    np.testing.assert_allclose(run(ROWS, x), s - s.sum(1, keepdims=True), atol=1e-4)


def test_dear_arguments_are_computed_once_and_short_loops_and_f64_are_left_alone() -> None:
    dear = pointwise(1300).replace("graph.multiply %x, %c", "graph.pow %x, %c")
    assert text_of(apply(parse(dear), [*PASSES, "convert-fused-to-loops"])).count("math.powf") == 1
    for text, found in ((dear, ["sin", "cos"]), (pointwise(40), []), (pointwise(1300).replace("f32", "f64"), [])):
        lowered = text_of(apply(parse(text), [*PASSES, "convert-fused-to-loops"]))
        assert [word for word in ("sin", "cos") if f"call @fo_moderate_{word}_f32" in lowered] == found


def quotients(op: str, kind: str, size: int) -> str:
    t = f"tensor<{size}x{kind}>"
    return f"""func.func @main(%x: {t}, %y: {t}) -> {t} {{
  %r = graph.{op} %x, %y : ({t}, {t}) -> {t}
  func.return %r : {t}
}}"""


@needs_compiler
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", ["fmod", "remainder", "floor_divide"])
def test_remainders_of_moderate_quotients_are_exact(op: str, kind: str) -> None:
    """NumPy's bits: of quotients to beyond what asks for libm, of multiples and what is beside them, and of everything that is no
    number, each in a block of others."""
    dtype, size, most = {"f32": np.float32, "f64": np.float64}[kind], 40_000, {"f32": 34, "f64": 58}[kind]
    rng = np.random.default_rng(11)
    y = np.exp2(rng.uniform(-100, 60, size)) * rng.choice([-1, 1], size)
    x = np.where(
        rng.random(size) < 0.5, np.trunc(np.exp2(rng.uniform(-3, most, size))) * y, rng.normal(0, 1e6, size) * y
    )
    x, y = x.astype(dtype), y.astype(dtype)
    x[::3] = np.nextafter(x[::3], dtype(0))
    x[5000::977], y[9001::1013] = (
        np.resize([np.nan, np.inf, -0.0, 0.0], 36),
        np.resize([0.0, -np.inf, np.nan, -0.0], 31),
    )
    text = quotients(op, kind, size)
    name = {"floor_divide": "floordiv", "remainder": "rem"}.get(op, op)
    assert f"call @fo_moderate_{name}_{kind}" in text_of(apply(parse(text), [*PASSES, "convert-fused-to-loops"]))
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(x, y)
    got = CpuProgram(build_program(apply(parse(text), PASSES)))(x, y)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))
