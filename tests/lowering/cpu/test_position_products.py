"""Convolutions by windows of one element as products: the reference's values at every width, batch and group, nothing beside."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from convolution_cases import BIAS_RESIDUAL_RELU, Conv, close, sized_text
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

CASES = {
    "one panel": Conv((1, 20, 3, 5), 7, (1, 1)),
    "a last panel of one": Conv((2, 64, 5, 13), 70, (1, 1)),
    "several blocks of channels": Conv((1, 300, 10, 14), 64, (1, 1)),
    "groups": Conv((3, 24, 9, 9), 40, (1, 1), groups=4),
    "depthwise": Conv((2, 16, 6, 11), 16, (1, 1), groups=16),
    "a filter": Conv((2, 50, 12, 12), 1, (1, 1)),
    "a channel": Conv((2, 1, 12, 12), 33, (1, 1)),
    "one axis": Conv((2, 40, 67), 33, (1,)),
    "three axes": Conv((1, 12, 4, 5, 7), 19, (1, 1, 1)),
}
BIAS_RELU = """  %a = graph.add %p, %b : (T, B) -> T
  %y = graph.relu %a : (T) -> T
"""
BATCHES = """func.func @main(%x: tensor<?xCxHxWxf32> {{graph.dims = ["n", "", "", ""]}}, %w: tensor<{w}xf32>) -> {y} {{
  %p = graph.conv %x, %w {{groups = {groups} : i64}} : ({x}, tensor<{w}xf32>) -> {y}
  %y = graph.relu %p : ({y}) -> {y}
  func.return %y : {y}
}}"""


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """With a bias, a residual and relu, and alone, when tiles store the result themselves."""
    for element, epilogue in (("f32", BIAS_RESIDUAL_RELU), ("f32", ""), ("f64", BIAS_RESIDUAL_RELU)):
        case = replace(CASES[name], element=element, epilogue=epilogue)
        program = fuse_opt.compile(case.text)
        assert program.stats.library_calls == 0
        close(program(*case.arguments()), evaluate(parse(case.text), case.arguments())[0], element)


@needs_compiler
@pytest.mark.parametrize("groups", (1, 4))
def test_batches_of_any_extent(groups: int) -> None:
    """None of them, one, and more than tasks were cut for."""
    case = Conv((1, 24, 9, 11), 40, (1, 1), groups=groups)
    x, y = "tensor<?x24x9x11xf32>", "tensor<?x40x9x11xf32>"
    text = BATCHES.format(w="x".join(map(str, case.shapes[1])), x=x, y=y, groups=groups)
    program, rng = fuse_opt.compile(text.replace("tensor<?xCxHxWxf32>", x)), np.random.default_rng(3)
    w = case.arguments()[1]
    for batch in (2, 1, 0, 7):
        x_array = rng.standard_normal((batch, 24, 9, 11)).astype(np.float32)
        a = x_array.reshape(batch, groups, 24 // groups, 99)
        wanted = np.maximum(w.reshape(groups, 40 // groups, -1) @ a, 0).reshape(batch, 40, 9, 11)
        np.testing.assert_allclose(program(x_array, w), wanted, 1e-5, 1e-5)


@needs_compiler
@needs_guard_pages
@pytest.mark.usefixtures("wide_host")
@pytest.mark.parametrize(("channels", "filters"), [(70, 40), (24, 7), (300, 64), (64, 1)])
def test_images_of_any_extents(channels: int, filters: int) -> None:
    """Of one position, a line less and more than panels are wide, several panels; batches, of none, too; beside guarded pages."""
    case = Conv((1, channels, 16, 16), filters, (1, 1), epilogue=BIAS_RELU)
    _, w, b, _ = case.arguments()
    program = fuse_opt.compile(sized_text(case)).freeze({"w": w})
    rng = np.random.default_rng(channels)
    for batch, height, width in ((1, 1, 1), (2, 3, 21), (1, 5, 13), (3, 16, 16), (1, 2, 129), (0, 4, 4)):
        x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
        wanted = np.maximum(
            w.reshape(filters, channels) @ x.reshape(batch, channels, height * width) + b.reshape(filters, 1), 0
        )
        with guarded() as allocate:
            given = [allocate(array, at_end=True) for array in (x, b)]
            out = allocate(np.zeros((batch, filters, height, width), np.float32), at_end=True)
            program(*given, out=out)
            np.testing.assert_allclose(out, wanted.reshape(out.shape), 1e-5, 1e-4)
            del given, out


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(11)
    for number in range(scaled(6)):
        groups = rng.choice((1, 1, 3))
        case = Conv(
            (rng.choice((1, 2)), groups * rng.randint(1, 90), rng.randint(2, 20), rng.randint(2, 40)),
            groups * rng.randint(1, 60), (1, 1), groups=groups, element=rng.choice(("f32", "f64")),
            epilogue=rng.choice(("", BIAS_RESIDUAL_RELU)),
        )  # fmt: skip
        program, arguments = fuse_opt.compile(case.text), case.arguments(number)
        wanted = evaluate(parse(case.text), arguments)[0]
        with guarded() as allocate:
            given = [allocate(array, at_end=number % 3 > 0) for array in arguments]
            out = allocate(np.zeros_like(wanted), at_end=number % 3 > 0)
            program(*given, out=out)
            close(out, wanted, case.element)
            del given, out


@needs_compiler
def test_threads_change_no_bit() -> None:
    for name in ("several blocks of channels", "groups"):
        program, arguments = fuse_opt.compile(CASES[name].text), CASES[name].arguments()
        results = by_threads(partial(program, *arguments))
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


@needs_compiler
@pytest.mark.usefixtures("wide_host")
def test_positions_are_columns_of_tiles_for_wide_vectors_alone() -> None:
    """Of narrow ones tiles read a line of each channel, where it lies."""
    for device, copies in (("cpu", True), ("avx2", False)):
        pipeline = [
            name.replace("schedule-kernels", f"schedule-kernels{{device={device}}}") for name in DEFAULT_PIPELINE
        ]
        assert (
            "float panel[" in fuse_opt.compile(CASES["several blocks of channels"].text, pipeline=pipeline).source
        ) == copies
