"""Convolutions by tiles of 2x2 positions: the reference's values, in both orders, and nothing else is touched."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, check_guarded, close, in_orders, sized_text
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, kernels, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.conv_kernels import WINOGRAD
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

CHOOSE = 'select-implementation{numerics=finite prefer="fuse.conv_winograd"}'
TILES = [CHOOSE if name == "select-implementation" else name for name in DEFAULT_PIPELINE]
UNPACKED = [name for name in TILES if name != "pack-weights"]
SAME = (1, 1, 1, 1)
CASES = {
    "even": Conv((1, 32, 8, 6), 64, (3, 3), pads=SAME),
    "odd, two samples": Conv((2, 17, 7, 9), 33, (3, 3), pads=SAME),
    "no pads": Conv((1, 16, 6, 7), 130, (3, 3)),
    "uneven pads": Conv((1, 20, 9, 5), 16, (3, 3), pads=(2, 0, 1, 3)),
    "one row": Conv((1, 70, 3, 20), 20, (3, 3)),
}

BIAS_RELU = """  %a = graph.add %p, %b : (T, B) -> T
  %y = graph.relu %a : (T) -> T
"""
SIZED = {
    "same": Conv((1, 32, 8, 8), 70, (3, 3), pads=SAME, epilogue=BIAS_RELU),
    "uneven pads": Conv((1, 17, 8, 8), 16, (3, 3), pads=(2, 0, 1, 3), epilogue=BIAS_RELU),
    "no pads, many channels": Conv((1, 260, 8, 8), 40, (3, 3), epilogue=BIAS_RELU),
}
"""Whose batch, heights and widths are symbols; those that are written are of no matter."""


def compiled(text: str, pipeline: list[str] = TILES) -> fuse_opt.CompiledProgram:
    program = fuse_opt.compile(text, pipeline=pipeline)
    found = [kernel.schedule_kind() for kernel in kernels(program.module)]
    assert WINOGRAD in found and program.stats.library_calls == 0, found
    return program


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    for pipeline in (TILES, UNPACKED):
        close(
            compiled(case.frozen_text, pipeline)(*case.arguments()),
            evaluate(parse(case.text), case.arguments())[0],
            "f32",
        )


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(3)
    for x_last, y_last in ((False, False), (True, True)):
        extents, pad = (rng.randint(3, 12), rng.randint(3, 12)), rng.randint(0, 1)
        case = Conv((rng.choice((1, 2)), rng.randint(16, 50), *extents), rng.randint(16, 90), (3, 3), pads=(pad,) * 4)
        if np.prod(case.result[2:]) < 4:
            case = replace(case, pads=SAME)
        program = compiled(in_orders(case, x_last, frozen=True, y_last=y_last))
        check_guarded(program, case, x_last, rng.random() < 0.5, y_last)


@pytest.mark.sampled(1)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", SIZED)
def test_values_of_images_of_any_extents(name: str) -> None:
    """Of one tile, of many blocks, and of parts of rows; and nothing beside operands and results is touched."""
    for pipeline in (TILES, UNPACKED):
        program, rng = fuse_opt.compile(sized_text(SIZED[name]), pipeline=pipeline), random.Random(name)
        drawn = [(rng.randint(1, 3), rng.randint(3, 40), rng.randint(3, 150)) for _ in range(4)]
        for batch, *extents in ((1, 3, 4), (2, 4, 3), (1, 13, 65), *drawn):
            case = replace(SIZED[name], x=(batch, SIZED[name].x[1], *extents))
            *given, result = case.arguments()
            wanted = evaluate(parse(case.text), [*given, result])[0]
            with guarded() as allocate:
                placed = [allocate(each, at_end=rng.random() < 0.5) for each in given]
                out = allocate(np.zeros_like(result), at_end=rng.random() < 0.5)
                program(*placed, out=[out])
                close(np.array(out), wanted, "f32")
                del placed, out
        assert "transformed[" in program.source


@needs_compiler
def test_threads_change_no_bit_of_images_of_any_extents() -> None:
    program = fuse_opt.compile(sized_text(SIZED["same"]), pipeline=TILES)
    for extents in ((1, 9, 9), (2, 30, 71)):
        *given, _ = replace(SIZED["same"], x=(extents[0], 32, *extents[1:])).arguments()
        results = by_threads(lambda given=given: program(*given).copy(), (1, 2, 5))
        assert all(np.array_equal(result, results[0]) for result in results)


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = Conv((1, 48, 22, 13), 150, (3, 3), pads=SAME)
    program, arguments = compiled(case.frozen_text), case.arguments()
    results = by_threads(lambda: program(*arguments).copy(), (1, 2, 5))
    assert all(np.array_equal(result, results[0]) for result in results)


@needs_compiler
def test_errors_are_no_larger_than_those_of_direct_sums() -> None:
    for channels in (50, 300):
        case = Conv((1, channels, 10, 11), 32, (3, 3), pads=SAME, epilogue="")
        arguments = case.arguments(channels)
        exact = evaluate(parse(case.text.replace("f32", "f64")), [a.astype(np.float64) for a in arguments])[0]
        errors = [
            np.square(program(*arguments) - exact).mean()
            for program in (compiled(case.frozen_text), fuse_opt.compile(case.frozen_text))
        ]
        assert errors[0] <= errors[1], (channels, errors)


@needs_compiler
def test_what_is_not_finite_reaches_the_windows_that_have_it_alone() -> None:
    case = Conv((1, 16, 8, 9), 16, (3, 3), pads=SAME, epilogue="")
    program, arguments = compiled(case.frozen_text), case.arguments()
    for value in (np.nan, np.inf):
        for row, column in ((0, 0), (3, 3), (3, 4), (4, 3), (4, 4), (7, 8)):
            x = arguments[0].copy()
            x[0, 5, row, column] = value
            expected = evaluate(parse(case.text), [x, *arguments[1:]])[0]
            assert np.array_equal(np.isfinite(program(x, *arguments[1:])), np.isfinite(expected)), (value, row, column)


def test_it_is_chosen_where_results_need_be_right_of_finite_values_alone() -> None:
    text = Conv((1, 64, 28, 28), 64, (3, 3), pads=SAME).frozen_text
    strict, finite = fuse_opt.optimize(text), fuse_opt.optimize(text, TILES)
    named = [[k.implementation.data for k in kernels(m) if k.implementation] for m in (strict, finite)]
    assert "fuse.conv" in named[0] and "fuse.conv_winograd" in named[1]
    fuse_opt.optimize(finite)  # what is written is kept, whatever is taken by default
    assert "fuse.conv_winograd" in [k.implementation.data for k in kernels(finite) if k.implementation]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (Conv((1, 32, 9, 9), 32, (3, 3), strides=(2, 2)), "stride"),
        (Conv((1, 32, 9, 9), 32, (3, 3), dilations=(1, 2)), "dilation"),
        (Conv((1, 32, 9, 9), 32, (3, 3), groups=2), "groups"),
        (Conv((1, 32, 9, 9), 32, (3, 2)), "window"),
        (Conv((1, 32, 9, 9), 32, (3, 3)), "not-frozen"),
        (Conv((1, 15, 9, 9), 32, (3, 3)), "few-channels"),
        (Conv((1, 32, 9, 9), 32, (3, 3), element="f64"), "element-type"),
    ],
)
def test_what_it_does_not_take(case: Conv, code: str) -> None:
    marked = case.frozen_text.replace("groups", 'use_implementation = "fuse.conv_winograd", groups', 1)
    with pytest.raises(fuse_opt.InputError, match=f'"fuse.conv_winograd" refuses it: {code}'):
        fuse_opt.optimize(marked if code != "not-frozen" else marked.replace(" {graph.frozen}", ""), TILES)


@needs_compiler
def test_a_weight_that_is_written_to_is_transformed_again() -> None:
    case = CASES["even"]
    x, w, b, r = case.arguments()
    program = compiled(case.frozen_text)
    program(x, w, b, r)
    w *= 2
    close(program(x, w, b, r), evaluate(parse(case.text), [x, w, b, r])[0], "f32")
