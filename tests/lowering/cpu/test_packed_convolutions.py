"""Convolutions whose filters are packed once: the reference's values at every width, and nothing else is touched."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, close
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

ALL_PACKED = [name.replace("pack-weights", "pack-weights{smallest-bytes=0}") for name in DEFAULT_PIPELINE]
CASES = {
    "pointwise-7x7": Conv((1, 70, 7, 7), 130, (1, 1)),
    "pointwise-14x14": Conv((2, 64, 14, 14), 33, (1, 1)),
    "same-7x7": Conv((1, 20, 7, 7), 100, (3, 3), pads=(1, 1, 1, 1)),
    "same-13x11": Conv((2, 9, 13, 11), 50, (3, 3), pads=(1, 1, 1, 1)),
    "valid-in-place": Conv((1, 17, 9, 12), 65, (3, 3)),
    "strided": Conv((1, 12, 15, 14), 40, (3, 3), strides=(2, 2), pads=(1, 1, 0, 1)),
    "pointwise-strided": Conv((1, 70, 15, 14), 80, (1, 1), strides=(2, 2)),
    "dilated": Conv((1, 12, 12, 11), 24, (3, 2), dilations=(2, 3), pads=(2, 1, 2, 2)),
    "one-axis": Conv((2, 40, 67), 33, (5,), pads=(2, 2)),
    "one-axis-long-window": Conv((1, 3, 80), 50, (40,), pads=(7, 9)),
    "few-positions": Conv((1, 70, 3, 3), 40, (3, 3), pads=(1, 1, 1, 1)),
    "fewest-positions": Conv((2, 70, 2, 2), 33, (1, 1)),
    "few-filters": Conv((1, 70, 6, 7), 17, (1, 1)),
    "many-channels": Conv((1, 1100, 5, 6), 20, (3, 1), pads=(1, 0, 1, 0)),
    "many-taps": Conv((1, 2, 16, 16), 18, (16, 16), pads=(4, 4, 4, 4)),
}


def compiled(case: Conv) -> fuse_opt.CompiledProgram:
    program = fuse_opt.compile(case.frozen_text, pipeline=ALL_PACKED)
    assert program.stats.prepared_bytes >= case.arguments()[1].nbytes and program.stats.library_calls == 0, case
    return program


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_packed_convolutions(name: str) -> None:
    for element, epilogue in (("f32", CASES[name].epilogue), ("f64", "")):
        case = replace(CASES[name], element=element, epilogue=epilogue)
        close(compiled(case)(*case.arguments()), evaluate(parse(case.text), case.arguments())[0], element)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(7)
    for number in range(scaled(4)):
        window, stride, pad = (rng.randint(1, 3), rng.randint(1, 4)), rng.choice((1, 1, 2)), rng.randint(0, 1)
        extents = rng.randint(8, 15), rng.randint(8, 15)
        channels = -(-rng.randint(64, 300) // (window[0] * window[1]))  # of 64 terms or more
        case = Conv(
            (rng.choice((1, 2)), channels, *extents), rng.randint(16, 150), window, (stride,) * 2, (pad,) * 4,
            element=rng.choice(("f32", "f64")),
        )  # fmt: skip
        if np.prod(case.result[2:]) < 16:
            continue
        program, arguments = compiled(case), case.arguments(number)
        wanted = evaluate(parse(case.text), arguments)[0]
        with guarded() as allocate:
            given = [allocate(array, at_end=number % 3 > 0) for array in arguments]
            out = allocate(np.zeros_like(wanted), at_end=number % 3 > 0)
            program(*given, out=out)
            close(out, wanted, case.element)
            del given, out


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = Conv((2, 70, 14, 13), 150, (3, 3), pads=(1, 1, 1, 1))
    program, arguments = compiled(case), case.arguments()
    results = by_threads(lambda: program(*arguments).copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@needs_compiler
def test_errors_are_no_larger_than_those_of_a_library() -> None:
    case = Conv((1, 300, 9, 11), 64, (3, 3), epilogue="")
    x, w, *_ = arguments = case.arguments(3)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    unfolded = np.ascontiguousarray(windows.transpose(0, 3, 4, 1, 2)).reshape(300 * 9, -1)
    exact = w.reshape(64, -1).astype(np.float64) @ unfolded.astype(np.float64)
    ours = compiled(case)(*arguments).reshape(64, -1) - exact
    assert np.square(ours).mean() <= 1.2 * np.square(w.reshape(64, -1) @ unfolded - exact).mean()


@needs_compiler
def test_a_weight_that_is_written_to_is_packed_again() -> None:
    case = CASES["same-7x7"]
    x, w, b, r = case.arguments()
    program = compiled(case)
    first = program(x, w, b, r).copy()
    w *= 2
    second = program(x, w, b, r)
    close(second, evaluate(parse(case.text), [x, w, b, r])[0], "f32")
    assert not np.array_equal(first, second)
