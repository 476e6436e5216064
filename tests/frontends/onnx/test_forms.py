"""Forms of operators that random graphs found: operands of one element, those that broadcast, types of further outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")

from fuse_opt.frontends.onnx import UnsupportedError, load  # noqa: E402

RNG = np.random.default_rng(5)


def one(text: str, weights: dict[str, Any], opset: int = 21) -> Any:
    """A model of one function body, with these initialisers."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return load(proto, strict=True)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("axis", ("", "<axis = 1>", "<axis = 0>"))
@pytest.mark.parametrize("zero", (True, False))
def test_a_scale_of_one_element_is_one_for_the_tensor(axis: str, zero: bool):
    """seeds 28, 40: exporters write [1] for per-tensor parameters, with an axis that the tensor may not have."""
    x = np.array([-3.25, 0.5, 0.625, 70.0], np.float32)
    weights: dict[str, Any] = {"s": np.array([0.5], np.float32), **({"z": np.array([3], np.int8)} if zero else {})}
    operands = ", ".join(("x", *weights))
    element = "int8" if zero else "uint8"
    quantised = one(f"q (float[4] x) => ({element}[4] y) {{ y = QuantizeLinear {axis} ({operands}) }}", weights)
    (found,) = quantised(x, target="reference")
    wanted = np.clip(np.round(x / 0.5) + (3 if zero else 0), -128 if zero else 0, 127 if zero else 255)
    np.testing.assert_array_equal(found, wanted)
    back = one(f"d ({element}[4] x) => (float[4] y) {{ y = DequantizeLinear {axis} ({operands}) }}", weights)
    np.testing.assert_array_equal(back(found, target="reference")[0], (wanted - (3 if zero else 0)) * 0.5)


@pytest.mark.parametrize("scale, bias", (((), (1,)), ((4,), (3, 1)), ((2, 1, 1), (2, 3, 4)), ((1, 4), None)))
def test_scale_and_bias_of_layer_norm_broadcast(scale: tuple[int, ...], bias: tuple[int, ...] | None):
    x = floats(2, 3, 4)
    weights: dict[str, Any] = {"s": floats(*scale), **({} if bias is None else {"b": floats(*bias)})}
    model = one(
        f"l (float[2, 3, 4] x) => (float y) {{ y = LayerNormalization <axis = 1> ({', '.join(('x', *weights))}) }}",
        weights,
    )
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    wanted = (x - mean) / np.sqrt(variance + 1e-5) * weights["s"] + weights.get("b", 0)
    np.testing.assert_allclose(model(x, target="reference")[0], wanted, rtol=1e-5, atol=1e-6)


