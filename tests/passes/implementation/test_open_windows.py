"""Depthwise convolutions as sums of a kernel, on devices: their values, and when that is chosen."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import evaluate, kernels, optimized, parse, random_arguments

PIPELINE = "gpu-attach-device{device=h100},open-windows{device=h100}"


def conv(x: str, w: str, result: str, attributes: str) -> str:
    types = [f"tensor<{shape}xf32>" for shape in (x, w, result)]
    line = f"%r = graph.conv %x, %w {{{attributes}}} : ({types[0]}, {types[1]}) -> {types[2]}"
    return f"func.func @main(%x: {types[0]}, %w: {types[1]}) -> {types[2]} {{\n{line}\nfunc.return %r : {types[2]}\n}}"


@pytest.mark.parametrize(
    ("x", "w", "result", "attributes"),
    [
        ("2x6x9x11", "6x1x3x3", "2x6x9x11", "groups = 6 : i64, pads = array<i64: 1, 1, 1, 1>"),
        (
            "32x64x29x31",
            "64x1x3x2",
            "32x64x28x16",
            "groups = 64 : i64, strides = array<i64: 1, 2>, pads = array<i64: 0, 1, 1, 1>",
        ),
        ("4x16x14x15", "16x1x5x5", "4x16x14x15", "groups = 16 : i64, pads = array<i64: 2, 2, 2, 2>"),
        (
            "8x16x33x35",
            "16x1x3x5",
            "8x16x29x12",
            "groups = 16 : i64, strides = array<i64: 1, 2>, dilations = array<i64: 2, 3>",
        ),
        ("3x4x17", "4x1x5", "3x4x9", "groups = 4 : i64, dilations = array<i64: 2>"),
        ("1x5x4x6x5", "5x1x2x2x2", "1x5x3x5x4", "groups = 5 : i64"),
    ],
)
def test_sums_are_those_of_the_convolution(x: str, w: str, result: str, attributes: str) -> None:
    text = conv(x, w, result, attributes)
    module = parse(text)
    arguments = random_arguments(module, 3)
    opened = optimized(text, PIPELINE)
    assert kernels(opened) and "graph.conv" not in str(opened)
    (found,), (expected,) = evaluate(opened, arguments), evaluate(module, arguments)
    np.testing.assert_allclose(found, expected, 2e-6, 2e-6)


def test_several_convolutions_are_a_kernel_each() -> None:
    ops = "".join(
        f"%{k + 1} = graph.conv %{k}, %w {{groups = 32 : i64, pads = array<i64: 1, 1, 1, 1>}} : "
        "(tensor<8x32x56x56xf32>, tensor<32x1x3x3xf32>) -> tensor<8x32x56x56xf32>\n"
        for k in range(3)
    )
    text = (
        "func.func @main(%x: tensor<8x32x56x56xf32>, %w: tensor<32x1x3x3xf32>) -> tensor<8x32x56x56xf32> {\n"
        f"{ops.replace('%0', '%x')}func.return %3 : tensor<8x32x56x56xf32>\n}}"
    )
    assert len(kernels(optimized(text, PIPELINE))) == 3
    assert len(kernels(optimized(text, "gpu-attach-device{device=h100},default"))) == 3, "no sum is computed again"


def test_what_follows_windows_is_in_their_kernel() -> None:
    text = conv("16x120x28x28", "120x1x5x5", "16x120x28x28", "groups = 120 : i64, pads = array<i64: 2, 2, 2, 2>")
    relu = "%y = graph.relu %r : (tensor<16x120x28x28xf32>) -> tensor<16x120x28x28xf32>\nfunc.return %y"
    found = kernels(optimized(text.replace("func.return %r", relu), "gpu-attach-device{device=h100},default"))
    assert len(found) == 1, "padding is computed again in the windows' kernel alone already"
