"""Regions of StableHLO ops that are no single word: reductions, windows, sorts, scatters by jax, against jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_op_table import Array
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.frontends.stablehlo import StableHLOError, load

TARGETS = ("reference", pytest.param("cpu", marks=needs_compiler))
RNG = np.random.default_rng(8)
Function = Callable[..., Any]


NAMES = (
    *("welford", "logaddexp", "first", "windows", "argmax", "scatters", "sorts", "sorts of ties"),
    *("gradient of pooling", "gradient of pooling with ties", "cumulative", "median"),
)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def programs() -> dict[str, tuple[Function, list[Array]]]:
    jax: Any = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax

    def welford(x: Any) -> Any:
        def joined(a: Any, b: Any) -> Any:
            n = a[0] + b[0]
            scale = 1 / jnp.maximum(n, 1)
            delta = b[1] - a[1]
            return n, a[1] + delta * b[0] * scale, a[2] + b[2] + delta * delta * a[0] * b[0] * scale

        zero = np.float32(0)
        return lax.reduce((jnp.ones_like(x), x, jnp.zeros_like(x)), (zero, zero, zero), joined, (1,))

    def logaddexp(x: Any, axes: tuple[int, ...]) -> Any:
        return lax.reduce(x, np.float32(-np.inf), jnp.logaddexp, axes)

    def first_operand(x: Any) -> Any:
        """Associative, and not commutative."""

        def first(a: Any, b: Any) -> Any:
            return jnp.where(a == a, a, b)

        return lax.reduce(x, np.float32(np.nan), first, (0,))

    def windows(x: Any) -> Any:
        start = np.float32(-2)
        steps: dict[str, Any] = {"window_dimensions": (3, 2), "window_strides": (2, 1)}
        return (
            lax.reduce_window(x, np.float32(-np.inf), jnp.logaddexp, padding=((1, 2), (0, 1)), **steps),
            lax.reduce_window(x, start, lax.max, padding="SAME", base_dilation=(1, 2), **steps),
            lax.reduce_window(x, np.float32(1), lax.mul, padding="VALID", window_dilation=(2, 3), **steps),
        )

    def doubled(old: Any) -> Any:
        return old * 2 + 1

    def scatters(x: Any, at: Any, update: Any) -> Any:
        return (
            x.at[at].apply(doubled),
            x.at[at].divide(update),
            x.at[at].power(np.float32(2)),
            x.at[at, 1].set(update[:, 0]),
        )

    def sorts(x: Any, key: Any) -> Any:
        return (
            *lax.sort((key, x), num_keys=2),
            *lax.sort((key, x, -x), num_keys=1),
            lax.sort(x, dimension=0),
            jnp.lexsort((x[:, 0], key[:, 0])),
            *lax.top_k(x, 3),
        )

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 2), (1, 2, 1), ((0, 0), (1, 1), (0, 1))).sum()

    def several(x: Any) -> Any:
        return logaddexp(x, (0,)), logaddexp(x, (0, 2)), logaddexp(x, ())

    def extremes(x: Any, y: Any) -> Any:
        return jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(y, 1), jnp.argmin(y > 1, 0)

    def running(x: Any) -> Any:
        return lax.cumlogsumexp(x, 1), lax.cummax(x, 0, reverse=True), lax.cummin(x)

    def middles(x: Any) -> Any:
        return jnp.nanmedian(x), jnp.quantile(x, 0.3, axis=0)

    odd = floats(5, 9)
    odd[0, :3] = [np.nan, np.inf, -np.inf]
    odd[3, 4] = -np.nan
    some = RNG.integers(0, 3, (5, 9)).astype(np.int32)
    ties = some.astype(np.float32)
    at = np.array([1, 3, 1, 7, -1], np.int32)
    return {
        "welford": (welford, [floats(4, 7)]),
        "logaddexp": (several, [floats(5, 3, 6)]),
        "first": (first_operand, [odd]),
        "windows": (windows, [floats(7, 6)]),
        "argmax": (extremes, [odd, some]),
        "scatters": (scatters, [floats(5, 3), at, floats(5, 3)]),
        "sorts": (sorts, [odd, some]),
        "sorts of ties": (sorts, [ties, some]),
        "gradient of pooling": (jax.grad(pooled), [floats(2, 8, 5)]),
        "gradient of pooling with ties": (jax.grad(pooled), [RNG.integers(0, 3, (2, 8, 5)).astype(np.float32)]),
        "cumulative": (running, [floats(4, 9)]),
        "median": (middles, [floats(4, 9)]),
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_against_jax(name: str, target: str) -> None:
    jax: Any = pytest.importorskip("jax")
    function, arguments = programs()[name]
    compiled = jax.jit(function, keep_unused=True)
    wanted = jax.tree.leaves(compiled(*arguments))
    results = as_list(fuse_opt.compile(load(compiled.lower(*arguments)), target=target)(*arguments))
    assert len(results) == len(wanted)
    for got, exact in zip(results, map(np.asarray, wanted), strict=True):
        assert (got.dtype, got.shape) == (exact.dtype, exact.shape)
        np.testing.assert_allclose(got, exact, rtol=2e-5, atol=1e-6)


def _reduce(body: str) -> str:
    return f"""
