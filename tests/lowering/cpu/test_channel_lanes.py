"""Depthwise convolutions whose vectors are of channels: the reference's values, and nothing else is touched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, check_guarded, in_orders, turned
from guard_pages import needs_guard_pages
from ir_testing import graph_ops, kernels, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.convolutions import CONV
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.lowering.cpu.convolution.tilings.lane_tiling import lane_tiling


def depthwise(batch: int, channels: int, *spatial: int, k: int = 3, s: int = 1, p: int = 1, d: int = 1) -> Conv:
    axes = len(spatial)
    return Conv((batch, channels, *spatial), channels, (k,) * axes, (s,) * axes, (p,) * 2 * axes, (d,) * axes, channels)


CASES = {
    "same": depthwise(2, 37, 9, 11),
    "strided": depthwise(2, 48, 17, 18, s=2),
    "few-positions": depthwise(1, 960, 7, 7),
    "five": depthwise(1, 20, 10, 12, k=5, p=2),
    "dilated-strided": depthwise(1, 33, 19, 23, s=2, d=3, p=3),
    "wide-steps": depthwise(1, 16, 19, 23, k=2, s=3, p=0),
    "one-axis": depthwise(2, 40, 67, k=4),
    "three-axes": depthwise(1, 17, 5, 6, 7, s=2),
    "rows-in-parts": depthwise(1, 130, 40, 41),
}


@pytest.mark.sampled(3)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_channels_side_by_side(name: str) -> None:
    other = (("f32", False), ("f64", True), ("f16", False))[list(CASES).index(name) % 3]
    for number, (element, x_last) in enumerate((("f32", True), other)):
        case = replace(CASES[name], element=element)
        program = fuse_opt.compile(in_orders(case, x_last))
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [CONV]
        assert program.conversions == (0, 0) and "fo_lanes" in program.source
        check_guarded(program, case, x_last, number == 0)


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = CASES["rows-in-parts"]
    x, *others, residual = case.arguments()
    program = fuse_opt.compile(in_orders(case, True))
    results = by_threads(lambda: np.array(program(turned(x), *others, turned(residual))), (1, 2, 4))
    assert all(np.array_equal(result, results[0]) for result in results)


def test_long_rows_are_left_to_other_orders() -> None:
    case = depthwise(1, 32, 20000)
    program = fuse_opt.compile(in_orders(case, True))
    assert program.conversions[0] > 0 and "fo_lanes" not in program.source


def test_work_is_cut_into_tasks() -> None:
    (op,) = (op for op in graph_ops(parse(in_orders(CASES["rows-in-parts"], True))) if isinstance(op, OpaqueOp))
    of = op.window_contraction()
    assert of is not None and np.prod(lane_tiling(of.merged(), 4).blocks) > 1
