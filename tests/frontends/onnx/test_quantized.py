"""Quantised operators of ONNX: products of bytes in one kernel with what zero points and scales do, exact to the last unit."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_testing import kernels
from lowered_programs import needs_compiler
from numpy.typing import NDArray
from onednn_testing import FakeOneDnn

from fuse_opt.frontends.onnx import UnsupportedError, load

Array = NDArray[Any]
pytestmark = pytest.mark.skipif(find_spec("onnx") is None, reason="the package onnx is not installed")
TYPES: dict[Any, int] = {np.float32: 1, np.uint8: 2, np.int8: 3, np.int32: 6}


def model(nodes: list[tuple[str, str, str, dict[str, Any]]], x: Array, weights: dict[str, Array]) -> Any:
    """Nodes as (operator, inputs, outputs, attributes); the last one makes the output, `x` is the input."""
    onnx = import_module("onnx")
    helper = onnx.helper
    protos = [helper.make_node(op, a.split(), b.split(), **more) for op, a, b, more in nodes]
    given = [helper.make_tensor_value_info("x", TYPES[x.dtype.type], x.shape)]
    made = [helper.make_empty_tensor_value_info(nodes[-1][2])]
    known = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(protos, "test", given, made, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def randbytes(rng: np.random.Generator, kind: Any, *shape: int) -> Array:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def run(proto: Any, x: Array) -> tuple[Array, list[Any]]:
    """The output, and the kernels of the program."""
    loaded = load(proto)
    (result,) = loaded(x)
    (program,) = loaded._programs.values()  # pyright: ignore[reportPrivateUsage]
    return result, kernels(program.module)


def scaled(total: Array, scale: Array, zero: int, kind: Any) -> Array:
    """Of exact sums: scaled in f32, rounded to even, moved and saturated."""
    limits = np.iinfo(kind)
    rounded = np.rint(total.astype(np.float32) * scale.astype(np.float32)) + zero
    return np.clip(rounded, limits.min, limits.max).astype(kind)


@needs_compiler
@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("right", [np.uint8, np.int8])
@pytest.mark.parametrize("by_column", [False, True])
def test_qlinear_matmul_is_one_exact_kernel(left: Any, right: Any, by_column: bool) -> None:
    rng = np.random.default_rng(1)
    for rows, depth, columns in ((1, 70, 40), (16, 300, 65), (33, 7, 5)):
        x, w = randbytes(rng, left, rows, depth), randbytes(rng, right, depth, columns)
        several = (columns,) if by_column else ()
        weights = {
            "xs": np.float32(0.02),
            "xz": np.asarray(rng.integers(0, 100), left),
            "w": w,
            "ws": (rng.random(several) * 0.01 + 0.001).astype(np.float32),
            "wz": rng.integers(0, 20, several).astype(right),
            "ys": np.float32(0.3),
            "yz": np.asarray(11, np.int8),
        }
        arrays = {name: np.asarray(array) for name, array in weights.items()}
        proto = model([("QLinearMatMul", "x xs xz w ws wz ys yz", "y", {})], x, arrays)
        found, launched = run(proto, x)
        total = (x.astype(np.int64) - int(arrays["xz"])) @ (w.astype(np.int64) - arrays["wz"].astype(np.int64))
        wanted = scaled(total, arrays["xs"] * arrays["ws"] / arrays["ys"], 11, np.int8)
        np.testing.assert_array_equal(found, wanted)
        products = [kernel for kernel in launched if kernel.schedule_kind() == "matmul"]
        assert [str(product.results[0].type) for product in products] == [f"tensor<{rows}x{columns}xi8>"]


@needs_compiler
@pytest.mark.parametrize("right", [np.uint8, np.int8])
def test_matmul_integer_of_all_bytes(right: Any) -> None:
    rng = np.random.default_rng(2)
    x, w = randbytes(rng, np.uint8, 2, 5, 130), randbytes(rng, right, 130, 33)
    weights = {"w": w, "xz": np.asarray(200, np.uint8), "wz": randbytes(rng, right, 33)}
    found, launched = run(model([("MatMulInteger", "x w xz wz", "y", {})], x, weights), x)
    wanted = (x.astype(np.int64) - 200) @ (w.astype(np.int64) - weights["wz"].astype(np.int64))
    np.testing.assert_array_equal(found, wanted)
    assert sum(kernel.schedule_kind() == "matmul" for kernel in launched) == 1


@needs_compiler
def test_dynamic_quantisation_is_two_kernels() -> None:
    """As ONNX Runtime's tool writes a linear layer: the scale is known only when the program runs."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((9, 64)).astype(np.float32), randbytes(rng, np.int8, 64, 48)
    weights = {"w": w, "wz": np.asarray(0, np.int8), "ws": np.float32(0.01), "b": rng.random(48).astype(np.float32)}
    proto = model(
        [
            ("DynamicQuantizeLinear", "x", "q s z", {}),
            ("MatMulInteger", "q w z wz", "i", {}),
            ("Cast", "i", "f", {"to": 1}),
            ("Mul", "s ws", "t", {}),
            ("Mul", "f t", "g", {}),
            ("Add", "g b", "y", {}),
        ],
        x,
        {name: np.asarray(array) for name, array in weights.items()},
    )
    found, launched = run(proto, x)
    scale = (max(x.max(), 0) - min(x.min(), 0)) / np.float32(255)
    zero = np.clip(np.rint(-min(x.min(), 0) / scale), 0, 255)
    quantised = np.clip(np.rint(x / scale) + zero, 0, 255)
    wanted = ((quantised - zero) @ w.astype(np.float64)) * scale * 0.01 + weights["b"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    behind = [kernel for kernel in launched if kernel.schedule_kind() == "matmul"]
    assert len(behind) == 1 and str(behind[0].results[0].type) == "tensor<9x48xf32>"


def test_wider_operands_are_refused() -> None:
    x = np.zeros((2, 2), np.int32)
    weights = {name: np.asarray(1, np.float32) for name in ("xs", "ws", "ys")}
    zeros = {name: np.asarray(0, np.int32) for name in ("xz", "wz", "yz")}
    proto = model([("QLinearMatMul", "x xs xz w ws wz ys yz", "y", {})], x, {**weights, **zeros, "w": x})
    with pytest.raises(UnsupportedError, match="operator QLinearMatMul.*expected bytes"):
        _ = load(proto).module


@needs_compiler
@pytest.mark.parametrize("operator", ["QLinearConv", "ConvInteger"])
@pytest.mark.parametrize(("largest", "groups"), [(3, 2), (127, 2), (127, 1)], ids=["small", "large", "one group"])
def test_convolutions_are_exact(operator: str, largest: int, groups: int) -> None:
    """
    Without groups a product of bytes; else a convolution of floats, of f64 where large weights could make sums that f32
    rounds.
    """
    rng = np.random.default_rng(4)
    x = randbytes(rng, np.uint8, 2, 64 * groups, 6, 7)
    w = rng.integers(-largest, largest + 1, (6, 64, 3, 3)).astype(np.int8)
    w[0] = largest
    weights = {
        "w": w,
        "xs": np.float32(0.02),
        "xz": np.asarray(7, np.uint8),
        "ws": (rng.random(6) * 0.01 + 0.001).astype(np.float32),
        "wz": np.arange(6, dtype=np.int8),
        "ys": np.float32(40.0 if largest > 3 else 1.0),
        "yz": np.asarray(100, np.uint8),
        "b": rng.integers(-(2**26), 2**26, 6).astype(np.int32),
    }
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    given = "x xs xz w ws wz ys yz b" if operator == "QLinearConv" else "x w xz wz"
    used = {name: array for name, array in arrays.items() if name in given.split()}
    attributes = {"pads": [1, 1, 2, 1], "strides": [1, 2], "dilations": [2, 1], "group": groups}
    found, launched = run(model([(operator, given, "y", attributes)], x, used), x)
    padded = np.pad(x.astype(np.int64) - 7, ((0, 0), (0, 0), (1, 2), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 3), axis=(2, 3))[:, :, :, ::2, ::2]
    centered = w.astype(np.int64) - arrays["wz"].reshape(6, 1, 1, 1)
    pairs = zip(np.split(windows, groups, 1), np.split(centered, groups), strict=True)
    sums = np.concatenate([np.einsum("nchwij,ocij->nohw", *pair) for pair in pairs], 1)
    if operator == "QLinearConv":
        scale = (arrays["xs"] * arrays["ws"] / arrays["ys"]).reshape(6, 1, 1)
        sums = scaled(sums + arrays["b"].reshape(6, 1, 1), scale, 100, np.uint8)
    np.testing.assert_array_equal(found, sums)
    (product,) = [kernel for kernel in launched if kernel.schedule_kind() in ("conv", "matmul")]
    assert ("graph.conv_integer" in imported(operator, given, attributes, x, used)) == (groups == 1)
    element = "xui8>" if groups == 1 else "xf32>" if largest == 3 else "xf64>"
    assert any(element in str(value.type) for value in product.operands)


@needs_compiler
@pytest.mark.parametrize(
    ("left", "right", "window"),
    [(np.uint8, np.int8, 3), (np.int8, np.int8, 2), (np.uint8, np.uint8, 3), (np.uint8, np.int8, 4)],
)
def test_channels_with_a_filter_each_are_one_kernel(left: Any, right: Any, window: int) -> None:
    """With what scales and rounds, whose sums have not been in memory; of larger windows a convolution of f32."""
    rng = np.random.default_rng(9)
    x, w = randbytes(rng, left, 2, 35, 9, 11), randbytes(rng, right, 35, 1, window, window)
    w[0], x[:, 0] = np.iinfo(right).min, np.iinfo(left).max
    weights = {
        "xs": np.float32(0.02),
        "xz": np.asarray([7], left),
        "ws": (rng.random(35) * 0.01 + 0.001).astype(np.float32),
        "wz": np.arange(35).astype(right),
        "ys": np.float32(3.0),
        "yz": np.asarray(100, left),
        "b": rng.integers(-(2**20), 2**20, 35).astype(np.int32),
    }
    arrays = {"w": w, **{name: np.asarray(array) for name, array in weights.items()}}
    attributes = {"pads": [1, 2, 2, 0], "strides": [1, 2], "group": 35}
    proto = model([("QLinearConv", "x xs xz w ws wz ys yz b", "y", attributes)], x, arrays)
    found, launched = run(proto, x)
    padded = np.pad(x.astype(np.int64) - 7, ((0, 0), (0, 0), (1, 2), (2, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (window, window), axis=(2, 3))[:, :, :, ::2]
    centered = w[:, 0].astype(np.int64) - arrays["wz"].astype(np.int64).reshape(35, 1, 1)
    sums = np.einsum("nchwij,cij->nchw", windows, centered) + arrays["b"].reshape(35, 1, 1)
    scale = (arrays["xs"] * arrays["ws"] / arrays["ys"]).reshape(35, 1, 1)
    np.testing.assert_array_equal(found, scaled(sums, scale, 100, left))
    over_windows = [each for each in launched if any(op.name == "graph.sliding_windows" for op in each.ops())]
    assert [str(each.results[0].type)[-3:] for each in over_windows] == (["i8>"] if window < 4 else [])


def imported(operator: str, given: str, attributes: dict[str, Any], x: Array, used: dict[str, Array]) -> str:
    return str(load(model([(operator, given, "y", attributes)], x, used)).module)


def test_a_zero_point_that_moves_no_signed_byte_costs_no_sums_of_windows() -> None:
    """Unsigned weights are less by 128, as their zero point is in what quantises by tensors."""
    x = np.zeros((1, 16, 5, 5), np.uint8)
    for zero, has_sums in ((128, False), (0, True), (127, True)):
        used = {"w": np.zeros((8, 16, 3, 3), np.uint8), "xz": np.uint8(3), "wz": np.full(8, zero, np.uint8)}
        text = imported("ConvInteger", "x w xz wz", {"pads": [1] * 4}, x, {k: np.asarray(v) for k, v in used.items()})
        assert ("graph.window_sum" in text) == has_sums and text.count("graph.conv_integer") == 1


@needs_compiler
def test_a_library_runs_the_convolution_that_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With frozen filters in its panels, and what scales and rounds its sums in one kernel of the program behind it."""
    FakeOneDnn(tmp_path, monkeypatch).say(panel=16, scratch=8)
    rng = np.random.default_rng(8)
    x = randbytes(rng, np.uint8, 1, 64, 56, 56)
    weights: dict[str, Any] = {
        "xs": np.float32(0.02),
        "xz": np.asarray(7, np.uint8),
        "w": randbytes(rng, np.int8, 64, 64, 3, 3),
        "ws": (rng.random(64) * 0.01 + 0.001).astype(np.float32),
        "wz": np.zeros(64, np.int8),
        "ys": np.float32(3.0),
        "yz": np.asarray(9, np.uint8),
    }
    proto = model([("QLinearConv", "x xs xz w ws wz ys yz", "y", {"pads": [1] * 4})], x, weights)
    monkeypatch.delenv("FUSE_OPT_BACKEND", raising=False)
    wanted, own = run(proto, x)
    assert [kernel.schedule_kind() for kernel in own].count("matmul") == 1
    monkeypatch.setenv("FUSE_OPT_BACKEND", "onednn")
    found, launched = run(proto, x)
    np.testing.assert_array_equal(found, wanted)
    (at,) = [number for number, kernel in enumerate(launched) if "onednn.conv_integer" in str(kernel.implementation)]
    behind = {op.name for op in launched[at + 1].ops()}
    assert {"graph.subtract", "graph.multiply", "graph.round", "graph.astype"} <= behind


@needs_compiler
@pytest.mark.parametrize("operator", ["QLinearConv", "ConvInteger"])
@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_convolutions_with_windows_of_one_element_are_products_of_bytes(operator: str, left: Any, right: Any) -> None:
    rng = np.random.default_rng(6)
    x, w = randbytes(rng, left, 2, 35, 6, 7), randbytes(rng, right, 21, 35, 1, 1)
    weights = {
        "w": w,
        "xs": np.float32(0.02),
        "xz": np.asarray([7], left),
        "ws": (rng.random(21) * 0.01 + 0.001).astype(np.float32),
        "wz": np.arange(21).astype(right),
        "ys": np.float32(3.0),
        "yz": np.asarray(100, left),
        "b": rng.integers(-(2**20), 2**20, 21).astype(np.int32),
    }
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    given = "x xs xz w ws wz ys yz b" if operator == "QLinearConv" else "x w xz wz"
    used = {name: array for name, array in arrays.items() if name in given.split()}
    found, launched = run(model([(operator, given, "y", {})], x, used), x)
    centered = w[:, :, 0, 0].astype(np.int64) - arrays["wz"].astype(np.int64).reshape(21, 1)
    sums = np.einsum("nchw,oc->nohw", x.astype(np.int64) - 7, centered)
    if operator == "QLinearConv":
        scale = (arrays["xs"] * arrays["ws"] / arrays["ys"]).reshape(21, 1, 1)
        sums = scaled(sums + arrays["b"].reshape(21, 1, 1), scale, 100, left)
    np.testing.assert_array_equal(found, sums)
    assert [kernel.schedule_kind() for kernel in launched].count("matmul") == 1
