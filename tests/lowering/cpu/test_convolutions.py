"""Generated convolutions: every geometry, group and epilogue gives the reference's values, and touches nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import cycle
from math import prod
from typing import Any

import numpy as np
import pytest
from convolution_cases import BIAS_RESIDUAL_RELU, Conv, close, integers
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, evaluate, kernels, parse
from lowered_programs import needs_compiler
from narrow_floats import decode
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.convolutions import CONV, FEWEST_POSITIONS, LARGEST_COPY, least_copy
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.tiling import choose_tiling
from fuse_opt.runtime.host import thread_pool

Array = np.ndarray[Any, Any]

CASES = {
    "same": Conv((2, 5, 9, 11), 7, (3, 3), pads=(1, 1, 1, 1)),
    "valid-in-place": Conv((2, 5, 11, 13), 7, (3, 3)),
    "valid-narrow": Conv((1, 5, 7, 7), 20, (3, 3)),
    "pointwise": Conv((2, 37, 9, 11), 19, (1, 1)),
    "pointwise-few": Conv((1, 70, 5, 5), 33, (1, 1)),
    "pointwise-strided": Conv((1, 20, 13, 15), 9, (1, 1), strides=(2, 2)),
    "strided": Conv((2, 6, 15, 17), 10, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "first-layer": Conv((1, 3, 33, 35), 18, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    "uneven-strides": Conv((1, 4, 19, 23), 6, (3, 4), strides=(3, 2), pads=(1, 2, 0, 3)),
    "wide-stride": Conv((1, 4, 20, 40), 6, (2, 2), strides=(3, 5)),
    "dilated": Conv((1, 4, 14, 17), 6, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "dilated-strided": Conv((1, 4, 23, 29), 6, (3, 3), strides=(2, 3), dilations=(3, 2), pads=(3, 1, 4, 2)),
    "pads-beyond-window": Conv((1, 2, 5, 6), 4, (2, 2), pads=(3, 4, 2, 5)),
    "groups": Conv((2, 12, 9, 10), 18, (3, 3), pads=(1, 1, 1, 1), groups=3),
    "depthwise": Conv((2, 6, 14, 15), 6, (3, 3), pads=(1, 1, 1, 1), groups=6),
    "depthwise-strided": Conv((1, 6, 17, 18), 12, (3, 3), strides=(2, 2), pads=(0, 1, 1, 0), groups=6),
    "one-axis": Conv((2, 5, 67), 9, (5,), pads=(2, 2)),
    "one-axis-long": Conv((1, 300, 1500), 3, (3,), pads=(1, 1)),
    "one-axis-strided": Conv((1, 5, 131), 9, (4,), strides=(4,), pads=(1, 3)),
    "three-axes": Conv((1, 3, 5, 6, 7), 8, (3, 2, 3), pads=(1, 0, 1, 1, 1, 1)),
    "three-axes-strided": Conv((2, 3, 9, 8, 9), 5, (3, 3, 3), strides=(2, 1, 2), pads=(1, 1, 1, 2, 1, 1)),
    "three-axes-pointwise": Conv((1, 13, 3, 4, 5), 6, (1, 1, 1)),
    "many-channels": Conv((1, 600, 5, 6), 40, (3, 3), pads=(1, 1, 1, 1)),
    "rows-in-parts": Conv((1, 300, 4, 150), 5, (3, 3), pads=(1, 1, 1, 1)),
    "one-filter": Conv((1, 9, 10, 70), 1, (3, 3), pads=(1, 1, 1, 1)),
    "few-positions": Conv((3, 40, 3, 3), 37, (3, 3), pads=(1, 1, 1, 1)),
    "fewest-positions": Conv((1, 70, 2, 2), 33, (2, 1), pads=(1, 0, 0, 0)),
    "few-strided": Conv((2, 33, 4, 5), 20, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "few-pointwise": Conv((2, 40, 5), 6, (1,)),
    "one-column": Conv((1, 9, 40, 1), 6, (3, 1), pads=(1, 0, 1, 0)),
}


@pytest.mark.sampled(5)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str) -> None:
    CASES[name].check()
    replace(CASES[name], element="f64", epilogue="").check()


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize(("name", "element"), list(zip(CASES, cycle(("f16", "bf16")), strict=False)))
def test_narrow_floats_are_widened_as_they_are_copied(name: str, element: str) -> None:
    """Among them those whose windows f32 reads where they lie, and with what follows in the kernel."""
    replace(CASES[name], element=element).check()


def random_case(rng: random.Random) -> Conv:
    """Any geometry that has enough positions."""
    while True:
        axes = rng.choice((1, 2, 2, 2, 3))
        limit = {1: 80, 2: 21, 3: 9}[axes]
        spatial = tuple(rng.randint(1, limit) for _ in range(axes))
        window = tuple(rng.randint(1, min(5, n + 2)) for n in spatial)
        strides = tuple(rng.choice((1, 1, 1, 2, 3)) for _ in spatial)
        dilations = tuple(rng.choice((1, 1, 2, 3)) for _ in spatial)
        pads = tuple(rng.choice((0, 1, 2)) for _ in range(2 * axes))
        groups = rng.choice((1, 1, 2, 5))
        channels, filters = groups * rng.choice((1, 2, 7, 33)), groups * rng.choice((1, 3, 14, 17))
        reaches = zip(spatial, window, dilations, pads[:axes], pads[axes:], strict=True)
        if any(n + b + e <= d * (k - 1) for n, k, d, b, e in reaches):
            continue
        epilogue = BIAS_RESIDUAL_RELU if rng.random() < 0.5 else ""
        x = (rng.choice((1, 2)), channels, *spatial)
        case = Conv(
            x, filters, window, strides, pads, dilations, groups, epilogue, rng.choice(("f32", "f64", "f16", "bf16"))
        )
        if prod(case.result[2:]) // (case.result[2] if axes == 3 else 1) >= FEWEST_POSITIONS:
            return case


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(5)
    for number in range(scaled(9)):
        case = random_case(rng)
        program, arguments = fuse_opt.compile(case.text), case.arguments(number)
        assert program.stats.library_calls == 0, case
        wanted = evaluate(parse(case.text), arguments)[0]
        with guarded() as allocate:
            given = [allocate(array, at_end=number % 3 > 0) for array in arguments]
            out = allocate(np.zeros_like(wanted), at_end=number % 3 > 0)
            program(*given, out=out)
            close(out, wanted, case.element)
            del given, out


@needs_compiler
def test_gradients_of_inputs_are_convolutions_where_a_stride_leaves_no_gaps() -> None:
    pads, more = (1, 0, 2, 1), {"shape": "array<i64: 9, 14>"}
    like = Conv((2, 6, 9, 14), 8, (3, 2), pads=pads, groups=2)
    types = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in (like.result, like.shapes[1], like.x)]
    written = f"pads = {integers(pads)}, groups = 2 : i64"
    for op, attributes in (("conv_backward_data", f"{written}, shape = {more['shape']}"), ("conv_transpose", written)):
        text = f"""
