"""Convolutions of images of any extents whose filters are packed: values, bits, and what lies around."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, close, sized_text
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.packed_panels import sized_block
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

NARROW = "pack-weights{smallest-bytes=0 device=avx2}"
ALL_PACKED = [NARROW if name == "pack-weights" else name for name in DEFAULT_PIPELINE]
BIAS_RELU = """  %a = graph.add %p, %b : (T, B) -> T
  %y = graph.relu %a : (T) -> T
"""
SAME = (1, 1, 1, 1)
CASES = {
    "pointwise": Conv((1, 70, 8, 8), 130, (1, 1)),
    "pointwise-strided": Conv((1, 70, 8, 8), 30, (1, 1), strides=(2, 3)),
    "same": Conv((1, 20, 8, 8), 100, (3, 3), pads=SAME),
    "strided": Conv((1, 12, 8, 8), 40, (3, 3), strides=(2, 2), pads=(1, 1, 0, 1)),
    "large-window": Conv((1, 9, 8, 8), 32, (7, 5), pads=(3, 2, 3, 2)),
    "dilated": Conv((1, 12, 12, 12), 30, (3, 2), dilations=(2, 3), pads=(2, 1, 2, 2)),
    "one-axis": Conv((1, 40, 67), 45, (5,), pads=(2, 2)),
    "many-channels": Conv((1, 500, 8, 8), 16, (3, 1), pads=(1, 0, 1, 0)),
}
"""Whose batch and extents of images are symbols; those that are written are of no matter."""


def frozen(case: Conv) -> fuse_opt.CompiledProgram:
    program = fuse_opt.compile(sized_text(case), pipeline=ALL_PACKED)
    program(*case.arguments()[:-1])  # compiled at the first call
    assert program.stats.prepared_bytes >= case.arguments()[1].nbytes and program.stats.library_calls == 0, case
    return program


def check(program: fuse_opt.CompiledProgram, case: Conv, rng: random.Random) -> None:
    """Beside pages that nobody may touch, within rounding of the reference's."""
    *given, result = case.arguments()
    wanted = evaluate(parse(case.text), [*given, result])[0]
    with guarded() as allocate:
        placed = [allocate(each, at_end=rng.random() < 0.5) for each in given]
        out = allocate(np.zeros_like(result), at_end=rng.random() < 0.5)
        program(*placed, out=[out])
        close(np.array(out), wanted, case.element)
        del placed, out


@pytest.mark.sampled(3)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_values_of_all_extents(name: str) -> None:
    """Of a single position, of every rest of a tile, of parts of rows and of many blocks."""
    rng, axes = random.Random(name), len(CASES[name].window)
    for element in ("f32", "f64"):
        case = replace(CASES[name], element=element, epilogue=BIAS_RELU)
        program = frozen(case)
        least = [d * (k - 1) + 1 for k, d in zip(case.window, case.lists["dilations"], strict=True)]
        lines = [(least[0], least[-1] + n)[-axes:] for n in range(0, 14, 1 if element == "f32" else 5)]
        drawn = [tuple(n + rng.randint(0, most) for n in least) for most in (20, 20, 90)]
        for number, extents in enumerate([*lines, *drawn]):
            check(program, replace(case, x=(1 + number % 3, case.x[1], *extents)), rng)


@needs_compiler
@needs_guard_pages
def test_random_windows() -> None:
    rng = random.Random(11)
    for number in range(scaled(3)):
        window, dilations = (rng.randint(1, 4), rng.randint(1, 5)), (rng.randint(1, 2), rng.randint(1, 2))
        least = [d * (k - 1) + 1 for k, d in zip(window, dilations, strict=True)]
        case = Conv(
            (1, rng.randint(64, 90), *(n + 2 for n in least)), rng.choice((16, 30, 47, 64)), window,
            (rng.randint(1, 3), rng.randint(1, 3)), tuple(rng.randint(0, 2) for _ in range(4)), dilations, epilogue=BIAS_RELU,
        )  # fmt: skip
        program = frozen(case)
        for most in (4, 15, 60):
            extents = [n + rng.randint(0, most) for n in least]
            check(program, replace(case, x=(rng.randint(1, 2), case.x[1], *extents)), random.Random(number))


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = replace(CASES["strided"], epilogue=BIAS_RELU)
    program = frozen(case)
    for extents in ((9, 9), (50, 71)):
        *given, _ = replace(case, x=(2, 12, *extents)).arguments()
        results = by_threads(lambda given=given: program(*given).copy(), (1, 2, 5))
        assert all(np.array_equal(result, results[0]) for result in results)


@needs_compiler
def test_an_empty_batch() -> None:
    case = replace(CASES["same"], epilogue=BIAS_RELU)
    *given, _ = replace(case, x=(0, *case.x[1:])).arguments()
    assert frozen(case)(*given).shape == (0, 100, 8, 8)


@needs_compiler
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Conv((1, 64, 8, 8), 24, (5, 3)), "panels of its 24 filters would have 8 empty columns"),
        (Conv((1, 3, 8, 8), 32, (2, 3)), "its sums are of 18 products"),
        (Conv((1, 4000, 8, 8), 32, (1, 3)), "it would copy too much of the input"),
    ],
)
def test_filters_that_are_read_as_they_are(case: Conv, reason: str) -> None:
    with collect() as remarks:
        program = fuse_opt.compile(sized_text(replace(case, epilogue=BIAS_RELU)), pipeline=ALL_PACKED)
        program(*case.arguments()[:-1])
    assert any(reason in remark.message for remark in remarks), remarks


def test_blocks_are_as_large_as_caches_hold() -> None:
    for case, positions in (
        (CASES["same"], 512),
        (CASES["many-channels"], 128),
        (Conv((1, 300, 8, 8), 16, (1, 1)), 384),
    ):
        ops = parse(sized_text(replace(case, epilogue=BIAS_RELU))).walk()
        (of,) = [op.window_contraction() for op in ops if isinstance(op, OpaqueOp)]
        assert of is not None and (block := sized_block(of.merged(), 4)) is not None
        assert block.positions == positions
