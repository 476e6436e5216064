"""Operators of com.microsoft, which models that onnxruntime optimised hold, against onnxruntime itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

onnx: Any = pytest.importorskip("onnx")
runtime: Any = pytest.importorskip("onnxruntime")

from fuse_opt.frontends.onnx import load  # noqa: E402

RNG = np.random.default_rng(11)
Operand = NDArray[Any] | None


def f(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def b(kind: Any, *shape: int) -> NDArray[Any]:
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max, shape, kind, endpoint=True)


def model(operator: str, operands: Sequence[Operand], outputs: int, attributes: Mapping[str, Any], domain: str) -> Any:
    names = [f"x{k}" if array is not None else "" for k, array in enumerate(operands)]
    results = [f"y{k}" for k in range(outputs)]
    node = onnx.helper.make_node(operator, names, results, domain=domain, **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, operands, strict=True)
        if array is not None
    ]
    graph = onnx.helper.make_graph(
        [node], "one", inputs, [onnx.helper.make_empty_tensor_value_info(r) for r in results]
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(
    operator: str,
    operands: Sequence[Operand],
    attributes: Mapping[str, Any] | None = None,
    outputs: int = 1,
    domain: str = "com.microsoft",
    rough: int = 0,
) -> None:
    """`rough`: by how much integers may differ."""
    proto = model(operator, operands, outputs, attributes or {}, domain)
    given = [array for array in operands if array is not None]
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {i.name: array for i, array in zip(session.get_inputs(), given, strict=True)})
    found = load(proto, strict=True)(*given, target="reference")
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        if other.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
        else:
            assert np.abs(one.astype(int) - other.astype(int)).max(initial=0) <= rough


@pytest.mark.parametrize("operator", ("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FastGelu biased", "BiasSplitGelu"))
def test_activations(operator: str):
    operands = [f(2, 3, 8)]
    if operator.startswith("Bias") or operator.endswith("biased"):
        operands.append(f(8))
    if operator == "BiasSplitGelu":  # on GPUs only
        left, right = np.split(operands[0] + operands[1], 2, -1)
        (found,) = load(model(operator, operands, 1, {}, "com.microsoft"), strict=True)(*operands, target="reference")
        (gelu,) = load(model("Gelu", [right], 1, {}, "com.microsoft"), strict=True)(right, target="reference")
        np.testing.assert_allclose(found, left * gelu, rtol=1e-6, atol=1e-6)
        return
    check(operator.partition(" ")[0], operands, {"alpha": 1.5} if operator == "QuickGelu" else {})


@pytest.mark.parametrize("shape", ((2, 1, 1, 5), (1, 3, 4, 5), (4, 5)))
@pytest.mark.parametrize("axis", (2, 3))
def test_bias_softmax(shape: tuple[int, ...], axis: int):
    """Which onnxruntime has for GPUs only."""
    x, bias = f(2, 3, 4, 5), f(*shape)
    (found,) = load(model("BiasSoftmax", [x, bias], 1, {"axis": axis}, "com.microsoft"), strict=True)(
        x, bias, target="reference"
    )
    powers, axes = np.exp(x + bias), tuple(range(axis, 4))
    np.testing.assert_allclose(found, powers / powers.sum(axes, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("skip", ((2, 3, 8), (1, 3, 8), (3, 8)))
def test_skip_layer_norm(bias: bool, skip: tuple[int, ...]):
    more = [f(8)] if bias else []
    check("SkipLayerNormalization", [f(2, 3, 8), f(*skip), f(8), f(8), *more], {"epsilon": 1e-3})
    check("SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(*skip), f(8), *more], {"epsilon": 1e-3})


def test_sum_of_skip_layer_norm():
    operands = [f(2, 3, 8), f(2, 3, 8), f(8), None, f(8)]
    proto = model("SkipLayerNormalization", operands, 4, {}, "com.microsoft")
    proto.graph.node[0].output[1:3] = ["", ""]
    del proto.graph.output[1:3]
    given = [array for array in operands if array is not None]
    found = load(proto, strict=True)(*given, target="reference")
    np.testing.assert_allclose(found[1], given[0] + given[1] + given[3], rtol=1e-6)


def test_simplified_layer_norm():
    check("SimplifiedLayerNormalization", [f(2, 3, 8), f(8)], {"epsilon": 1e-3, "axis": -1}, 2, domain="")


@pytest.mark.parametrize("segments", (False, True))
def test_embed_layer_norm(segments: bool):
    ids, kinds = RNG.integers(0, 11, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = [f(11, 8), f(7, 8), f(2, 8) if segments else None, f(8), f(8), mask]
    check("EmbedLayerNormalization", [ids, kinds if segments else None, *tables], {"epsilon": 1e-5}, 2)


@pytest.mark.parametrize(
    "flags", ({}, {"transA": 1}, {"transB": 1, "alpha": 0.5}, {"transBatchA": 1}, {"transBatchB": 1})
)
def test_fused_matmul(flags: dict[str, Any]):
    left = (3, 2, 4) if flags.get("transBatchA") else (2, 4, 3) if flags.get("transA") else (2, 3, 4)
    right = (4, 2, 5) if flags.get("transBatchB") else (2, 5, 4) if flags.get("transB") else (2, 4, 5)
    check("FusedMatMul", [f(*left), f(*right)], flags)


ACTIVATIONS: dict[str, list[float]] = {
    "Relu": [],
    "LeakyRelu": [0.3],
    "HardSigmoid": [0.1, 0.4],
    "Tanh": [],
    "Clip": [0.0, 6.0],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_fused_conv(name: str):
    more: dict[str, Any] = {"activation_params": ACTIVATIONS[name]} if ACTIVATIONS[name] else {}
    attributes = {"activation": name, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], **more}
    check("FusedConv", [f(1, 2, 5, 5), f(4, 2, 3, 3), f(4), f(1, 4, 5, 5)], attributes)


@pytest.mark.parametrize("name", ("Relu", "LeakyRelu", "Sigmoid"))
def test_fused_gemm(name: str):
    more = {"activation_alpha": 0.3} if name == "LeakyRelu" else {}
    check("FusedGemm", [f(3, 4), f(5, 4), f(5)], {"activation": name, "transB": 1, "beta": 0.5, **more})


def s(number: float) -> NDArray[Any]:
    return np.array(number, np.float32)


@pytest.mark.parametrize("kind", (np.uint8, np.int8))
def test_functions_between_scales(kind: Any):
    zero = np.array(3, kind)
    x, other = [b(kind, 2, 3, 4, 5), s(0.05), zero], [b(kind, 2, 3, 4, 5), s(0.03), np.array(1, kind)]
    for operator in ("QLinearAdd", "QLinearMul"):
        check(operator, [*x, *other, s(0.1), zero], rough=1)
    check("QLinearSigmoid", [*x, s(1 / 256), zero], rough=1)
    check("QLinearLeakyRelu", [*x, s(0.06), zero], {"alpha": 0.2}, rough=1)
    check("QLinearGlobalAveragePool", [*x, s(0.02), zero], {"channels_last": 0}, rough=1)
    check("QLinearConcat", [s(0.06), zero, *x, *other], {"axis": 1}, rough=1)


@pytest.mark.parametrize("kind", (np.uint8, np.int8))
def test_products_of_bytes(kind: Any):
    weight, zero = b(kind, 6, 5) // np.array(4, kind), np.array(2, kind)  # onnxruntime saturates sums of two products
    check("DynamicQuantizeMatMul", [f(3, 6), weight, s(0.02), zero, f(5)])
    left = [b(np.uint8, 3, 6), weight, s(0.03), RNG.random(5).astype(np.float32), np.array(9, np.uint8)]
    check("MatMulIntegerToFloat", [*left, np.full(5, 2, kind), f(5)])
    sums = RNG.integers(-99, 99, 5).astype(np.int32)
    given = [
        b(np.uint8, 3, 6),
        s(0.03),
        np.array(9, np.uint8),
        b(np.int8, 5, 6) // np.int8(4),
        s(0.02),
        np.array(0, np.int8),
        sums,
    ]
    check("QGemm", given, {"transB": 1})
    check("QGemm", [*given, s(2.0), np.array(120, np.uint8)], {"transB": 1}, rough=1)


MASKS: dict[str, Any] = {
    "none": None,
    "lengths": np.array([2, 5], np.int32),
    "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    "pairs": RNG.integers(0, 2, (2, 5, 5)).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", (0, 1))
def test_attention(mask: str, causal: int):
    operands = [f(2, 5, 8), f(8, 24), f(24), MASKS[mask]]
    check("Attention", operands, {"num_heads": 2, "unidirectional": causal})


def test_attention_with_a_cache():
    operands = [f(2, 1, 8), f(8, 24), f(24), None, f(2, 2, 2, 4, 4)]
    check("Attention", operands, {"num_heads": 2, "unidirectional": 1}, 2)


@pytest.mark.parametrize("mask", ("none", "keys"))
@pytest.mark.parametrize("bias", (False, True))
def test_multi_head_attention(mask: str, bias: bool):
    operands = [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), f(24) if bias else None, MASKS[mask], f(1, 2, 3, 5)]
    check("MultiHeadAttention", operands, {"num_heads": 2, "scale": 0.4})


@pytest.mark.parametrize("interleaved", (0, 1))
@pytest.mark.parametrize("places", (np.array([2], np.int64), np.array([[0, 3, 1], [2, 2, 5]], np.int64)))
def test_rotary_embedding(interleaved: int, places: NDArray[Any]):
    check("RotaryEmbedding", [f(2, 3, 16), places, f(7, 4), f(7, 4)], {"interleaved": interleaved})
    check("RotaryEmbedding", [f(2, 2, 3, 8), places, f(7, 4), f(7, 4)], {"interleaved": interleaved})
