"""StableHLO as JAX prints it, read into graph ops: three stored programs, single ops, refusals; and jax where it is installed."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import fuse_opt
from fuse_opt.frontends.stablehlo import StableHLOError, load, supported_ops
from fuse_opt.tools.commands.fuse_opt_main import main as fuse_opt_main

ROOT = Path(__file__).resolve().parents[3]
STORED = ROOT / "tests" / "frontends" / "stablehlo" / "programs"
Array = NDArray[Any]
RNG = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluated(path: str, *arrays: Array) -> tuple[Array, ...]:
    results: Any = fuse_opt.evaluate(load(STORED / f"{path}.stablehlo.mlir"), *arrays)
    return cast("tuple[Array, ...]", results) if isinstance(results, tuple) else (results,)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_layer_norm() -> None:
    x, scale, bias = floats(4, 16), floats(16), floats(16)
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(evaluated("layer_norm", x, scale, bias)[0], wanted, rtol=1e-4, atol=1e-5)


def test_attention() -> None:
    x, *weights = floats(2, 8, 16), *(floats(16, 16) / 4 for _ in range(4))
    q, k, v = ((x @ w).reshape(2, 8, 4, 4).transpose(0, 2, 1, 3) for w in weights[:3])
    scores = np.where(np.tril(np.ones((8, 8), bool)), q @ k.swapaxes(-1, -2) / 2, -1e9)
    wanted = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, 8, 16) @ weights[3]
    np.testing.assert_allclose(evaluated("attention", x, *weights)[0], wanted, rtol=1e-4, atol=1e-5)


def test_training_step() -> None:
    """Cross entropy of a two-layer perceptron, and its parameters after a step of 0.1 against the gradients by hand."""
    w1, b1, w2, b2, x = floats(8, 16), floats(16), floats(16, 4), floats(4), floats(6, 8)
    y = RNG.integers(0, 4, 6).astype(np.int32)
    hidden = np.maximum(x @ w1 + b1, 0)
    p = softmax(hidden @ w2 + b2)
    loss = -np.log(p[np.arange(6), y]).mean()
    d = (p - np.eye(4)[y]) / 6
    back = (d @ w2.T) * (hidden > 0)
    wanted = [loss, w1 - 0.1 * x.T @ back, b1 - 0.1 * back.sum(0), w2 - 0.1 * hidden.T @ d, b2 - 0.1 * d.sum(0)]
    for got, exact in zip(evaluated("train_step", w1, b1, w2, b2, x, y), wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def run(body: str, *arrays: Array, results: str = "") -> Any:
    """The value of ops on %0, %1 ..., the last of which defines %r."""
    names = {"float32": "f32", "int32": "i32", "bool": "i1", "int64": "i64"}
    types = [f"tensor<{''.join(f'{n}x' for n in a.shape)}{names[a.dtype.name]}>" for a in arrays]
    arguments = ", ".join(f"%{number}: {type_}" for number, type_ in enumerate(types))
    last = results or re.findall(r"-> (\S+)\s*$", body.strip())[0]
    text = f"""