func.func @main(%g: {types[0]}, %w: {types[1]}) -> {types[2]} {{
  %y = graph.{op} %g, %w {{{attributes}}} : ({types[0]}, {types[1]}) -> {types[2]}
  func.return %y : {types[2]}
}}"""
        rng = np.random.default_rng(2)
        arguments = [rng.standard_normal(shape).astype(np.float32) for shape in (like.result, like.shapes[1])]
        program = fuse_opt.compile(text)
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [CONV]
        close(program(*arguments), evaluate(parse(text), arguments)[0], "f32")


@needs_compiler
def test_threads_change_no_bit() -> None:
    same, inside = Conv((2, 70, 30, 29), 50, (3, 3), pads=(1, 1, 1, 1)), Conv((1, 64, 40, 40), 33, (1, 1))
    for case in (same, inside, replace(same, element="bf16"), replace(inside, element="f16")):
        program, arguments = fuse_opt.compile(case.text), case.arguments()
        results = by_threads(partial(program, *arguments))
        for result in results[1:]:
            np.testing.assert_array_equal(decode(result), decode(results[0]))


@needs_compiler
def test_errors_are_no_larger_than_those_of_a_library() -> None:
    case = Conv((1, 160, 12, 13), 40, (3, 3), epilogue="")
    x, w, *_ = arguments = case.arguments(3)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    unfolded = np.ascontiguousarray(windows.transpose(0, 3, 4, 1, 2)).reshape(160 * 9, -1)
    exact = w.reshape(40, -1).astype(np.float64) @ unfolded.astype(np.float64)
    ours = np.abs(fuse_opt.compile(case.text)(*arguments).reshape(40, -1) - exact).max()
    assert ours <= 1.25 * np.abs(w.reshape(40, -1) @ unfolded - exact).max()


@needs_compiler
def test_an_operand_that_is_both_input_and_residual() -> None:
    text = """
