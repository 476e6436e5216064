"""Convolutions of packed filters with channels innermost: the reference's values, and nothing else is touched."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, check_guarded, in_orders, turned
from guard_pages import needs_guard_pages
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt

CASES = {
    "same": Conv((2, 5, 9, 11), 70, (3, 3), pads=(1, 1, 1, 1)),
    "collisions": Conv((1, 256, 5, 6), 33, (3, 2), pads=(1, 0, 1, 1)),
    "first-layer": Conv((2, 3, 33, 35), 18, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    "single-strided": Conv((1, 20, 13, 15), 130, (1, 1), strides=(2, 2)),
    "dilated-strided": Conv((1, 40, 14, 29), 40, (3, 3), strides=(2, 3), dilations=(3, 2), pads=(3, 1, 4, 2)),
    "three-axes": Conv((1, 3, 5, 6, 7), 20, (3, 2, 3), strides=(2, 1, 1), pads=(1, 0, 1, 1, 1, 1)),
    "one-axis": Conv((2, 70, 67), 17, (5,), pads=(2, 2)),
    "rows-in-parts": Conv((1, 64, 40, 41), 96, (3, 3), pads=(1, 1, 1, 1)),
}


def compiled(case: Conv, x_last: bool, y_last: bool = True) -> fuse_opt.CompiledProgram:
    program = fuse_opt.compile(in_orders(case, x_last, frozen=True, y_last=y_last))
    assert program.conversions == (0, 0) and program.stats.library_calls == 0
    return program


@pytest.mark.sampled(3)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_filters_in_panels(name: str) -> None:
    number = list(CASES).index(name)
    case, x_last = replace(CASES[name], element=("f32", "f32", "f64")[number % 3]), number % 4 != 2
    y_last = not x_last or number % 4 == 0
    program = compiled(case, x_last, y_last)
    assert re.search(r"fo_windows_f\d\d_\d+x\d+\(", program.source)  # no tile of a transposed operand
    check_guarded(program, case, x_last, number % 2 == 0, y_last)


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = CASES["rows-in-parts"]
    x, *others, residual = case.arguments()
    program = compiled(case, True)
    results = by_threads(lambda: np.array(program(turned(x), *others, turned(residual))), (1, 2, 4))
    assert all(np.array_equal(result, results[0]) for result in results)
