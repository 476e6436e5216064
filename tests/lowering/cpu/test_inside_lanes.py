"""Depthwise convolutions that read an input with channels innermost where it lies: the reference's values, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolution_cases import Conv, check_guarded, in_orders, turned
from guard_pages import needs_guard_pages
from ir_testing import graph_ops, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.lowering.cpu.convolution.tilings.inside_tiling import inside, inside_tiling, reads_inside


def depthwise(
    batch: int, channels: int, *spatial: int, k: int = 3, s: int = 1, pads: tuple[int, ...] = (1, 1, 1, 1), d: int = 1
) -> Conv:
    axes = len(spatial)
    return Conv((batch, channels, *spatial), channels, (k,) * axes, (s,) * axes, pads, (d,) * axes, channels)


CASES = {
    "same": depthwise(2, 48, 9, 11),
    "zeros-behind": depthwise(1, 32, 16, 18, s=2, pads=(0, 0, 1, 1)),
    "zeros-before": depthwise(1, 32, 13, 40, s=3, pads=(2, 1, 0, 0)),
    "few-positions": depthwise(1, 960, 7, 7),
    "five": depthwise(1, 16, 10, 12, k=5, pads=(2, 2, 2, 2)),
    "ten": depthwise(1, 16, 11, 29, k=10, pads=(4, 4, 5, 5)),
    "dilated": depthwise(1, 32, 19, 23, s=2, d=3, pads=(3, 3, 3, 3)),
    "rows-outside": depthwise(1, 16, 4, 30, k=2, pads=(3, 3, 3, 3)),
    "no-zeros": depthwise(2, 16, 9, 10, pads=(0, 0, 0, 0)),
    "one-axis": depthwise(2, 48, 67, k=4, pads=(1, 2)),
    "rows-in-parts": depthwise(1, 144, 40, 41),
}


def contraction(case: Conv) -> WindowContraction:
    (op,) = (op for op in graph_ops(parse(in_orders(case, True))) if isinstance(op, OpaqueOp))
    of = op.window_contraction()
    assert of is not None
    return replace(of.merged(), x_last=True)


@pytest.mark.sampled(7)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    element = "f64" if name in ("same", "few-positions", "dilated") else "f32"
    for number, kind in enumerate(dict.fromkeys(("f32", element))):
        case = replace(CASES[name], element=kind)
        program = fuse_opt.compile(in_orders(case, True))
        assert program.conversions == (0, 0) and "fo_inner_lanes" in program.source
        check_guarded(program, case, True, number == 0)


@needs_compiler
@pytest.mark.parametrize(
    ("case", "x_last"),
    [
        (replace(CASES["same"], element="f16"), True),
        (CASES["same"], False),
        (depthwise(1, 40, 9, 11), True),
        (depthwise(1, 64, 6, 6, k=7, pads=(3, 3, 3, 3)), True),
        (replace(depthwise(1, 16, 5, 6, 7, pads=(1,) * 6)), True),
    ],
    ids=["narrow", "turned", "channels-left-over", "mostly-outside", "three-axes"],
)
def test_others_are_copied(case: Conv, x_last: bool) -> None:
    source = fuse_opt.compile(in_orders(case, x_last)).source
    assert "fo_inner_lanes" not in source and "fo_lanes" in source


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = CASES["rows-in-parts"]
    x, *others, residual = case.arguments()
    program = fuse_opt.compile(in_orders(case, True))
    results = by_threads(lambda: np.array(program(turned(x), *others, turned(residual))), (1, 2, 4))
    assert all(np.array_equal(result, results[0]) for result in results)


def test_positions_that_are_inside() -> None:
    assert inside(contraction(CASES["same"]), 2) == (1, 10)
    assert inside(contraction(CASES["zeros-behind"]), 2) == (0, 8)
    assert inside(contraction(CASES["rows-outside"]), 1) == (3, 6)


def test_work_is_cut_into_tasks() -> None:
    of = contraction(CASES["rows-in-parts"])
    assert reads_inside(of, 4) and np.prod(inside_tiling(of, 4).blocks) > 1
