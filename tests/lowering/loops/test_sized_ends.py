"""Loops whose conditions change at sizes: one loop for each stretch, the same results for all extents."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt


def dims(*names: str) -> str:
    named = ", ".join(f'"{name}"' for name in names)
    return f"tensor<{'?x' * len(names)}f32> {{graph.dims = [{named}]}}"


ROWS = "tensor<?x?xf32>"
JOINED = f"""func.func @main(%x: {dims("m", "n")}, %y: {dims("m", "k")}) -> {ROWS} {{
  %0 = graph.concat %x, %y {{axis = 1 : i64}} : ({ROWS}, {ROWS}) -> {ROWS}
  func.return %0 : {ROWS}
}}"""
THREE = f"""func.func @main(%x: {dims("m", "n")}, %y: {dims("m", "k")}) -> {ROWS} {{
  %0 = graph.concat %x, %y, %x {{axis = 1 : i64}} : ({ROWS}, {ROWS}, {ROWS}) -> {ROWS}
  func.return %0 : {ROWS}
}}"""
PADDED = f"""func.func @main(%x: {dims("m", "n")}) -> {ROWS} {{
  %0 = graph.pad %x {{pads = array<i64: 0, 3, 0, 20>, value = 1.5 : f64}} : ({ROWS}) -> {ROWS}
  func.return %0 : {ROWS}
}}"""
WINDOWS = """func.func @main(%x: tensor<?x2x?xf32> {graph.dims = ["m", "", "n"]}) -> tensor<?x2x?xf32> {
  %0 = graph.max_pool %x {kernel_shape = array<i64: 3>, strides = array<i64: 2>, pads = array<i64: 1, 1>}
    : (tensor<?x2x?xf32>) -> tensor<?x2x?xf32>
  func.return %0 : tensor<?x2x?xf32>
}"""
OVER_PADS = f"""func.func @main(%x: {dims("m", "n")}, %y: {dims("m", "k")}) -> {ROWS} {{
  %0 = graph.concat %x, %y {{axis = 1 : i64}} : ({ROWS}, {ROWS}) -> {ROWS}
  %1 = graph.pad %0 {{pads = array<i64: 0, 2, 0, 30>, value = 0.5 : f64}} : ({ROWS}) -> {ROWS}
  func.return %1 : {ROWS}
}}"""
TEXTS = {"joined": JOINED, "three": THREE, "padded": PADDED, "windows": WINDOWS, "over_pads": OVER_PADS}


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", TEXTS)
def test_the_same_for_all_extents(name: str) -> None:
    """And nothing outside of the arrays is read."""
    program, module, rng = fuse_opt.compile(TEXTS[name]), fuse_opt.load(TEXTS[name]), np.random.default_rng(5)
    for n in (1, 2, 7, 15, 16, 17, 31, 33, 64, 101):
        for k in (1, 16, 40):
            given = [
                rng.standard_normal((3, 2, length) if name == "windows" else (3, length)).astype(np.float32)
                for length in (n, k)
            ][: TEXTS[name].count("%y:") + 1]
            with guarded() as allocate:
                found = program(*(allocate(array, at_end=n % 2 == 0) for array in given))
            assert np.array_equal(found, fuse_opt.evaluate(module, *given)), (n, k)


@needs_compiler
@pytest.mark.parametrize(("name", "stretches"), [("joined", 2), ("three", 3), ("padded", 3), ("over_pads", 4)])
def test_no_stretch_has_conditions_where_the_order_of_ends_is_known(name: str, stretches: int) -> None:
    """Nothing is read, or looked at where it is, but by what masks the last vector of a stretch."""
    program = fuse_opt.compile(TEXTS[name])
    program(*(np.ones((2, 7), np.float32) for _ in range(TEXTS[name].count(f"{ROWS[:-1]}> {{graph.dims"))))
    text = program.source
    body = text[text.index("static void kernel") : text.index("typedef void (*fuse_parallel_for_t)")]
    assert len(re.findall(r"for \(long i\w* = ", body)) == stretches