"builtin.module"() ({{
  "func.func"() <{{function_type = (tensor<4xf32>) -> tensor<f32>, sym_name = "main"}}> ({{
  ^bb0(%x: tensor<4xf32>):
    %zero = "stablehlo.constant"() <{{value = dense<0.0> : tensor<f32>}}> : () -> tensor<f32>
    %r = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 0>}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      {body}
    }}) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    "func.return"(%r) : (tensor<f32>) -> ()
  }}) : () -> ()
}}) : () -> ()
"""


ADD = '%c = "stablehlo.add"({}) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n      "stablehlo.return"(%c) : (tensor<f32>) -> ()'


def test_a_region_is_what_it_says() -> None:
    """One word on other operands than both arguments is no sum: what it doubles is the start value or the first."""
    x = np.array([1, 2, 4, 8], np.float32)
    assert fuse_opt.evaluate(load(_reduce(ADD.format("%b, %a"))), x) == 15
    assert fuse_opt.evaluate(load(_reduce(ADD.format("%a, %a"))), x) == 0
    assert "graph.sum" in str(load(_reduce(ADD.format("%a, %b"))))
    with pytest.raises(StableHLOError, match="value from outside of its region"):
        load(_reduce(ADD.format("%a, %zero")))


def test_numbers_that_are_known_wrap_in_their_type() -> None:
    """3 - 5 of ui32 is not below 10, and 100 + 100 of i8 is: what decides a branch is followed as the types say."""
    text = """
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<f32>) -> tensor<f32>, sym_name = "main"}> ({
  ^bb0(%x: tensor<f32>):
    %a = "stablehlo.constant"() <{value = dense<A> : tensor<T>}> : () -> tensor<T>
    %b = "stablehlo.constant"() <{value = dense<B> : tensor<T>}> : () -> tensor<T>
    %limit = "stablehlo.constant"() <{value = dense<10> : tensor<T>}> : () -> tensor<T>
    %c = "stablehlo.OP"(%a, %b) : (tensor<T>, tensor<T>) -> tensor<T>
    %less = "stablehlo.compare"(%c, %limit) <{comparison_direction = #stablehlo<comparison_direction LT>}>
      : (tensor<T>, tensor<T>) -> tensor<i1>
    %r = "stablehlo.if"(%less) ({
      "stablehlo.return"(%x) : (tensor<f32>) -> ()
    }, {
      %n = "stablehlo.negate"(%x) : (tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%n) : (tensor<f32>) -> ()
    }) : (tensor<i1>) -> tensor<f32>
    "func.return"(%r) : (tensor<f32>) -> ()
  }) : () -> ()
}) : () -> ()
"""
    one = np.float32(1)
    for a, b, op, kind, wanted in (
        (3, 5, "subtract", "ui32", -1),
        (100, 100, "add", "i8", 1),
        (3, 5, "subtract", "i32", 1),
    ):
        program = text.replace("<A>", f"<{a}>").replace("<B>", f"<{b}>").replace("OP", op).replace("<T>", f"<{kind}>")
        assert fuse_opt.evaluate(load(program), one) == wanted, kind


def _scan(op: str, start: str, axis: int, backwards: str, given_out: str = "%j, %j") -> str:
    rest = "7" if axis == 0 else "3"
    return f"""
"builtin.module"() ({{
  "func.func"() <{{function_type = (tensor<3x7xf32>) -> (tensor<3x7xf32>, tensor<{rest}xf32>), sym_name = "main"}}> ({{
  ^bb0(%x: tensor<3x7xf32>):
    %n = "stablehlo.constant"() <{{value = dense<{start}> : tensor<f32>}}> : () -> tensor<f32>
    %s = "stablehlo.broadcast_in_dim"(%n) <{{broadcast_dimensions = array<i64>}}> : (tensor<f32>) -> tensor<{rest}xf32>
    %r:2 = "chlo.scan"(%x, %s) <{{dimension = {axis} : i64, is_associative = true, is_reverse = {backwards},
        operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}}> ({{
    ^bb0(%a: tensor<{rest}xf32>, %b: tensor<{rest}xf32>):
      %j = "{op}"(%a, %b) : (tensor<{rest}xf32>, tensor<{rest}xf32>) -> tensor<{rest}xf32>
      "stablehlo.return"({given_out}) : (tensor<{rest}xf32>, tensor<{rest}xf32>) -> ()
    }}) : (tensor<3x7xf32>, tensor<{rest}xf32>) -> (tensor<3x7xf32>, tensor<{rest}xf32>)
    "func.return"(%r#0, %r#1) : (tensor<3x7xf32>, tensor<{rest}xf32>) -> ()
  }}) : () -> ()
}}) : () -> ()
"""


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backwards", ["false", "true"])
def test_scans_are_running_totals(axis: int, backwards: str) -> None:
    """As JAX 0.11 lowers cumsum and cumprod for GPUs, and with another start value."""
    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)

    def turn(a: Array) -> Array:
        return np.flip(a, axis) if backwards == "true" else a

    for op, start in (("add", 0.0), ("add", 2.5), ("multiply", 1.0), ("multiply", -3.0)):
        totals = turn(np.cumsum(turn(x), axis) + start if op == "add" else np.cumprod(turn(x), axis) * start)
        found = fuse_opt.evaluate(load(_scan(f"stablehlo.{op}", str(start), axis, backwards)), x)
        np.testing.assert_allclose(found[0], totals, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[1], np.take(found[0], 0 if backwards == "true" else -1, axis))


def test_other_scans_are_refused() -> None:
    for text in (_scan("stablehlo.maximum", "0.0", 1, "false"), _scan("stablehlo.add", "0.0", 1, "false", "%j, %a")):
        with pytest.raises(StableHLOError, match="'chlo.scan': expected a scan of one tensor by one of stablehlo.add"):
            load(text)
