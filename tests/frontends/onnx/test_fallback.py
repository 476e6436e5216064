"""What is not taken runs as without us: by onnxruntime or ONNX's reference, after one warning that says why."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")

from fuse_opt.frontends.onnx import OnnxError, UnsupportedError, load  # noqa: E402
from fuse_opt.tools.compiler import api  # noqa: E402

X = np.array([[1.0, 0.0], [0.0, 3.0]], np.float32)


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')


NONZERO = "m (float[n, 2] x) => (int64[2, k] y) { [where] y = NonZero (x) }"


@pytest.fixture(params=("onnxruntime", "reference"))
def peer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "reference":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        return "ONNX's reference"
    pytest.importorskip("onnxruntime")
    return "onnxruntime"


def test_a_model_is_left_with_one_warning(peer: str):
    model = load(parsed(NONZERO))
    with pytest.warns(
        RuntimeWarning, match=f"leaves an ONNX model to {peer}: .*operator NonZero, node 'where'"
    ) as told:
        (first,) = model(X)
        (second,) = model(np.ones((1, 2), np.float32))
        (third,) = model(X)
    assert len(told) == 1
    assert first.tolist() == third.tolist() == [[0, 1], [0, 1]] and second.tolist() == [[0, 0], [0, 1]]


def test_strict_ones_and_modules_are_refused():
    with pytest.raises(UnsupportedError, match="operator NonZero"):
        load(parsed(NONZERO), strict=True)(X)
    with pytest.raises(UnsupportedError, match="operator NonZero"):
        _ = load(parsed(NONZERO)).module


def test_types_of_inputs_that_tensors_do_not_have(peer: str):
    model = load(parsed("m (string[n] x) => (string[n] y) { y = Identity (x) }"))
    with pytest.warns(RuntimeWarning, match="leaves an ONNX model"):
        (found,) = model(np.array(["a", "b"], object))
    assert found.tolist() == ["a", "b"]
    with pytest.raises(UnsupportedError, match="input 'x'"):
        _ = model.module


def test_calls_of_other_shapes_stay_ours():
    """A window that no image of so few rows has is not refused for others."""
    text = "m (float[1, 1, n] x) => (float[1, 1, k] y) { y = MaxPool <kernel_shape = [2], dilations = [3], pads = [3, 3]> (x) }"
    model = load(parsed(text))
    with pytest.warns(RuntimeWarning, match="operator MaxPool"):
        model(np.ones((1, 1, 1), np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model(np.ones((1, 1, 7), np.float32))[0].shape == (1, 1, 10)


def test_what_cannot_be_compiled_is_left(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(api, "compile", broken)
    with pytest.warns(RuntimeWarning, match="RuntimeError: no such luck"):
        (found,) = load(parsed("m (float[2, 2] x) => (float[2, 2] y) { y = Neg (x) }"))(X)
    np.testing.assert_array_equal(found, -X)


def test_what_is_wrong_with_a_call_is_said():
    """By us: arguments that the model does not take."""
    with pytest.raises(OnnxError, match="expected 1 inputs"):
        load(parsed("m (float[2, 2] x) => (float[2, 2] y) { y = Neg (x) }"))(X, X)
