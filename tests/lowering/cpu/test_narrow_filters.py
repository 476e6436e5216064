"""Convolutions whose filters are in panels of narrow vectors: the reference's values, and nothing else is touched."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, check_guarded, close, in_orders
from guard_pages import guarded, needs_guard_pages
from ir_testing import evaluate, parse
from lowered_programs import needs_compiler
from narrow_vectors import NARROW
from thread_counts import by_threads

import fuse_opt

CASES = {
    "pointwise-7x7": Conv((1, 150, 7, 7), 130, (1, 1)),
    "pointwise-14x13": Conv((2, 97, 14, 13), 33, (1, 1)),
    "pointwise-strided": Conv((1, 170, 15, 14), 80, (1, 1), strides=(2, 2)),
    "same-7x7": Conv((1, 20, 7, 7), 100, (3, 3), pads=(1, 1, 1, 1)),
    "valid-in-place": Conv((1, 17, 9, 12), 65, (3, 3)),
    "strided": Conv((1, 12, 15, 14), 40, (3, 3), strides=(2, 2), pads=(1, 1, 0, 1)),
    "one-axis": Conv((2, 40, 67), 33, (5,), pads=(2, 2)),
    "many-channels": Conv((1, 1100, 5, 6), 20, (3, 1), pads=(1, 0, 1, 0)),
}


def compiled(case: Conv) -> fuse_opt.CompiledProgram:
    program = fuse_opt.compile(case.frozen_text, pipeline=NARROW)
    assert program.stats.library_calls == 0, case
    assert re.search(r"fo_(windows|tile)_f32_[1-6]x16t?\(", program.source), case
    return program


@pytest.mark.sampled(3)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_filters_in_panels(name: str) -> None:
    case = CASES[name]
    program, arguments = compiled(case), case.arguments()
    wanted = evaluate(parse(case.text), arguments)[0]
    with guarded() as allocate:
        for at_end in (True, False):
            given = [allocate(array, at_end=at_end) for array in arguments]
            out = allocate(np.zeros_like(wanted), at_end=at_end)
            program(*given, out=out)
            close(out, wanted, "f32")
            del given, out


@pytest.mark.sampled(2)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("width", [7, 11, 13, 24])
def test_rows_of_channels(width: int) -> None:
    case = Conv((2, 33, 9, width), 70, (3, 3), pads=(1, 1, 1, 1))
    program = fuse_opt.compile(in_orders(case, True, frozen=True), pipeline=NARROW)
    assert re.search(r"fo_windows_f32_[1-6]x16\(", program.source)
    check_guarded(program, case, True, width == 11)


@needs_compiler
def test_threads_change_no_bit() -> None:
    for case in (Conv((2, 70, 14, 13), 150, (3, 3), pads=(1, 1, 1, 1)), CASES["pointwise-14x13"]):
        program, arguments = compiled(case), case.arguments()
        results = by_threads(lambda program=program, arguments=arguments: program(*arguments).copy())
        assert all(np.array_equal(result, results[0]) for result in results)


@needs_compiler
def test_errors_are_no_larger_than_those_of_a_library() -> None:
    case = replace(Conv((1, 2000, 7, 7), 64, (1, 1)), epilogue="")
    x, w, *_ = arguments = case.arguments(3)
    left, right = w.reshape(64, 2000), x.reshape(2000, 49)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    ours = compiled(case)(*arguments).reshape(64, -1) - exact
    assert np.square(ours).mean() <= 1.2 * np.square(left @ right - exact).mean()
