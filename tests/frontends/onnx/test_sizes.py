"""Models with named extents and shape arithmetic: one program for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")

from fuse_opt.frontends.onnx.model import OnnxError, OnnxModel, load  # noqa: E402
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
    model = load(proto, strict=True)
    shapes = [(2, 7), (1, 13), (3, 1), (1, 64)]
    check_one_program(model, [{"x": rng.standard_normal((*shape, 32)).astype(np.float32)} for shape in shapes])


_POSITIONS = """
<ir_version: 9, opset_import: ["" : 18]>
positions (int64[batch, seq] ids, float[batch, past, 8] cache, float[20, 8] table) => (float[batch, seq, 8] y, int64[rest] odd)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64 first = {0}, int64 step = {1}, int64[1] axis = {1}> {
  shape = Shape (ids)
  seq = Slice (shape, one, two)
  long = Shape <start = 1, end = 2> (cache)
  end = Add (long, seq)
  known = Slice (known_ids, long, end, axis)
  rows = Gather <axis = 0> (table, known)
  one_seq = Squeeze (seq)
  one_past = Squeeze (long)
  counted = Range (first, one_seq, step)
  at = Add (counted, one_past)
  others = Gather <axis = 0> (table, at)
  embedded = Gather <axis = 0> (table, ids)
  sum = Add (embedded, rows)
  y = Add (sum, others)
  half = Div (end, two)
  remainder = Mod (end, two)
  parts = Concat <axis = 0> (half, remainder, seq)
  flags = ConstantOfShape <value = int64[1] {3}> (seq)
  twice = Tile (parts, two)
  total = ReduceSum <keepdims = 1> (parts)
  chosen = Where (yes, total, seq)
  spread = Expand (chosen, two)
  odd = Concat <axis = 0> (twice, spread, flags)
}
"""


def test_positions_from_a_table_up_to_a_size():
    """As exporters write position ids: a slice of a constant up to a size, positions behind a past, and odd arithmetic."""
    pytest.importorskip("onnx.reference")
    rng = np.random.default_rng(25)
    proto = onnx.parser.parse_model(_POSITIONS)
    for name, array in (("known_ids", np.arange(20)[None]), ("yes", np.array([True]))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model, expected = load(proto, strict=True), onnx.reference.ReferenceEvaluator(proto)
    for batch, seq, past in ((2, 3, 5), (1, 1, 19), (3, 12, 1), (1, 7, 7)):
        floats = [rng.standard_normal(extents).astype(np.float32) for extents in ((batch, past, 8), (20, 8))]
        given = dict(zip(("ids", "cache", "table"), (rng.integers(0, 20, (batch, seq)), *floats), strict=True))
        for found, wanted in zip(model(*given.values()), expected.run(None, given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    (program,) = model._programs.values()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(native := program._backend, SpecializedPrograms) and not native.made
    too_long = [np.zeros((1, 18), np.int64), np.zeros((1, 3, 8), np.float32), np.zeros((20, 8), np.float32)]
    with pytest.raises(ValueError, match=r"the axis has 20 elements, got 21 \(past \+ seq\) as the stop"):
        model(*too_long)


_IMAGES = """
<ir_version: 9, opset_import: ["" : 18]>
block (float[batch, 3, rows, columns] x, float[8, 3, 3, 3] w, float[8] b, float[4, 8, 1, 1] v)
    => (float[batch, 4, r, c] y) {
  found = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  positive = Relu (found)
  pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (positive)
  y = Conv (pooled, v)
}
"""


def test_convolutions_of_images_of_any_extents():
    rng = np.random.default_rng(3)
    weights = {
        name: rng.standard_normal(shape, np.float32)
        for name, shape in (("w", (8, 3, 3, 3)), ("b", (8,)), ("v", (4, 8, 1, 1)))
    }
    images = ((1, 3, 2, 2), (2, 3, 9, 70), (3, 3, 17, 8), (1, 3, 40, 33))
    check_one_program(
        load(onnx.parser.parse_model(_IMAGES), strict=True),
        [{"x": rng.standard_normal(shape, np.float32), **weights} for shape in images],
    )


def test_windows_that_do_not_fit_are_refused_by_the_node():
    """onnx_fuzz.py, seed 30161: the program for all extents was at a loss for these, and said so of itself."""
    head = '<ir_version: 9, opset_import: ["" : 18]> p (float[1, 1, n] x) => (float[1, 1, m] y)'
    model = load(onnx.parser.parse_model(head + "{ [pool] y = LpPool <kernel_shape = [5]> (x) }"), strict=True)
    with pytest.raises(OnnxError, match="operator LpPool, node 'pool': a window of 5 elements"):
        model(np.ones((1, 1, 3), np.float32))
    assert model(np.ones((1, 1, 4), np.float32))[0].shape == (1, 1, 0)
    (found,) = model(np.ones((1, 1, 7), np.float32))
    np.testing.assert_allclose(found, np.full((1, 1, 3), 5**0.5), rtol=1e-6)


def test_filters_of_any_extents_whose_pads_follow_from_them():
    """Pads of numbers that only a call says: a program for each of them. They were an AttributeError."""
    head = '<ir_version: 9, opset_import: ["" : 18]> p (float[1, 2, n] x, float[2, 3, k] w) => (float[1, 3, m] y)'
    model = load(
        onnx.parser.parse_model(head + '{ y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [1]> (x, w) }'),
        strict=True,
    )
    rng, reference = np.random.default_rng(5), onnx.reference.ReferenceEvaluator(model.proto)
    for n, k in ((9, 3), (4, 4), (17, 2)):
        x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 2, n), (2, 3, k)))
        np.testing.assert_allclose(model(x, w)[0], reference.run(None, {"x": x, "w": w})[0], rtol=1e-4, atol=1e-5)
