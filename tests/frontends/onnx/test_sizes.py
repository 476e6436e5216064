"""Models with named extents and shape arithmetic: one program for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")

from fuse_opt.frontends.onnx.model import OnnxModel, load  # noqa: E402
from fuse_opt.tools.compiler.specialization import SpecializedPrograms  # noqa: E402

_TEXT = """
<ir_version: 9, opset_import: ["" : 18]>
heads (float[batch, seq, 32] x, float[32, 96] w, float[32, 32] o) => (float[batch, seq, 32] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}, int64[1] eight = {8}, int64[1] rest = {-1}, int64 first = {0},
 int64 second = {1}, int64 step = {1}, int64[3] split = {32, 32, 32}> {
  shape = Shape (x)
  batch = Gather <axis = 0> (shape, first)
  seq = Gather <axis = 0> (shape, second)
  b = Unsqueeze (batch, zero)
  s = Unsqueeze (seq, zero)
  parts = MatMul (x, w)
  q, k, v = Split <axis = 2> (parts, split)
  wanted = Concat <axis = 0> (b, s, four, eight)
  qh = Reshape (q, wanted)
  kh = Reshape (k, wanted)
  vh = Reshape (v, wanted)
  qt = Transpose <perm = [0, 2, 1, 3]> (qh)
  kt = Transpose <perm = [0, 2, 3, 1]> (kh)
  vt = Transpose <perm = [0, 2, 1, 3]> (vh)
  scores = MatMul (qt, kt)
  keys = Range (first, seq, step)
  row = Concat <axis = 0> (one, s)
  column = Concat <axis = 0> (s, one)
  across = Reshape (keys, row)
  down = Reshape (keys, column)
  seen = LessOrEqual (across, down)
  lowest = Constant <value = float {-10000.0}> ()
  masked = Where (seen, scores, lowest)
  weights = Softmax <axis = -1> (masked)
  mixed = MatMul (weights, vt)
  back = Transpose <perm = [0, 2, 1, 3]> (mixed)
  flat = Concat <axis = 0> (b, s, rest)
  joined = Reshape (back, flat)
  projected = MatMul (joined, o)
  y = Add (projected, x)
}
"""


def check_one_program(model: OnnxModel, calls: list[dict[str, Any]]) -> None:
    """Values of ONNX's reference for all calls, by one program."""
    expected = onnx.reference.ReferenceEvaluator(model.proto)
    for given in calls:
        (wanted,) = expected.run(None, given)
        (found,) = model(*(given[known.name] for known in model.inputs))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    (program,) = model._programs.values()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(backend := program._backend, SpecializedPrograms) and not backend.made


def test_attention_with_a_mask_of_positions():
    """Batch and length are names; reshapes, a mask and its positions are computed from the shape."""
    pytest.importorskip("onnx.reference")
    rng = np.random.default_rng(24)
    proto = onnx.parser.parse_model(_TEXT)
    weights = {"w": (32, 96), "o": (32, 32)}
    for name, extents in weights.items():
        array = (rng.standard_normal(extents) / 6).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = load(proto)
    shapes = [(2, 7), (1, 13), (3, 1), (1, 64)]
    check_one_program(model, [{"x": rng.standard_normal((*shape, 32)).astype(np.float32)} for shape in shapes])
