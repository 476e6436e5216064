"""Generated gradients of convolutions: every geometry gives the reference's values, and touches nothing else."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from convolution_cases import Conv, close, integers
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, kernels, parse
from lowered_programs import needs_compiler
from narrow_floats import decode, encode
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.conv_kernels import conv_problem
from fuse_opt.dialects.analysis.contractions.convolutions import CONV
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Array = np.ndarray[Any, Any]

CASES = {
    "same": Conv((2, 20, 9, 11), 7, (3, 3), pads=(1, 1, 1, 1)),
    "pointwise": Conv((3, 70, 9, 11), 50, (1, 1)),
    "pointwise-strided": Conv((1, 20, 13, 15), 9, (1, 1), strides=(2, 2)),
    "strided": Conv((2, 24, 15, 17), 10, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "strided-even": Conv((2, 24, 14, 16), 10, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "first-layer": Conv((1, 3, 33, 35), 18, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    "dilated-strided": Conv((1, 19, 23, 29), 6, (3, 3), strides=(2, 3), dilations=(3, 2), pads=(3, 1, 4, 2)),
    "wide-stride": Conv((1, 18, 20, 40), 6, (2, 2), strides=(3, 5)),
    "pads-beyond-window": Conv((1, 16, 5, 6), 4, (2, 2), pads=(3, 4, 2, 5)),
    "groups": Conv((2, 36, 9, 10), 18, (3, 3), strides=(2, 1), pads=(1, 1, 1, 1), groups=3),
    "one-axis": Conv((2, 9, 67), 5, (5,), strides=(2,), pads=(2, 2)),
    "one-axis-strided": Conv((2, 17, 131), 9, (4,), strides=(4,), pads=(1, 3)),
    "long-row": Conv((1, 16, 3, 700), 6, (3, 3), pads=(1, 1, 1, 1)),
    "three-axes": Conv((2, 17, 9, 8, 9), 5, (3, 3, 3), strides=(2, 1, 2), pads=(1, 1, 1, 2, 1, 1)),
    "one-filter": Conv((1, 33, 10, 20), 1, (3, 3), strides=(1, 2)),
    "several-tasks-of-filters": Conv((1, 130, 7, 7), 194, (3, 3), pads=(1, 1, 1, 1)),
    "depthwise": Conv((3, 10, 19, 21), 10, (3, 3), pads=(1, 1, 1, 1), groups=10),
    "depthwise-strided": Conv((2, 9, 15, 18), 9, (3, 5), strides=(2, 3), pads=(1, 2, 1, 0), dilations=(2, 1), groups=9),
    "depthwise-long-row": Conv((1, 5, 2, 9000), 5, (2, 3), pads=(0, 1, 1, 1), groups=5),
    "few-channels": Conv((2, 6, 7, 9), 15, (3, 1), pads=(1, 0, 1, 0), groups=3),
    "one-axis-depthwise": Conv((2, 40, 50), 80, (31,), pads=(15, 15), groups=40),
    "three-axes-depthwise": Conv((2, 4, 6, 7, 9), 8, (3, 2, 3), strides=(2, 1, 2), pads=(1, 1, 1, 2, 1, 1), groups=4),
    "blocks-of-rows": Conv((2, 70, 50, 57), 11, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
}


@needs_compiler
@pytest.mark.optimised
@pytest.mark.parametrize("channels", [2, 4, 8])
def test_few_channels_of_many_filters(channels: int) -> None:
    """gcc 12 left out the copies of a weight whose taps lie between each other, where several threads might make them."""
    x, weight, y = "tensor<1x512x3x3xf32>", f"tensor<512x{channels}x3x3xf32>", f"tensor<1x{channels}x7x7xf32>"
    text = f"""func.func @main(%x: {x}, %w: {weight}) -> {y} {{
      %0 = graph.conv_transpose %x, %w {{strides = array<i64: 2, 2>}} : ({x}, {weight}) -> {y}
      func.return %0 : {y}
    }}"""
    rng = np.random.default_rng(channels)
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((1, 512, 3, 3), (512, channels, 3, 3))]
    program = fuse_opt.compile(text)
    assert program.implementations == {"fuse.conv": 1}
    np.testing.assert_allclose(program(*arrays), fuse_opt.evaluate(text, *arrays), 1e-4, 1e-3)


@dataclass(frozen=True)
class Gradient:
    """A program of the gradient of a convolution by its weight, or by its input, with a pointwise op behind."""

    of: Conv
    by_weight: bool

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        x, weight, _, grad = self.of.shapes
        return [grad, x, weight] if self.by_weight else [grad, weight, x]

    @property
    def text(self) -> str:
        a, b, y = (f"tensor<{'x'.join(map(str, shape))}x{self.of.element}>" for shape in self.shapes)
        name, extra = ("weight", "kernel_shape") if self.by_weight else ("data", "shape")
        attributes = {name: integers(values) for name, values in self.of.lists.items()}
        attributes |= {"groups": f"{self.of.groups} : i64", extra: integers(self.shapes[2][2:])}
        written = ", ".join(f"{key} = {value}" for key, value in attributes.items())
        return f"""
