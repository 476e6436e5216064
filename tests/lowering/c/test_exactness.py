"""Named cases in which a compiler, a cast or a comparison once changed a value; C and the reference agree bit for bit."""

from typing import Any

import numpy as np
import pytest

import fuse_opt

TARGETS = ["cpu", "reference"]


def run(target: str, text: str, *arrays: Any) -> Any:
    return fuse_opt.compile(text, target)(*arrays)


@pytest.mark.parametrize("target", TARGETS)
def test_ops_are_not_contracted_across_each_other(target: str) -> None:
    """The last multiplication of exp, joined with the subtraction, gave -inf: it did not overflow on the way."""
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %e = graph.exp %x : (tensor<2xf32>) -> tensor<2xf32>
      %inf = graph.constant dense<0x7F800000> : tensor<f32>
      %d = graph.subtract %e, %inf : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
      func.return %d : tensor<2xf32>
    }"""
    np.testing.assert_array_equal(run(target, text, np.array([np.inf, 1], np.float32)), [np.nan, -np.inf])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["mean", "var"])
def test_moments_of_halves_do_not_overflow(target: str, op: str) -> None:
    text = f"""func.func @main(%x: tensor<2x300xf16>) -> tensor<2xf16> {{
      %m = graph.{op} %x {{axes = array<i64: 1>}} : (tensor<2x300xf16>) -> tensor<2xf16>
      func.return %m : tensor<2xf16>
    }}"""
    x = np.where(np.arange(600).reshape(2, 300) % 2, 1000, 1100).astype(np.float16)
    expected = getattr(x.astype(np.float64), op)(axis=1).astype(np.float16)
    np.testing.assert_allclose(run(target, text, x), expected, rtol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_both_zeros_of_a_constant_are_kept(target: str) -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %c = graph.constant dense<[0.0, -0.0]> : tensor<2xf32>
      %r = graph.divide %x, %c : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      func.return %r : tensor<2xf32>
    }"""
    np.testing.assert_array_equal(run(target, text, np.ones(2, np.float32)), [np.inf, -np.inf])


@pytest.mark.parametrize("target", TARGETS)
def test_the_beginning_of_a_value_is_no_alias_of_it(target: str) -> None:
    """A slice that starts at 0 has its operand's addresses, but not its size."""
    text = """func.func @main(%x: tensor<4x8xf32>) -> tensor<2x8xf32> {
      %e = graph.exp %x {no_fuse} : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %s = graph.slice %e {starts = array<i64: 0, 0>, stops = array<i64: 2, 8>} : (tensor<4x8xf32>) -> tensor<2x8xf32>
      func.return %s : tensor<2x8xf32>
    }"""
    np.testing.assert_array_equal(run(target, text, np.zeros((4, 8), np.float32)), np.ones((2, 8)))