def test_scale_of_rms_norm_broadcasts():
    x, scale = floats(2, 3, 4), floats(2, 1, 4)
    model = one("r (float[2, 3, 4] x) => (float y) { y = RMSNormalization <axis = -1> (x, s) }", {"s": scale}, 23)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(model(x, target="reference")[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("known", (False, True))
def test_mean_and_deviation_of_narrow_floats_are_f32(known: bool):
    """seed 490: of x that is known, too, which ONNX's reference evaluates in f16."""
    x, scale = floats(3, 4).astype(np.float16), np.ones(4, np.float16)
    body = "l (float16[3, 4] x) => (float16 y, float m, float d) { y, m, d = LayerNormalization (x, s) }"
    model = one(body, {"s": scale, **({"x": x} if known else {})})
    _, mean, deviation = model(*(() if known else (x,)), target="reference")
    assert mean.dtype == deviation.dtype == np.float32
    wide = x.astype(np.float32)
    np.testing.assert_allclose(mean, wide.mean(1, keepdims=True), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(deviation, 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5), rtol=1e-5)


def test_weights_are_pooled_by_ours():
    """seeds 71, 83, 112, 484: ONNX's reference has other indices of MaxPool, and other values of LRN and GlobalMaxPool."""
    x = floats(2, 3, 6)
    body = "p (float[2, 3, 6] x) => (float y, int64 i) { y, i = MaxPool <kernel_shape = [2]> (x) }"
    indices = one(body, {"x": x})(target="reference")[1]
    np.testing.assert_array_equal(x.reshape(-1)[indices], np.maximum(x[..., 1:], x[..., :-1]))
    y = floats(2, 4, 3, 3)
    (found,) = one("n (float[2, 4, 3, 3] x) => (float y) { y = LRN <size = 3, alpha = 0.5> (x) }", {"x": y})(
        target="reference"
    )
    squares = np.pad(y * y, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    np.testing.assert_allclose(found, y / (1 + 0.5 / 3 * total) ** 0.75, rtol=1e-5)
    (largest,) = one("g (float[2, 3, 6] x) => (float y) { y = GlobalMaxPool (x) }", {"x": x})(target="reference")
    np.testing.assert_array_equal(largest, x.max(2, keepdims=True))


@pytest.mark.parametrize(
    "start, end, step, wanted", ((-9, -9, -1, [0]), (-9, -9, -2, [0]), (-3, -9, -1, [0]), (-9, 2, 1, [0, 1]))
)
def test_slices_begin_within_the_axis(start: int, end: int, step: int, wanted: list[int]):
    """seeds 233, 20048: where steps are negative, a start before the axis is its first element, not none."""
    weights = {"s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "p": np.array([step])}
    model = one("l (int64[3] x) => (int64 y) { y = Slice (x, s, e, a, p) }", weights)
    assert model(np.arange(3), target="reference")[0].tolist() == wanted


@pytest.mark.parametrize("start, end, step, wanted", ((-(2**31), -(2**63) + 1, -2, [0]), (2**31, -(2**31), -2, [2, 0])))
def test_slices_of_weights_begin_within_the_axis(start: int, end: int, step: int, wanted: list[int]):
    """seed 40010: ONNX's reference gave none, where a Slice of what is computed gave the first element."""
    weights = {"x": np.arange(3), "s": np.array([start]), "e": np.array([end]), "p": np.array([step])}
    model = one("l () => (int64 y) { y = Slice (x, s, e, , p) }", weights)
    assert model(target="reference")[0].tolist() == wanted


@pytest.mark.parametrize(
    "pads, wanted", (((-1, 3), [1, 2, 1, 2, 1]), ((4, -2), [0, 0, 0, 0, 0]), ((2, -1), [0, 1, 0, 1]))
)
def test_padding_wraps_around_what_is_left(pads: tuple[int, int], wanted: list[int]):
    model = one('p (int64[3] x) => (int64 y) { y = Pad <mode = "wrap"> (x, p) }', {"p": np.array(pads)})
    assert model(np.arange(3), target="reference")[0].tolist() == wanted


@pytest.mark.parametrize("operator", ("ThresholdedRelu <alpha = -1.0>", "Shrink <lambd = 0.5>", "Shrink <bias = 2.0>"))
def test_activations_of_nan(operator: str):
    x = np.array([np.nan, np.inf, -0.25, 3, np.nan], np.float32)
    found = one(f"a (float[5] x) => (float y) {{ y = {operator} (x) }}", {})(x, target="reference")[0]
    np.testing.assert_array_equal(np.isnan(found), False)
    np.testing.assert_array_equal(found[[0, 4]], 0)


@pytest.mark.parametrize("operator", ("MaxPool", "AveragePool", "LpPool"))
@pytest.mark.parametrize("extent, stride, count", ((3, 1, 0), (3, 2, 0), (2, 2, 0), (2, 1, None), (4, 1, 1)))
def test_pools_whose_window_does_not_fit(operator: str, extent: int, stride: int, count: int | None):
    """Nothing where the formula for the extent says 0, and a refusal where it says less."""
    text = f"kernel_shape = [4], strides = [{stride}]"
    model = one(f"p (float[1, 1, {extent}] x) => (float y) {{ y = {operator} <{text}> (x) }}", {})
    if count is None:
        with pytest.raises(UnsupportedError, match="a window of 4 elements"):
            model(floats(1, 1, extent))
    else:
        assert model(floats(1, 1, extent), target="reference")[0].shape == (1, 1, count)


def test_windows_that_start_in_the_padding_behind_are_none():
    """As of the other pools with ceil_mode."""
    text = "kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1, p = 1"
    (found,) = one(f"p (float[1, 1, 3] x) => (float y) {{ y = LpPool <{text}> (x) }}", {})(
        np.ones((1, 1, 3), np.float32)
    )
    assert found.tolist() == [[[1, 2]]]


@pytest.mark.parametrize("body", ("y = Shape (x)", "y = Size (x)", "s = Shape (x) y = ConstantOfShape (s)"))
def test_sizes_are_results(body: str):
    """seed 50233: numbers that extents with names make were in no kernel where nothing but the result reads them."""
    kind = {"y = Shape (x)": "int64[2]", "y = Size (x)": "int64"}.get(body, "float[n, m]")
    model = one(f"l (float[n, m] x) => ({kind} y) {{ {body} }}", {})
    for shape in ((2, 3), (5, 1)):
        (found,) = model(floats(*shape))
        assert (found.shape if found.ndim == 2 else found.tolist()) in (shape, list(shape), shape[0] * shape[1])


def test_extents_of_resize_are_products_in_f32():
    """seed 50502: 10 * 1.3 is 13 there, though 1.3 as f32 is a little less."""
    scales = np.array([1, 1, 1.3], np.float32)
    model = one('r (float[1, 1, 10] x) => (float y) { y = Resize <mode = "linear"> (x, , s) }', {"s": scales})
    assert model(floats(1, 1, 10), target="reference")[0].shape == (1, 1, 13)


@pytest.mark.parametrize("length", (5, 6, 8))
def test_spectra(length: int):
    """Real and complex ones, cut and padded, of one side, and their inverses."""
    x, numbers = floats(2, 6, 1), {"n": np.array(length)}
    whole = np.fft.fft(x[..., 0], length)
    (found,) = one("d (float[2, 6, 1] x) => (float y) { y = DFT (x, n) }", numbers)(x, target="reference")
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], whole, rtol=1e-4, atol=1e-5)
    (half,) = one("d (float[2, 6, 1] x) => (float y) { y = DFT <onesided = 1> (x, n) }", numbers)(x, target="reference")
    np.testing.assert_allclose(half, found[:, : length // 2 + 1], rtol=1e-4, atol=1e-5)
    given = f"float[2, {length // 2 + 1}, 2] x"
    (back,) = one(f"d ({given}) => (float y) {{ y = DFT <inverse = 1, onesided = 1> (x, n) }}", numbers)(half)
    np.testing.assert_allclose(
        back[..., 0], np.fft.irfft(half[..., 0] + 1j * half[..., 1], length), rtol=1e-4, atol=1e-5
    )
    (again,) = one(f"d (float[2, {length}, 2] x) => (float y) {{ y = DFT <inverse = 1> (x) }}", {})(found)
    wanted = np.zeros((2, length))
    wanted[:, : min(length, 6)] = x[:, :length, 0]
    np.testing.assert_allclose(again[..., 0], wanted, rtol=1e-4, atol=1e-5)


def test_a_resized_extent_is_counted_exactly():
    """Seeds 90112 and 90168: 1.3 in f32 times 10 is 13 in f32 and less in f64, as is 49 times 1 / 49 less than 1."""
    region = {"r": np.array([0, 0, 0.25, 1, 1, 0.75], np.float32)}
    x = np.arange(49, dtype=np.float32).reshape(1, 1, 49)

    def resized(mode: str, operands: str, wide: Any, weights: dict[str, Any]) -> list[float]:
        text = f"r (float[1, 1, {wide.shape[-1]}] x) => (float y) {{ y = Resize <{mode}> ({operands}) }}"
        return one(text, weights)(wide, target="reference")[0].ravel().tolist()

    mode = 'mode = "nearest", nearest_mode = "ceil", coordinate_transformation_mode = '
    scales = {"s": np.array([1, 1, 1.3], np.float32)}
    found = resized(f'{mode}"tf_crop_and_resize"', "x, r, s", x[..., :10], {**region, **scales})
    assert found == [3, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7]
    assert resized(f'{mode}"align_corners"', "x, , s", x[..., :10], scales) == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9]
    single, mode = {"z": np.array([1, 1, 1])}, 'mode = "linear", coordinate_transformation_mode = '
    assert resized(f'{mode}"pytorch_half_pixel"', "x, , , z", x, single) == [0.0]
    assert resized(f'{mode}"tf_crop_and_resize"', "x, r, , z", x, {**region, **single}) == [24.0]


@pytest.mark.parametrize("how", ('coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"', ""))
def test_images_of_several_times_the_size_read_at_no_positions_that_are_data(how: str):
    scales, x = {"s": np.array([1, 1, 2, 3], np.float32)}, floats(2, 3, 5, 7)
    mode = f'mode = "nearest", {how}' if how else 'mode = "nearest"'
    model = one(f"r (float[2, 3, 5, 7] x) => (float y) {{ y = Resize <{mode}> (x, , s) }}", scales)
    np.testing.assert_array_equal(model(x)[0], x.repeat(2, 2).repeat(3, 3))
    assert "graph.take" not in str(model.module)


@pytest.mark.parametrize("name", ("int8", "int16", "int32", "int64", "uint8", "uint32"))
def test_quotients_of_integers_are_truncated(name: str):
    """By zero they are 0; the least number by -1 wraps to itself."""
    limits = np.iinfo(name)
    numbers = np.array([limits.min, limits.max, *range(-9 if limits.min else 0, 10)], name)
    x, y = (part.ravel() for part in np.meshgrid(numbers, numbers, indexing="ij"))
    wanted = [
        0 if b == 0 else abs(int(a)) // abs(int(b)) * (-1 if (a < 0) != (b < 0) else 1)
        for a, b in zip(x, y, strict=True)
    ]
    low, count = int(limits.min), 1 << limits.bits
    wrapped = [(number - low) % count + low for number in wanted]
    kind = f"{name}[{x.size}]"
    model = one(f"d ({kind} x, {kind} y) => ({kind} z) {{ z = Div (x, y) }}", {})
    for target in ("reference", "cpu"):
        found = model(x, y, target=target)[0]
        assert found.tolist() == wrapped, target
