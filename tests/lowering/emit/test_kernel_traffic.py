"""Which buffers kernels read and write: what helpers write to for them, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse
from lowered_programs import as_list, needs_compiler
from traffic import faults

import fuse_opt
from fuse_opt.lowering.c.headers.functions import helper_names, is_helper_target
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import Segment
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

DEPTHWISE = (
    """func.func @main(%x: tensor<1x16x14x14xf32>, %w: tensor<16x1x3x3xf32>) -> (X, C) {
  %a = graph.exp %x : (X) -> X
  %m = graph.sum %a {axes = array<i64: 0, 2, 3>, keepdims = true} : (X) -> S
  %b = graph.subtract %a, %m : (X, S) -> X
  %c = graph.conv %b, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>,
      groups = 16 : i64} : (X, tensor<16x1x3x3xf32>) -> X
  %s = graph.sum %c {axes = array<i64: 0, 2, 3>, keepdims = false} : (X) -> C
  func.return %c, %s : X, C
}""".replace("X", "tensor<1x16x14x14xf32>")
    .replace("S", "tensor<1x16x1x1xf32>")
    .replace("C", "tensor<16xf32>")
)
FEW_ROWS = (
    """func.func @main(%x: X, %v: W, %w: W) -> (X, R) {
  %a = graph.matmul %x, %v : (X, W) -> X
  %b = graph.matmul %a, %w : (X, W) -> X
  %s = graph.sum %b {axes = array<i64: 1>, keepdims = false} : (X) -> R
  func.return %b, %s : X, R
}""".replace("X", "tensor<2x640xf32>")
    .replace("W", "tensor<640x640xf32>")
    .replace("R", "tensor<2xf32>")
)
LANES = (
    """func.func @main(%x: X, %w: tensor<64x1x3x3xf32>) -> C {
  %y = graph.permute_dims %x {axes = array<i64: 0, 3, 1, 2>} : (X) -> Y
  %c = graph.conv %y, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>,
      groups = 64 : i64} : (Y, tensor<64x1x3x3xf32>) -> Y
  %z = graph.permute_dims %c {axes = array<i64: 0, 2, 3, 1>} : (Y) -> X
  %s = graph.sum %z {axes = array<i64: 0, 1, 2>, keepdims = false} : (X) -> C
  func.return %s : C
}""".replace("X", "tensor<1x12x12x64xf32>")
    .replace("Y", "tensor<1x64x12x12xf32>")
    .replace("C", "tensor<64xf32>")
)
PROGRAMS = {"planes": DEPTHWISE, "streamed rows": FEW_ROWS, "lanes of channels": LANES}


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_launch_reads_was_written_by_one_before(name: str) -> None:
    assert not list(faults(build_program(apply(parse(PROGRAMS[name]), list(DEFAULT_PIPELINE)))))


@needs_compiler
def test_a_launch_that_comes_too_early_is_found() -> None:
    program = build_program(apply(parse(FEW_ROWS), list(DEFAULT_PIPELINE)))
    (segment,) = program.steps
    assert isinstance(segment, Segment)
    ((loop,),) = segment.phases
    (bundle,) = loop.bundles
    early = replace(segment, phases=((replace(loop, bundles=(bundle[::-1],)),),))
    assert any("nobody wrote" in fault for fault in faults(replace(program, steps=(early,))))
    beside = replace(segment, phases=(tuple(replace(loop, bundles=((launch,),)) for launch in bundle),))
    assert any("another loop of its phase" in fault for fault in faults(replace(program, steps=(beside,))))
    none = replace(segment, phases=())
    assert any("never written" in fault for fault in faults(replace(program, steps=(none,))))


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_reads_the_results_of_helpers_comes_after_them(name: str) -> None:
    program, rng = fuse_opt.compile(PROGRAMS[name]), np.random.default_rng(3)
    given = [rng.standard_normal(argument.shape).astype(np.float32) for argument in program.signature.arguments]
    wanted = evaluate(parse(PROGRAMS[name]), given)
    for one, other in zip(as_list(program(*given)), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3 * float(np.abs(other).max()))


@pytest.mark.parametrize(
    ("helper", "targets"),
    [
        ("fo_plane_f32_3x3s1x1", {6}),
        ("fo_streamed_f32_f32_2", {9}),
        ("fo_lanes_f32_9", {9}),
        ("fo_dots_f32_9", {10}),
        ("fo_tile_f32_14x32", {7}),
        ("fo_widen_i1", {2}),
        ("fo_prefetch_f32", set[int]()),
        ("unknown", set(range(20))),
    ],
)
def test_what_helpers_write_to_is_what_their_definitions_say(helper: str, targets: set[int]) -> None:
    assert {place for place in range(20) if is_helper_target(helper, place)} == targets


def test_every_helper_has_a_definition_with_parameters() -> None:
    for name in helper_names():
        assert not is_helper_target(name, 99)
