"""Calls that are like one before ask nothing more, and others are told apart as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")

from fuse_opt.frontends.onnx import OnnxError, load  # noqa: E402


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')


def remembered(model: Any) -> int:
    return len(model._ready)


@pytest.mark.parametrize("extent", ("3", "n"))
def test_calls_are_remembered_by_types_and_extents(extent: str) -> None:
    model = load(
        parsed(f"m (float[{extent}] x, float[{extent}] y) => (float[{extent}] z) {{ z = Sub (y, x) }}"), strict=True
    )
    x, y = np.arange(3, dtype=np.float32), np.full(3, 7, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(model(x, y)[0], y - x)
        np.testing.assert_array_equal(model(y, x)[0], x - y)
    assert remembered(model) == 1
    assert model(x, y, target="reference")[0].tolist() == [7, 6, 5]
    for bad in ((x.astype(np.int32), y), (x, y[None]), (x,), (x, y, y)):
        with pytest.raises((OnnxError, TypeError, ValueError)):
            model(*bad)


def test_values_that_decide_shapes_are_looked_at_in_each_call() -> None:
    model = load(parsed("m (float[6] x, int64[2] s) => (float y) { y = Reshape (x, s) }"), strict=True)
    x = np.arange(6, dtype=np.float32)
    for rows, columns in ((2, 3), (3, 2), (6, 1), (2, 3)):
        assert model(x, np.array([rows, columns]))[0].shape == (rows, columns)
    assert not remembered(model)


def test_each_set_of_extents_has_its_program() -> None:
    model = load(parsed("m (float[a, b] x) => (float y) { y = Softmax <axis = 0> (x) }"), strict=True)
    for shape in ((2, 3), (3, 2), (2, 3), (0, 3)):
        assert model(np.ones(shape, np.float32))[0].shape == shape
