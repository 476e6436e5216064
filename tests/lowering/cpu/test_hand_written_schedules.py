"""Schedules that a person writes: of any kind and with any numbers, on any kernel, they are refused or right."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from draws import scaled
from ir_testing import apply, evaluate, parse, random_arguments
from lowered_programs import as_list, needs_compiler
from scheduled_kernels import Kernels, assert_within_bounds, lowered, normalize, permute, reduce, typed
from xdsl.utils.exceptions import DiagnosticException, VerifyException

import fuse_opt
from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

KINDS = ("pointwise", "row", "column", "split", "tile", "pack")
EXTENTS = (1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 100, 129)
DRAWN = scaled(50)
KEPT = DRAWN // 2


def random_schedule(rng: random.Random) -> str:
    entries = [f'kind = "{rng.choice(KINDS)}"']
    if rng.random() < 0.6:
        entries.append(f"splits = {rng.choice([1, 2, 3, 5, 7, 64, 1000])} : i64")
    if rng.random() < 0.5:
        entries.append(f"block = {rng.choice([1, 2, 3, 8, 31, 100, 4096])} : i64")
    rng.shuffle(entries)
    return ", ".join(entries)


def add_random(kernels: Kernels, schedule: str, rng: random.Random) -> None:
    """A transpose, a reduction, a softmax or a variance, of up to four dimensions."""
    rank = rng.randint(2, 4)
    extents = tuple(rng.choice(EXTENTS[: 12 - 3 * (rank - 2)]) for _ in range(rank))
    axes = sorted(rng.sample(range(rank), rng.randint(1, rank - 1)))
    element = rng.choice(["f32", "f32", "f64", "f16"])
    match rng.randrange(4):
        case 0:
            permute(kernels, schedule, extents, rng.sample(range(rank), rank), element)
        case 1:
            reduce(kernels, schedule, rng.choice(["sum", "max"]), extents, axes, element)
        case 2:
            normalize(kernels, schedule, extents, axes[0], element)
        case _:
            add_variance(kernels, schedule, extents, axes, "f32")


def add_variance(kernels: Kernels, schedule: str, extents: tuple[int, ...], axes: list[int], element: str) -> None:
    """As `decompose` writes it, with the mean beside it."""
    full, kept = typed(extents, element), typed([1 if k in axes else n for k, n in enumerate(extents)], element)
    reduced = (
        f"{{axes = array<i64: {', '.join(map(str, axes))}>, keepdims = true}} : (tensor<{full}>) -> tensor<{kept}>"
    )
    scale = 1 / int(np.prod([extents[axis] for axis in axes]))
    body = [
        f"%t = graph.sum %a {reduced}",
        f"%k = graph.constant dense<{scale!r}> : tensor<{element}>",
        f"%r = graph.multiply %t, %k : (tensor<{kept}>, tensor<{element}>) -> tensor<{kept}>",
        f"%d = graph.subtract %a, %r : (tensor<{full}>, tensor<{kept}>) -> tensor<{full}>",
        f"%q = graph.multiply %d, %d : (tensor<{full}>, tensor<{full}>) -> tensor<{full}>",
        f"%u = graph.sum %q {reduced}",
        f"%s = graph.multiply %u, %k : (tensor<{kept}>, tensor<{element}>) -> tensor<{kept}>",
    ]
    kernels.add(schedule, [full], body, [kept, kept])


@needs_compiler
def test_a_schedule_is_refused_or_right() -> None:
    """Those that are not refused run as one program."""
    rng, together, refused = random.Random(11), Kernels(), Counter[str]()
    for _ in range(DRAWN):
        state, schedule = rng.getstate(), random_schedule(rng)
        alone = Kernels()
        add_random(alone, schedule, rng)
        try:
            build_program(apply(parse(alone.text()), ["convert-fused-to-loops"]))
        except (DiagnosticException, VerifyException) as error:
            assert "remove the schedule" in str(error) or "remove the property" in str(error)
            refused[schedule.partition('kind = "')[2].partition('"')[0]] += 1
            continue
        if len(together.lines) < KEPT:
            rng.setstate(state)
            add_random(together, random_schedule(rng), rng)
    assert len(together.lines) == KEPT and refused["pack"]
    module = parse(together.text())
    arguments = random_arguments(module, 5)
    with np.errstate(all="ignore"):
        expected = evaluate(module, arguments)
    actual = as_list(CpuProgram(build_program(lowered(module, 1)))(*arguments))
    assert_within_bounds(actual, expected, "hand-written schedules")


@needs_compiler
@pytest.mark.parametrize(
    ("extents", "axes"), [((32, 8, 32, 64), [0, 2]), ((8, 3, 9, 33), [0, 2, 3]), ((5, 7, 40), [0, 1])]
)
def test_a_variance_over_axes_that_are_apart_is_joined_by_elements(extents: tuple[int, ...], axes: list[int]) -> None:
    """Parts are stretches of one axis; what counts when they are joined is how many elements each has."""
    written = Kernels()
    add_variance(written, 'kind = "column", splits = 3 : i64', extents, axes, "f32")
    x = (np.random.default_rng(4).standard_normal(extents) + 10).astype(np.float32)
    _, found = CpuProgram(build_program(apply(parse(written.text()), ["convert-fused-to-loops"])))(x)
    np.testing.assert_allclose(found, x.astype(np.float64).var(tuple(axes), keepdims=True), rtol=1e-5)


@needs_compiler
def test_the_schedule_that_is_chosen_for_such_a_variance_is_right() -> None:
    text = """
func.func @main(%x: tensor<32x8x32x64xf32>) -> tensor<8x64xf32> {
  %0 = graph.var %x {axes = array<i64: 0, 2>} : (tensor<32x8x32x64xf32>) -> tensor<8x64xf32>
  func.return %0 : tensor<8x64xf32>
}"""
    program = fuse_opt.compile(text, "cpu")
    x = np.random.default_rng(4).standard_normal((32, 8, 32, 64), np.float32)
    np.testing.assert_allclose(program(x), x.astype(np.float64).var((0, 2)), rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("columns", [16, 17, 1040])
def test_a_sum_of_one_element_of_f16_is_widened_and_narrowed_alone(columns: int) -> None:
    """What is narrowed by the block is itself what was widened by the block."""
    written = Kernels()
    reduce(written, 'kind = "column"', "sum", (1, columns), (0,), "f16")
    x = np.linspace(-2, 2, columns, dtype=np.float16)[None]
    (found,) = as_list(CpuProgram(build_program(apply(parse(written.text()), ["convert-fused-to-loops"])))(x))
    np.testing.assert_array_equal(found, x[0])
