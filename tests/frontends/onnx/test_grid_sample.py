"""GridSample at places inside and outside, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
runtime: Any = pytest.importorskip("onnxruntime")

from fuse_opt.frontends.onnx import load  # noqa: E402

_ELEMENTS = {"float32": "float", "float64": "double"}


@pytest.mark.parametrize("mode", ("linear", "nearest", "cubic"))
@pytest.mark.parametrize("padding", ("zeros", "border", "reflection"))
@pytest.mark.parametrize("corners", (0, 1))
def test_images(mode: str, padding: str, corners: int):
    check(mode, padding, corners, (2, 3, 5, 4), (4, 3))
    check(mode, padding, corners, (1, 2, 1, 3), (2, 5))


@pytest.mark.parametrize("mode", ("linear", "nearest"))
@pytest.mark.parametrize("padding", ("zeros", "border", "reflection"))
def test_volumes(mode: str, padding: str):
    check(mode, padding, 1, (2, 2, 3, 5, 4), (2, 3, 2))
    check(mode, padding, 0, (1, 2, 3, 2, 4), (3, 1, 4), "float64")


def check(
    mode: str, padding: str, corners: int, shape: tuple[int, ...], out: tuple[int, ...], element: str = "float32"
) -> None:
    rng, name = np.random.default_rng(0), _ELEMENTS[element]
    attributes = f'mode = "{mode}", padding_mode = "{padding}", align_corners = {corners}'
    grid_shape = (shape[0], *out, len(out))
    text = (
        f'<ir_version: 10, opset_import: ["" : 20]> s ({name}{list(shape)} x, {name}{list(grid_shape)} g) => ({name} y) '
        f"{{ y = GridSample <{attributes}> (x, g) }}"
    )
    model = onnx.parser.parse_model(text)
    given = {"x": rng.standard_normal(shape), "g": rng.uniform(-2.2, 2.2, grid_shape)}
    given = {key: array.astype(element) for key, array in given.items()}
    (wanted,) = runtime.InferenceSession(model.SerializeToString()).run(None, given)
    (found,) = load(model, strict=True)(*given.values(), target="reference")
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