func.func @main(%x: tensor<1x8x9x10xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<1x8x9x10xf32> {
  %p = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>}
      : (tensor<1x8x9x10xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x9x10xf32>
  %y = graph.add %p, %x : (tensor<1x8x9x10xf32>, tensor<1x8x9x10xf32>) -> tensor<1x8x9x10xf32>
  func.return %y : tensor<1x8x9x10xf32>
}"""
    for donated in (False, True):
        source = text.replace("xf32>, %w", "xf32> {graph.donated}, %w") if donated else text
        rng = np.random.default_rng(4)
        arguments = [rng.standard_normal(shape).astype(np.float32) for shape in ((1, 8, 9, 10), (8, 8, 3, 3))]
        wanted = evaluate(parse(source), [array.copy() for array in arguments])[0]
        close(fuse_opt.compile(source)(*arguments), wanted, "f32")


def test_unfuse_takes_the_convolution_and_what_follows_apart() -> None:
    module = apply(parse(CASES["same"].text), ["fuse-elementwise", "fuse-epilogue"])
    assert [[op.name for op in kernel.ops()] for kernel in kernels(module)] == [
        ["graph.conv", "graph.add", "graph.add", "graph.relu"]
    ]
    assert kernels(apply(module, ["unfuse"])) == []


@needs_compiler
def test_neighbours_share_a_region_with_barriers_between() -> None:
    """A convolution reads what a softmax stored before, a product what the convolution did, and one more reads that."""
    t, w, v, m = (f"tensor<{shape}xf32>" for shape in ("2x16x20x20", "16x16x3x3", "16x16x1x1", "20x20"))
    text = f"""
func.func @main(%x: {t}, %w: {w}, %v: {v}, %m: {m}) -> {t} {{
  %a = graph.conv %x, %w {{pads = array<i64: 1, 1, 1, 1>}} : ({t}, {w}) -> {t}
  %b = graph.softmax %a {{axis = 3 : i64}} : ({t}) -> {t}
  %c = graph.conv %b, %v : ({t}, {v}) -> {t}
  %d = graph.matmul %c, %m : ({t}, {m}) -> {t}
  %e = graph.conv %d, %w {{pads = array<i64: 1, 1, 1, 1>}} : ({t}, {w}) -> {t}
  %f = graph.add %e, %b : ({t}, {t}) -> {t}
  func.return %f : {t}
}}"""
    shapes = ((2, 16, 20, 20), (16, 16, 3, 3), (16, 16, 1, 1), (20, 20))
    arguments = [np.random.default_rng(6).standard_normal(shape).astype(np.float32) for shape in shapes]
    program, before = fuse_opt.compile(text), thread_pool.num_threads()
    assert program.stats.segments == 1 and program.stats.library_calls == 0
    wanted = evaluate(parse(text), arguments)[0]
    try:
        for threads in (1, 2, 4):
            thread_pool.set_num_threads(threads)
            for _ in range(50):
                close(program(*arguments), wanted, "f32")
    finally:
        thread_pool.set_num_threads(before)


def test_every_accepted_copy_fits() -> None:
    """At the largest number of channels that is taken there is a cut, for either element type."""
    for itemsize in (4, 8):
        for window, stride, dilation in (((1, 3, 3), 1, 1), ((3, 3, 3), 2, 1), ((1, 2, 5), 3, 4), ((1, 7, 1), 1, 2)):
            size = least_copy(contraction(1, window, stride, dilation)) * itemsize
            largest = contraction(LARGEST_COPY // size, window, stride, dilation)
            assert choose_tiling(largest, itemsize).block.copies
            assert itemsize == 8 or choose_tiling(largest, itemsize, widens=True).block.copies


def contraction(channels: int, window: tuple[int, ...], stride: int, dilation: int) -> WindowContraction:
    """Of 40 positions along each axis, with padding."""
    extents = tuple(39 * stride + dilation * (k - 1) for k in window)
    begins = tuple(int(number == 2) for number in range(3))
    ones, taps = (1, 1, 1), prod(window)
    return WindowContraction(
        1, 1, 5, channels, extents, (40, 40, 40), window, tuple(stride * n for n in ones),
        tuple(dilation * n for n in ones), begins, 5 * channels * taps, channels * taps, taps,
    )  # fmt: skip


@needs_compiler
def test_several_results_behind_reshapes() -> None:
    text = """
func.func @main(%x: tensor<2x5x9x11xf32>, %w: tensor<6x5x3x3xf32>) -> (tensor<2x6x99xf32>, tensor<12x99xbf16>) {
  %p = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>}
      : (tensor<2x5x9x11xf32>, tensor<6x5x3x3xf32>) -> tensor<2x6x9x11xf32>
  %f = graph.reshape %p {shape = array<i64: 2, 6, 99>} : (tensor<2x6x9x11xf32>) -> tensor<2x6x99xf32>
  %t = graph.tanh %f : (tensor<2x6x99xf32>) -> tensor<2x6x99xf32>
  %g = graph.reshape %t {shape = array<i64: 12, 99>} : (tensor<2x6x99xf32>) -> tensor<12x99xf32>
  %h = graph.astype %g {dtype = bf16} : (tensor<12x99xf32>) -> tensor<12x99xbf16>
  func.return %t, %h : tensor<2x6x99xf32>, tensor<12x99xbf16>
}"""
    rng = np.random.default_rng(8)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 9, 11), (6, 5, 3, 3))]
    program = fuse_opt.compile(text)
    assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [CONV]
    first, second = program(*arguments)
    wanted = fuse_opt.evaluate(text, *arguments)
    close(first, wanted[0], "f32")
    assert second.dtype == wanted[1].dtype and second.shape == wanted[1].shape