func.func @main(%a: {a}, %b: {b}, %c: {y}) -> {y} {{
  %g = graph.conv_backward_{name} %a, %b {{{written}}} : ({a}, {b}) -> {y}
  %y = graph.subtract %c, %g : ({y}, {y}) -> {y}
  func.return %y : {y}
}}"""

    def arguments(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        found = [np.asarray(rng.standard_normal(shape)) for shape in self.shapes]
        kind = self.of.element
        return [encode(x, kind) if kind == "bf16" else x.astype({"f32": "f4", "f64": "f8"}[kind]) for x in found]

    def check(self) -> None:
        arguments = self.arguments()
        program, wanted = fuse_opt.compile(self.text), evaluate(parse(self.text), arguments)[0]
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [CONV], self
        assert program.stats.library_calls == 0
        close(program(*arguments), wanted, self.of.element)


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    Gradient(CASES[name], True).check()
    Gradient(CASES[name], False).check()


LITTLE = ",".join(f"{name}{{scratch=little}}" if name == "schedule-kernels" else name for name in DEFAULT_PIPELINE)


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize(
    "name", [*(name for name in CASES if "strided" in name), "groups", "wide-stride", "three-axes"]
)
def test_little_scratch_memory(name: str) -> None:
    """Sums of one part, and weights where they lie: in the same order, so gradients by an input have the same bits."""
    for by_weight in (False, True):
        gradient = Gradient(CASES[name], by_weight)
        arguments = gradient.arguments()
        plain = fuse_opt.compile(gradient.text)
        program = fuse_opt.compile(gradient.text, pipeline=LITTLE)
        assert program.stats.arena_bytes == 0
        if not by_weight:
            np.testing.assert_array_equal(program(*arguments), plain(*arguments))
        close(program(*arguments), evaluate(parse(gradient.text), arguments)[0], "f32")


@needs_compiler
def test_parts_of_sums_take_memory() -> None:
    gradient = Gradient(Conv((2, 128, 4, 4), 128, (3, 3), pads=(1, 1, 1, 1)), True)
    sizes = [fuse_opt.compile(gradient.text, pipeline=each).stats.arena_bytes for each in (None, LITTLE)]
    assert sizes == [2 * 4 * 128 * 128 * 9, 0]


@needs_compiler
def test_other_floats() -> None:
    """Narrow ones are widened where the weight's taps are laid side by side."""
    for name in ("strided", "depthwise-strided"):
        Gradient(replace(CASES[name], element="f64"), True).check()
    for name in ("first-layer", "several-tasks-of-filters", "depthwise"):
        Gradient(replace(CASES[name], element="bf16"), True).check()
    for name, element in (("strided", "f64"), ("pointwise-strided", "bf16"), ("groups", "bf16")):
        Gradient(replace(CASES[name], element=element), False).check()


def random_case(rng: random.Random) -> Conv:
    while True:
        axes = rng.choice((1, 2, 2, 3))
        limit = {1: 60, 2: 17, 3: 8}[axes]
        spatial = tuple(rng.randint(1, limit) for _ in range(axes))
        window = tuple(rng.randint(1, min(4, n + 2)) for n in spatial)
        strides = tuple(rng.choice((1, 2, 2, 3)) for _ in spatial)
        dilations = tuple(rng.choice((1, 1, 2, 3)) for _ in spatial)
        pads = tuple(rng.choice((0, 1, 2)) for _ in range(2 * axes))
        groups = rng.choice((1, 1, 2))
        reaches = zip(spatial, window, dilations, pads[:axes], pads[axes:], strict=True)
        if any(n + b + e <= d * (k - 1) for n, k, d, b, e in reaches):
            continue
        x = (rng.choice((1, 2, 3)), groups * rng.choice((1, 2, 8, 16, 33, 70)), *spatial)
        return Conv(x, groups * rng.choice((1, 3, 14, 17)), window, strides, pads, dilations, groups)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(11)
    for number in range(scaled(6)):
        case = Gradient(random_case(rng), number % 2 == 0)
        program, arguments = fuse_opt.compile(case.text), case.arguments(number)
        wanted = evaluate(parse(case.text), arguments)[0]
        with guarded() as allocate:
            given = [allocate(array, at_end=number % 3 > 0) for array in arguments]
            out = allocate(np.zeros_like(wanted), at_end=number % 3 > 0)
            program(*given, out=out)
            close(out, wanted, case.of.element)
            del given, out


@needs_compiler
def test_threads_change_no_bit() -> None:
    for name in ("blocks-of-rows", "first-layer", "several-tasks-of-filters", "depthwise"):
        for by_weight in (True, False):
            case = Gradient(CASES[name], by_weight)
            program, arguments = fuse_opt.compile(case.text), case.arguments()
            results = by_threads(partial(program, *arguments))
            for result in results[1:]:
                np.testing.assert_array_equal(decode(result), decode(results[0]))


@needs_compiler
def test_positions_outside_of_the_input_do_not_count() -> None:
    """Not even with infinite gradients there: what is not of the input is no element, though code may hold a zero."""
    case = Gradient(CASES["strided"], False)
    grad, weight, kept = case.arguments()
    grad[0, 0, 0, 0] = np.inf
    wanted = evaluate(parse(case.text), [grad, weight, kept])[0]
    found = fuse_opt.compile(case.text)(grad, weight, kept)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))


def _problem(text: str) -> str | None:
    op = next(op for op in parse(text).walk() if isinstance(op, OpaqueOp))
    found = conv_problem(op)
    return None if found is None else found.code


def test_what_is_not_generated_says_why() -> None:
    many = Conv((1, 1, 900, 900), 2, (2, 2), dilations=(400, 400))
    assert _problem(Gradient(many, True).text) == "large-copy"
    assert _problem(Gradient(Conv((1, 16, 150), 2, (140,)), True).text) == "large-window"
    assert _problem(Gradient(Conv((1, 16, 150), 2, (140,), strides=(2,)), False).text) == "large-window"
    assert _problem(Gradient(Conv((1, 16, 40), 2, (3,), strides=(17,)), False).text) == "large-window"
    wide = Conv((1, 16, 900, 900), 2, (3, 3), dilations=(400, 400))
    assert _problem(Gradient(wide, True).text) == "large-copy"
