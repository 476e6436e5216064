"""Max pooling of images of any extents: what is around them is the nearest element, which no window is without."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import assert_same_bits, parse, text_of
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

WINDOWS = {
    "3x3 by twos": ("kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>", True),
    "wide zeros": ("kernel_shape = array<i64: 3, 4>, pads = array<i64: 2, 3, 1, 2>", True),
    "behind alone": (
        "kernel_shape = array<i64: 2, 3>, pads = array<i64: 0, 0, 1, 2>, strides = array<i64: 1, 3>",
        True,
    ),
    "with gaps": (
        "kernel_shape = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 2, 2>",
        False,
    ),
}
"""Attributes, and whether the nearest element is in each window."""
SIZES = ((3, 3), (5, 18), (9, 4), (6, 35))


def program_text(attributes: str) -> str:
    kind = "tensor<?x2x?x?xf32>"
    return f"""func.func @main(%x: {kind} {{graph.dims = ["b", "", "h", "w"]}}) -> {kind} {{
  %0 = graph.max_pool %x {{{attributes}}} : ({kind}) -> {kind}
  func.return %0 : {kind}
}}"""


@needs_compiler
@pytest.mark.parametrize("name", WINDOWS)
def test_values_are_those_of_padding_below_all(name: str) -> None:
    attributes, is_nearest = WINDOWS[name]
    text, rng = program_text(attributes), np.random.default_rng(2911)
    program = fuse_opt.compile(text)
    for batch, (height, width) in enumerate(SIZES, 1):
        shape = (batch, 2, height, width)
        x = rng.choice(np.array([-np.inf, -2, 0, 3, np.nan], np.float32), shape, p=[0.6, *[0.1] * 4])
        assert_same_bits(as_list(program(x)), as_list(fuse_opt.evaluate(text, x)))
    if not is_nearest:  # windows with gaps are refused where extents are sizes
        return
    with sizes_asked_for():
        run_pipeline(module := parse(text), make_passes("infer-shapes{symbols=true},decompose"), make_context())
    assert 'mode = "edge"' in text_of(module)
