"""ONNX models read into graph ops. Most of it needs the package onnx, and is skipped without it."""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from fuse_opt.frontends.builder import Names
from fuse_opt.frontends.onnx import OnnxError, OnnxModel, UnsupportedError, load, supported_operators
from fuse_opt.frontends.onnx.operators.resize import Sampling, sampling_matrix
from fuse_opt.tools.commands.fuse_opt_main import main as fuse_opt_main
from fuse_opt.tools.commands.fuse_run_main import main as fuse_run_main

Array = NDArray[Any]
needs_onnx = pytest.mark.skipif(find_spec("onnx") is None, reason="the package onnx is not installed")
RNG = np.random.default_rng(3)


KINDS: dict[Any, int] = {np.float32: 1, np.uint8: 2, np.int8: 3, np.int64: 7, np.bool_: 9, np.complex64: 14}


def package(name: str = "onnx") -> Any:
    return import_module(name)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(
    nodes: list[Any],
    inputs: dict[str, Any],
    weights: dict[str, Array] | None = None,
    opset: int = 21,
    functions: list[Any] | None = None,
) -> Any:
    """A ModelProto: nodes as (operator, inputs, outputs, attributes), the last of which makes the outputs."""
    helper = package().helper
    protos = [helper.make_node(op, a.split(), b.split(), name=f"node_{op}", **more) for op, a, b, more in nodes]
    types = {np.dtype(kind): n for kind, n in KINDS.items()}
    graph = helper.make_graph(
        protos,
        "test",
        [
            helper.make_tensor_value_info(name, types[np.dtype(kind)], shape)
            for name, given in inputs.items()
            for kind, shape in (
                cast("list[tuple[Any, Any]]", [given if isinstance(given, tuple) else (np.float32, given)])
            )
        ],
        [helper.make_empty_tensor_value_info(name) for name in nodes[-1][2].split()],
        [package().numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions or ())]
    return helper.make_model(graph, opset_imports=imports, functions=functions or [])


def call(loaded: OnnxModel, *arrays: Array) -> Array:
    (result,) = loaded(*arrays, target="reference")
    return result


def perceptron(batch: int | str = 2) -> tuple[Any, dict[str, Array]]:
    weights = {"w_0": floats(8, 16), "bias": floats(16), "w_1": floats(16, 4)}
    nodes: list[Any] = [
        ("MatMul", "x w_0", "h", {}),
        ("Add", "h bias", "hb", {}),
        ("Relu", "hb", "a", {}),
        ("MatMul", "a w_1", "y", {}),
    ]
    return model(nodes, {"x": [batch, 8]}, weights), weights


def forward(x: Array, weights: dict[str, Array]) -> Array:
    return np.maximum(x @ weights["w_0"] + weights["bias"], 0) @ weights["w_1"]


def test_names_are_unique_and_stay_whole() -> None:
    names = Names()
    assert [names.unique(name) for name in ("conv_1", "conv_1", "a/b:0", "7", "")] == [
        "conv.1",
        "conv.1.1",
        "a_b.0",
        "v7",
        "v",
    ]