"builtin.module"() ({{
  "func.func"() <{{function_type = ({", ".join(types)}) -> {last}, sym_name = "main"}}> ({{
  ^bb0({arguments}):
    {body}
    "func.return"(%r) : ({last}) -> ()
  }}) : () -> ()
}}) : () -> ()
"""
    return fuse_opt.evaluate(load(text), *arrays)


def region(op: str, element: str = "f32") -> str:
    t = f"tensor<{element}>"
    return f"""({{
    ^bb0(%a: {t}, %b: {t}):
      %c = "{op}"(%a, %b) : ({t}, {t}) -> {t}
      "stablehlo.return"(%c) : ({t}) -> ()
    }})"""


def test_dot_general_with_batches_behind() -> None:
    a, b = floats(4, 3, 2), floats(5, 4, 2)
    numbers = "lhs_batching_dimensions = [2], rhs_batching_dimensions = [2], lhs_contracting_dimensions = [0], "
    got = run(
        f'%r = "stablehlo.dot_general"(%0, %1) <{{dot_dimension_numbers = #stablehlo.dot<{numbers}'
        "rhs_contracting_dimensions = [1]>}> : (tensor<4x3x2xf32>, tensor<5x4x2xf32>) -> tensor<2x3x5xf32>",
        a,
        b,
    )
    np.testing.assert_allclose(got, np.einsum("kmb,nkb->bmn", a, b), rtol=1e-5, atol=1e-6)


def constant(number: str) -> str:
    return f'%i = "stablehlo.constant"() <{{value = dense<{number}> : tensor<f32>}}> : () -> tensor<f32>\n    '


@pytest.mark.parametrize(("start", "wanted"), [("0.0", 0.0), ("2.5", 2.5)])
def test_reduce_starts_with_its_value(start: str, wanted: float) -> None:
    x = floats(3, 4)
    got = run(
        f'{constant(start)}%r = "stablehlo.reduce"(%0, %i) <{{dimensions = array<i64: 1>}}> {region("stablehlo.add")} : '
        "(tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>",
        x,
    )
    np.testing.assert_allclose(got, x.sum(1) + wanted, rtol=1e-5, atol=1e-6)


def test_gather_clips_positions() -> None:
    x, at = floats(5, 3), np.array([[0], [9], [-2], [4]], np.int32)
    got = run(
        '%r = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}> : "
        "(tensor<5x3xf32>, tensor<4x1xi32>) -> tensor<4x3xf32>",
        x,
        at,
    )
    np.testing.assert_array_equal(got, x[[0, 4, 0, 4]])


def test_gather_of_columns_puts_them_where_they_belong() -> None:
    x, at = floats(5, 3), np.array([2, 0], np.int32)
    got = run(
        '%r = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], '
        "collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 5, 1>}> : "
        "(tensor<5x3xf32>, tensor<2xi32>) -> tensor<5x2xf32>",
        x,
        at,
    )
    np.testing.assert_array_equal(got, x[:, [2, 0]])


def test_scatter_drops_what_is_out_of_range() -> None:
    x, at, updates = floats(4, 2), np.array([[1], [7], [1], [-1]], np.int32), floats(4, 2)
    got = run(
        '%r = "stablehlo.scatter"(%0, %1, %2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], '
        f"inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {region('stablehlo.add')}"
        " : (tensor<4x2xf32>, tensor<4x1xi32>, tensor<4x2xf32>) -> tensor<4x2xf32>",
        x,
        at,
        updates,
    )
    wanted = x.copy()
    wanted[1] += updates[0] + updates[2]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("at", [-3, 1, 3])
def test_dynamic_slices_stay_inside(at: int) -> None:
    x, update, start = floats(4, 3), floats(2, 3), np.array(at, np.int32)
    zero = '%z = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>'
    read = run(
        f'{zero}\n    %r = "stablehlo.dynamic_slice"(%0, %1, %z) <{{slice_sizes = array<i64: 2, 3>}}> : '
        "(tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        x,
        start,
    )
    first = min(max(at, 0), 2)
    np.testing.assert_array_equal(read, x[first : first + 2])
    written = run(
        f'{zero}\n    %r = "stablehlo.dynamic_update_slice"(%0, %1, %2, %z) : '
        "(tensor<4x3xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>",
        x,
        update,
        start,
    )
    x[first : first + 2] = update
    np.testing.assert_array_equal(written, x)


def test_padding_between_neighbours() -> None:
    x, value = floats(3), np.array(7, np.float32)
    got = run(
        '%r = "stablehlo.pad"(%0, %1) <{edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: -1>, '
        "interior_padding = array<i64: 2>}> : (tensor<3xf32>, tensor<f32>) -> tensor<7xf32>",
        x,
        value,
    )
    np.testing.assert_array_equal(got, np.array([7, x[0], 7, 7, x[1], 7, 7], np.float32))


def test_integers_divide_towards_zero() -> None:
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    t = "tensor<4xi32>"
    got = run(f'%r = "stablehlo.divide"(%0, %1) : ({t}, {t}) -> {t}', x, y)
    np.testing.assert_array_equal(got, [3, -3, -3, 3])


@pytest.mark.parametrize(("window", "low", "high"), [(5, 4, 0), (5, 0, 4), (3, 1, 1)])
def test_windows_and_running_totals(window: int, low: int, high: int) -> None:
    x = floats(2, 5)
    got = run(
        f'{constant("0.0")}%r = "stablehlo.reduce_window"(%0, %i) <{{window_dimensions = array<i64: 1, {window}>, '
        f"padding = dense<[[0, 0], [{low}, {high}]]> : tensor<2x2xi64>}}> {region('stablehlo.add')} : "
        "(tensor<2x5xf32>, tensor<f32>) -> tensor<2x5xf32>",
        x,
    )
    padded = np.pad(x, ((0, 0), (low, high)))
    wanted = np.lib.stride_tricks.sliding_window_view(padded, window, 1).sum(-1)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [0, 3])
def test_loops_with_a_counter_are_unrolled(length: int) -> None:
    n, x = "tensor<i32>", floats(4)
    got = run(
        f"""%i = "stablehlo.constant"() <{{value = dense<0> : {n}}}> : () -> {n}
    %l = "stablehlo.constant"() <{{value = dense<{length}> : {n}}}> : () -> {n}
    %s, %r = "stablehlo.while"(%i, %0) ({{
    ^bb0(%a: {n}, %b: tensor<4xf32>):
      %c = "stablehlo.compare"(%a, %l) <{{comparison_direction = #stablehlo<comparison_direction LT>}}> : ({n}, {n}) -> tensor<i1>
      "stablehlo.return"(%c) : (tensor<i1>) -> ()
    }}, {{
    ^bb0(%a: {n}, %b: tensor<4xf32>):
      %one = "stablehlo.constant"() <{{value = dense<1> : {n}}}> : () -> {n}
      %d = "stablehlo.add"(%a, %one) : ({n}, {n}) -> {n}
      %e = "stablehlo.multiply"(%b, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%d, %e) : ({n}, tensor<4xf32>) -> ()
    }}) : ({n}, tensor<4xf32>) -> ({n}, tensor<4xf32>)""",
        x,
        results="tensor<4xf32>",
    )
    np.testing.assert_allclose(got, x ** (length + 1), rtol=1e-5)


def test_scatter_of_parts_of_rows() -> None:
    x, start, updates = floats(4, 5), np.array([1, 3], np.int32), floats(2, 2)
    got = run(
        '%r = "stablehlo.scatter"(%0, %1, %2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], '
        f"scatter_dims_to_operand_dims = [0, 1]>}}> {region('stablehlo.add')}"
        " : (tensor<4x5xf32>, tensor<2xi32>, tensor<2x2xf32>) -> tensor<4x5xf32>",
        x,
        start,
        updates,
    )
    x[1:3, 3:5] += updates
    np.testing.assert_allclose(got, x, rtol=1e-6)


REFUSED = {
    "unknown op": ('%r = "stablehlo.fft"(%0) : (tensor<4xf32>) -> tensor<4xf32>', "'stablehlo.fft' is not supported"),
    "control flow": (
        '%s = "stablehlo.reshape"(%1) : (tensor<1xi32>) -> tensor<i32>\n    '
        '%r = "stablehlo.case"(%s) ({\n      "stablehlo.return"(%0) : (tensor<4xf32>) -> ()\n    }) : (tensor<i32>) -> '
        "tensor<4xf32>",
        "'stablehlo.case': expected a branch that is known when the program is read",
    ),
    "foreign call": (
        '%r = "stablehlo.custom_call"(%0) <{call_target_name = "lapack_spotrf"}> : (tensor<4xf32>) -> tensor<4xf32>',
        "calls 'lapack_spotrf'",
    ),
    "wrong result": ('%r = "stablehlo.tanh"(%0) : (tensor<4xf32>) -> tensor<5xf32>', "expected 'tensor<5xf32>', got"),
    "type": ('%r = "stablehlo.convert"(%0) : (tensor<4xf32>) -> tensor<4xui4>', "ui4 is not supported"),
    "region": (
        '%r = "stablehlo.reduce"(%0, %0) <{dimensions = array<i64: 0>}> '
        f"{region('stablehlo.iota')} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
        "'stablehlo.iota': expected ops on scalars in a region",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_op(case: str) -> None:
    body, message = REFUSED[case]
    with pytest.raises(StableHLOError, match=re.escape(message)):
        run(body, floats(4), np.zeros(1, np.int32))


def test_refusals_of_programs() -> None:
    dynamic = (STORED / "layer_norm.stablehlo.mlir").read_text().replace("4x16xf32", "?x16xf32")
    with pytest.raises(StableHLOError, match=r"result 0: expected .tensor<4xf32>., got .tensor<\?"):
        load(dynamic)
    with pytest.raises(StableHLOError, match="expected a function 'step', got main"):
        load(STORED / "layer_norm.stablehlo.mlir", "step")
    with pytest.raises(StableHLOError, match="error:"):
        load('"builtin.module"() ({\n  "func.func"(\n')


def test_file_is_input_of_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert fuse_opt_main([str(STORED / "layer_norm.stablehlo.mlir"), "--default"]) == 0
    assert capsys.readouterr().out.count("fused.kernel(") == 1
    bad = tmp_path / "bad.stablehlo.mlir"
    bad.write_text('"builtin.module"() ({\n}) : () -> ()\n')
    assert fuse_opt_main([str(bad)]) == 1
    assert "bad.stablehlo.mlir:1:1: error: expected a function 'main', got none" in capsys.readouterr().err


def test_page_lists_the_ops() -> None:
    section = (ROOT / "docs" / "stablehlo.md").read_text().split("\n## Ops\n")[1]
    listed = sorted(re.findall(r"`((?:stablehlo|chlo)\.\w+)`", section))
    assert listed == supported_ops(), "write the ops that have a handler into docs/stablehlo.md, each once"


@pytest.mark.parametrize("name", [*(["jax"] if find_spec("jax") is None else import_module("jax_programs").PROGRAMS)])
def test_against_jax(name: str) -> None:
    jax: Any = pytest.importorskip("jax")
    function, arguments = import_module("jax_programs").PROGRAMS[name]
    compiled = jax.jit(function, keep_unused=True)
    lowered, wanted = compiled.lower(*arguments), jax.tree.leaves(compiled(*arguments))
    module = load(lowered)
    assert str(load(lowered.as_text())) == str(module), "the pretty form says the same"
    results: Any = fuse_opt.evaluate(module, *(np.asarray(a) for a in arguments))
    listed = list(cast("tuple[Array, ...]", results)) if isinstance(results, tuple) else [results]
    for got, exact in zip(listed, map(np.asarray, wanted), strict=True):
        if exact.dtype.kind != "f":
            np.testing.assert_array_equal(got, exact)
        else:
            np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(exact).max())))


def test_broken_programs_are_refused() -> None:
    """One change of a number, a word or an operand: another program, or one error."""
    random = Random(2)
    text = (STORED / "layer_norm.stablehlo.mlir").read_text()
    for pattern in (r"\d+", r"stablehlo\.\w+", r"%\w+", r"f32|i32|i1"):
        places = list(re.finditer(pattern, text))
        for _ in range(8):
            place, other = random.choice(places), random.choice(places)
            changed = text[: place.start()] + other[0] + text[place.end() :]
            with suppress(StableHLOError):
                load(changed)
