"""Resize of what is more than a few elements long reads the places with weights, and rounds once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

onnx: Any = pytest.importorskip("onnx")
evaluators: Any = pytest.importorskip("onnx.reference")

from fuse_opt.frontends.onnx import load  # noqa: E402

MODES = {
    "linear": 'mode = "linear"',
    "cubic": 'mode = "cubic", coordinate_transformation_mode = "align_corners"',
    "smoothed": 'mode = "linear", antialias = 1',
    "inside": 'mode = "cubic", exclude_outside = 1',
}


def resized(kind: str, shape: str, attributes: str, scales: Any) -> Any:
    text = f"r ({kind}[{shape}] x) => ({kind} y) {{ y = Resize <{attributes}> (x, , s) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(scales, np.float32), "s"))
    return model


@needs_compiler
@pytest.mark.parametrize("kind", ["float", "double", "float16", "uint8", "int8"])
@pytest.mark.parametrize("scale", [0.5, 2.0, 1.375])
@pytest.mark.parametrize("mode", MODES)
def test_places_with_weights(mode: str, scale: float, kind: str) -> None:
    shape, scales = "1, 2, 35, 200", [1, 1, scale, scale]
    rng, element = np.random.default_rng(5), {"float": "float32", "double": "float64"}.get(kind, kind)
    x = rng.integers(0 if kind == "uint8" else -90, 90, (1, 2, 35, 200)).astype(element)
    model = load(resized(kind, shape, MODES[mode], scales), strict=True)
    exact = evaluators.ReferenceEvaluator(resized("double", shape, MODES[mode], scales))
    found, wanted = model(x)[0], exact.run(None, {"x": x.astype(np.float64)})[0]
    assert "graph.read_at" in str(model.module) and found.dtype == element
    if "int" not in kind:
        bound = 2e-3 if kind == "float16" else 1e-5
        np.testing.assert_allclose(found, wanted, rtol=bound, atol=50 * bound)
        return
    # What is cut off towards zero may lie on either side of a whole number.
    limits = np.iinfo(kind)
    low, high = (np.clip(np.trunc(wanted + error), limits.min, limits.max) for error in (-1e-3, 1e-3))
    assert ((low <= found) & (found <= high)).all()


def test_short_axes_are_products() -> None:
    model = load(resized("float", "1, 1, 5, 30", MODES["linear"], [1, 1, 2, 2]), strict=True)
    assert model(np.ones((1, 1, 5, 30), np.float32))[0].shape == (1, 1, 10, 60)
    assert "graph.matmul" in str(model.module) and "graph.read_at" not in str(model.module)