def test_sampling_matrices() -> None:
    half = Sampling(2, 4, 4.0, 2.0, "half_pixel", (0.0, 1.0))
    linear = sampling_matrix(half, lambda ratio: np.array([1 - ratio, ratio]), False)
    np.testing.assert_allclose(linear, [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    corners = Sampling(3, 5, 5.0, 5 / 3, "align_corners", (0.0, 1.0))
    np.testing.assert_allclose(corners.positions(), [0, 0.5, 1, 1.5, 2])


@pytest.mark.skipif(find_spec("onnx") is not None, reason="onnx is installed")
def test_message_without_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"")
    assert fuse_opt_main([str(file)]) == 1
    assert "pip install 'fuse-opt[onnx]'" in capsys.readouterr().err


@needs_onnx
def test_weights_are_arguments() -> None:
    proto, weights = perceptron()
    loaded = load(proto)
    assert "dense<" not in str(loaded.module)
    imported = loaded.specialize()
    assert imported.arguments == ("x", None, None, None)
    assert imported.names == ("x", "w.0", "bias", "w.1")
    x = floats(2, 8)
    np.testing.assert_allclose(call(loaded, x), forward(x, weights), rtol=1e-4, atol=1e-5)


@needs_onnx
def test_unknown_extents() -> None:
    proto, weights = perceptron("batch")
    loaded = load(proto)
    assert 'tensor<?x8xf32> {graph.dims = ["batch", ""]}' in str(loaded.module)
    for batch in (1, 3):
        x = floats(batch, 8)
        np.testing.assert_allclose(call(loaded, x), forward(x, weights), rtol=1e-4, atol=1e-5)
    assert "tensor<5x8xf32>" in str(load(proto, {"batch": 5}).module)
    with pytest.raises(OnnxError, match=r"input 'x': expected x: f32 \[batch, 8\], got shape \[2, 7\]"):
        loaded(floats(2, 7))
    with pytest.raises(OnnxError, match="expected 1 inputs"):
        loaded()


@needs_onnx
def test_negative_extents_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As some exporters write them."""
    proto = model([("Exp", "x", "y", {})], {"x": [-1, 2]})
    assert "tensor<?x2xf32>" in str(load(proto).module)
    package().save(proto, str(tmp_path / "exp.onnx"))
    assert fuse_run_main([str(tmp_path / "exp.onnx"), "--target", "reference"]) == 0
    assert "'shape': [4, 2]" in capsys.readouterr().out


@needs_onnx
def test_shapes_are_specialized_by_value() -> None:
    proto = model([("Reshape", "x shape", "y", {})], {"x": [2, 6], "shape": (np.int64, [2])})
    loaded, x = load(proto, strict=True), floats(2, 6)
    for shape in ([3, 4], [4, 3], [3, 4]):
        assert call(loaded, x, np.array(shape)).shape == tuple(shape)
    first = loaded.specialize({"x": x, "shape": np.array([3, 4])})
    assert first is loaded.specialize({"x": x + 1, "shape": np.array([3, 4])}), "values of x do not count"
    with pytest.raises(
        UnsupportedError, match="operator Reshape, node 'node_Reshape' needs .* give the value of 'shape'"
    ):
        _ = loaded.module


@needs_onnx
def test_large_inputs_are_not_specialized_by_value() -> None:
    nodes: list[Any] = [
        ("Cast", "x", "i", {"to": 7}),
        ("ReduceSum", "i", "n", {"keepdims": 1}),
        ("Expand", "x n", "y", {}),
    ]
    loaded = load(model(nodes, {"x": [300]}), strict=True)
    with pytest.raises(UnsupportedError, match="operator Expand.* computed from 'x'"):
        loaded(np.zeros(300, np.float32))


@needs_onnx
def test_known_nodes_are_folded() -> None:
    nodes: list[Any] = [
        ("Shape", "x", "s", {}),
        ("Gather", "s zero", "n", {}),
        ("Unsqueeze", "n zero1", "n1", {}),
        ("Concat", "n1 rest", "shape", {"axis": 0}),
        ("Reshape", "x shape", "y", {}),
    ]
    weights = {"zero": np.array(0), "zero1": np.array([0]), "rest": np.array([-1])}
    loaded = load(model(nodes, {"x": [2, 3, 4]}, weights))
    assert [op.name for op in loaded.module.walk() if op.name.startswith("graph.")] == ["graph.reshape"]
    assert loaded.specialize().arguments == ("x",)


@needs_onnx
def test_known_nodes_that_onnx_does_not_evaluate_are_ops() -> None:
    """The reference of the package onnx wants equal extents of data and indices, as positions in exported BERT do not have."""
    data, indices = np.arange(24).reshape(2, 12), np.array([[3, 7, 1]])
    nodes: list[Any] = [("GatherElements", "data indices", "g", {"axis": 1}), ("Gather", "x g", "y", {})]
    x = floats(12, 4)
    loaded = load(model(nodes, {"x": [12, 4]}, {"data": data, "indices": indices}))
    np.testing.assert_array_equal(call(loaded, x), x[indices])


@needs_onnx
def test_known_nodes_that_nobody_evaluates_are_refused() -> None:
    nodes: list[Any] = [("Reshape", "data shape", "g", {}), ("Add", "x g", "y", {})]
    loaded = model(nodes, {"x": [5]}, {"data": floats(6), "shape": np.array([5])})
    with pytest.raises(OnnxError, match="operator Reshape, node 'node_Reshape'"):
        _ = load(loaded).module


@needs_onnx
def test_function_bodies_stand_in_for_records() -> None:
    """An operator without a record, by its body; a function of the model, with an attribute and an operand left out."""
    helper = package().helper
    body = [
        helper.make_node("LeakyRelu", ["x"], ["l"]),
        helper.make_node("Clip", ["l", "low"], ["y"]),
    ]
    bent = package().AttributeProto
    body[0].attribute.append(bent(name="alpha", ref_attr_name="slope", type=bent.FLOAT))
    function = helper.make_function("mine", "Bend", ["x", "low"], ["y"], body, [helper.make_opsetid("", 21)], ["slope"])
    proto = model([("Bend", "x", "y", {"slope": 0.5, "domain": "mine"})], {"x": [4]}, functions=[function])
    x = floats(4)
    np.testing.assert_allclose(call(load(proto), x), np.where(x < 0, 0.5 * x, x), rtol=1e-6)


@needs_onnx
@pytest.mark.parametrize("positive", [True, False])
def test_branches_are_chosen(positive: bool) -> None:
    helper = package().helper
    out = [helper.make_empty_tensor_value_info("r")]
    graphs = [helper.make_graph([helper.make_node(op, ["x"], ["r"])], op, [], out) for op in ("Exp", "Neg")]
    branches = {"then_branch": graphs[0], "else_branch": graphs[1]}
    loaded = load(model([("If", "c", "y", branches)], {"x": [3], "c": (np.bool_, [])}))
    x = floats(3)
    np.testing.assert_allclose(call(loaded, x, np.array(positive)), np.exp(x) if positive else -x, rtol=1e-5)


@needs_onnx
def test_scan_is_unrolled() -> None:
    helper = package().helper
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["o"])],
        "body",
        [helper.make_empty_tensor_value_info(name) for name in ("s", "e")],
        [helper.make_empty_tensor_value_info(name) for name in ("t", "o")],
    )
    loaded = load(model([("Scan", "s0 x", "last all", {"body": body, "num_scan_inputs": 1})], {"s0": [2], "x": [5, 2]}))
    s0, x = floats(2), floats(5, 2)
    last, every = loaded(s0, x, target="reference")
    np.testing.assert_allclose(every, s0 + x.cumsum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(last, every[-1])


REFUSED: list[Any] = [
    ([("NonZero", "x", "y", {})], {"x": [3]}, "operator NonZero, node 'node_NonZero' is not supported"),
    ([("Relu", "z", "y", {})], {"x": [3]}, "uses the value 'z', which nothing before it gives"),
    ([("Add", "x b", "y", {})], {"x": [3], "b": [4]}, "operator Add, node 'node_Add': .*do not broadcast"),
    ([("Not", "x", "y", {})], {"x": (np.complex64, [3])}, "input 'x': element type complex64 is not supported"),
    ([("Flatten", "x", "y", {})], {"x": ["n", 3]}, "operator Flatten.*give the extents"),
    ([("Swirl", "x", "y", {"domain": "com.example"})], {"x": [3]}, "operator Swirl.* of domain 'com.example'"),
]


@needs_onnx
@pytest.mark.parametrize(
    ("nodes", "inputs", "message"),
    REFUSED,
)
def test_refusals_name_operator_and_node(nodes: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(OnnxError, match=message):
        load(model(nodes, inputs)).specialize()


@needs_onnx
def test_softmax_before_opset_13_is_over_all_axes_behind() -> None:
    x = floats(2, 3, 4)
    old = call(load(model([("Softmax", "x", "y", {})], {"x": [2, 3, 4]}, opset=11)), x)
    e = np.exp(x - x.max((1, 2), keepdims=True))
    np.testing.assert_allclose(old, e / e.sum((1, 2), keepdims=True), rtol=1e-5)
    new = call(load(model([("Softmax", "x", "y", {})], {"x": [2, 3, 4]})), x)
    np.testing.assert_allclose(new.sum(-1), np.ones((2, 3)), rtol=1e-5)


@needs_onnx
def test_commands_take_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto, _ = perceptron("batch")
    file, text = str(tmp_path / "mlp.onnx"), str(tmp_path / "mlp.mlir")
    package().save(proto, file)
    assert fuse_run_main([file, "--target", "reference", "--extents", "batch=3"]) == 0
    first = re.findall(r"results: (.*)", capsys.readouterr().out)
    assert "'shape': [3, 4]" in first[0]
    assert fuse_opt_main([file, "--extents", "batch=3", "-o", text]) == 0
    weights = str(tmp_path / "mlp.npz")
    assert fuse_run_main([text, "--target", "reference", "--weights", weights]) == 0
    assert re.findall(r"results: (.*)", capsys.readouterr().out) == first, "text and side file are the model"
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert fuse_opt_main([str(tmp_path / "bad.onnx")]) == 1
    assert "error: expected an ONNX model" in capsys.readouterr().err
    huge = tmp_path / "huge.onnx"
    package().save(model([("Exp", "x", "y", {})], {"x": [10**12, 10**12]}), str(huge))
    assert fuse_run_main([str(huge)]) == 1
    assert capsys.readouterr().err.startswith(f"{huge}:1:1: error: ")


@needs_onnx
def test_backend_runs_tests_of_onnx() -> None:
    """Every fortieth node test, as the command tests/support/onnx_node_tests.py runs all of them."""
    import onnx_node_tests

    runner, supported = package("onnx.backend.test.runner"), set(supported_operators())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases: list[Any] = package("onnx.backend.test.case.node").collect_testcases(None)[::40]
    outcomes = [onnx_node_tests.classify(case, "reference", supported, runner) for case in cases]
    assert [why for kind, why in outcomes if kind == "failed"] == []
    assert sum(kind == "passed" for kind, _ in outcomes) > 30


@needs_onnx
def test_backend_declines_what_is_not_supported() -> None:
    from fuse_opt.frontends.onnx.backend import FuseOptBackend

    x = floats(3)
    ready = FuseOptBackend.prepare(model([("Exp", "x", "y", {})], {"x": [3]}), target="reference")
    np.testing.assert_allclose(ready.run([x])[0], np.exp(x), rtol=1e-5)
    with pytest.raises(package("onnx.backend.test.runner").BackendIsNotSupposedToImplementIt, match="operator NonZero"):
        FuseOptBackend.run_model(model([("NonZero", "x", "y", {})], {"x": [3]}), [x])
    assert FuseOptBackend.supports_device("CPU") and not FuseOptBackend.supports_device("CUDA")


@needs_onnx
@pytest.mark.parametrize("kinds", [(np.int8, np.int8), (np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)])
def test_integer_products_with_zero_points(kinds: tuple[Any, Any]) -> None:
    def given(kind: Any, *shape: int) -> Array:
        info = np.iinfo(kind)
        return RNG.integers(info.min, info.max + 1, shape).astype(kind)

    for zeros in ("", "p", "p q", "r q", "r s", " q"):
        shapes = {"p": (), "q": (), "r": (5,), "s": (4,)}
        names = ["a", "b", *zeros.split()]
        arrays = [given(kinds[0], 5, 7), given(kinds[1], 7, 4)]
        arrays += [given(kinds[name in "qs"], *shapes[name]) for name in names[2:]]
        inputs = {name: (array.dtype.type, array.shape) for name, array in zip(names, arrays, strict=True)}
        values = {name: array.astype(np.int64) for name, array in zip(names, arrays, strict=True)}
        left = values["a"] - values.get("p", values.get("r", np.zeros(1, np.int64)).reshape(-1, 1))
        right = values["b"] - values.get("q", values.get("s", np.int64(0)))
        node: Any = ("MatMulInteger", "a b", "y", {})
        proto = model([node], inputs)
        del proto.graph.node[0].input[2:]
        proto.graph.node[0].input.extend([zeros.split(" ")[0], *zeros.split(" ")[1:]] if zeros else [])
        (result,) = load(proto)(*arrays)
        np.testing.assert_array_equal(result, left @ right)


@needs_onnx
def test_damaged_models_are_refused() -> None:
    """Names that are no text, weights that are not of their shape or type, element types that there are not."""
    text: bytes = model([("Add", "x w", "y", {})], {"x": [2, 3]}, {"w": floats(3)}).SerializeToString()
    assert b"node_Add" in text
    weight, name, element = (package().ModelProto.FromString(text) for _ in range(3))
    weight.graph.initializer[0].dims.append(7)
    name.graph.initializer[0].data_type = 112
    element.graph.input[0].type.tensor_type.elem_type = 87
    cases: dict[bytes, str] = {
        text.replace(b"node_Add", b"node\xff\xfedd"): "expected names in UTF-8",
        weight.SerializeToString(): "initializer 'w': expected numbers of its type and extents",
        name.SerializeToString(): "initializer 'w': expected numbers of its type and extents",
        element.SerializeToString(): "input 'x': .*type number 87",
    }
    for data, words in cases.items():
        with pytest.raises(OnnxError, match=words):
            load(data, strict=True).specialize()
