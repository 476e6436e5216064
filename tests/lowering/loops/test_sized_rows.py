"""Rows of unknown length in vectors: the same results at every length, and what of a kept row needs no masks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import assert_close, needs_compiler

import fuse_opt

X = '%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}'
SOFTMAX = f"""func.func @main({X}) -> tensor<?x?xf32> {{
  %r = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %r : tensor<?x?xf32>
}}"""
BOUNDED = SOFTMAX.replace(
    "-> tensor<?x?xf32> {", "-> tensor<?x?xf32> attributes {graph.symbols = {n = {most = 700 : i64}}} {"
)
LAYER_NORM = f"""func.func @main({X}, %w: tensor<?xf32> {{graph.dims = ["n"]}}) -> tensor<?x?xf32> {{
  %r = graph.layer_norm %x, %w : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  func.return %r : tensor<?x?xf32>
}}"""
KEPT = f"""func.func @main({X}) -> (tensor<?x?xf32>, tensor<?xf32>) {{
  %e = graph.exp %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = graph.sum %e {{axes = array<i64: 1>, keepdims = true}} : (tensor<?x?xf32>) -> tensor<?x1xf32>
  %l = graph.log %e : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %d = graph.divide %l, %s : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  %t = graph.sum %d {{axes = array<i64: 1>}} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %d, %t : tensor<?x?xf32>, tensor<?xf32>
}}"""
HALF = SOFTMAX.replace("f32", "f16")
COLUMNS = f"""func.func @main({X}) -> tensor<?xf32> {{
  %r = graph.sum %x {{axes = array<i64: 0>}} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %r : tensor<?xf32>
}}"""
DOWN = f"""func.func @main({X}) -> tensor<?x?xf32> {{
  %r = graph.softmax %x {{axis = 0 : i64}} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %r : tensor<?x?xf32>
}}"""
TEXTS = {
    "softmax": SOFTMAX,
    "bounded": BOUNDED,
    "layer_norm": LAYER_NORM,
    "kept": KEPT,
    "half": HALF,
    "columns": COLUMNS,
    "down": DOWN,
}
LENGTHS = (*range(1, 35), 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 513, 640)


def _all(results: Any) -> list[Any]:
    return [*results] if isinstance(results, tuple) else [results]


@pytest.mark.sampled(5)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", TEXTS)
def test_rows_of_every_length(name: str) -> None:
    """And nothing outside of the arrays is read."""
    text, rng = TEXTS[name], np.random.default_rng(24)
    program, module = fuse_opt.compile(text), fuse_opt.load(text)
    for n in LENGTHS:
        for m in (1, 5, 17):
            dtype = np.float16 if name == "half" else np.float32
            given = [rng.standard_normal(shape).astype(dtype) for shape in ((m, n), (n,))[: text.count("%w:") + 1]]
            expected = fuse_opt.evaluate(module, *given)
            with guarded() as allocate:
                found = program(*(allocate(array, at_end=(m + n) % 2 == 0) for array in given))
            assert_close(_all(found), _all(expected))


@needs_compiler
@pytest.mark.parametrize("text", [SOFTMAX, BOUNDED], ids=["any", "bounded"])
def test_kept_rows_are_read_in_whole_vectors(text: str) -> None:
    """A masked load of what was just stored waits long on some processors; last vectors are kept as a whole."""
    program = fuse_opt.compile(text)
    program(np.ones((2, 7), np.float32))
    loads = [line.strip() for line in program.source.splitlines() if "= kept_row[" in line]
    assert len(loads) >= 2
    for load in loads:
        before = program.source.partition(load)[0].rstrip().splitlines()[-1]
        assert not before.strip().startswith("if"), load


@needs_compiler
@pytest.mark.parametrize("name", ("softmax", "layer_norm", "columns", "down"))
def test_whole_vectors_are_loops_of_known_length(name: str) -> None:
    """Compilers see nothing left over, of which they would have code and ask for in every row."""
    text = TEXTS[name]
    program = fuse_opt.compile(text)
    program(*(np.ones(shape, np.float32) for shape in ((2, 7), (7,))[: text.count("%w:") + 1]))
    simd = re.findall(r"#pragma omp simd\n *for \(long \w+ = \w+; \w+ < (\w+);", program.source)
    assert simd
    assert not [end for end in simd if end.startswith("whole")]


@pytest.mark.sampled(12)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("multiple", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "kept", "half", "down"])
def test_rows_of_whole_vectors_have_nothing_left_over(name: str, multiple: int) -> None:
    """Lengths that are known to be multiples: what joins the last elements of others must not join the last vector again."""
    symbols = (
        f"attributes {{graph.symbols = {{m = {{multiple = {multiple} : i64}}, n = {{multiple = {multiple} : i64}}}}}}"
    )
    text, rng = TEXTS[name].replace(") {\n", f") {symbols} {{\n", 1), np.random.default_rng(2911)
    text = text.replace("-> tensor<?x?xf32> {\n", f"-> tensor<?x?xf32> {symbols} {{\n", 1)
    text = text.replace("-> tensor<?x?xf16> {\n", f"-> tensor<?x?xf16> {symbols} {{\n", 1)
    assert symbols in text
    program, module = fuse_opt.compile(text), fuse_opt.load(text)
    for times in (1, 2, 3, 5, 8, 17):
        dtype = np.float16 if name == "half" else np.float32
        n = times * multiple
        given = [rng.standard_normal(shape).astype(dtype) for shape in ((multiple, n), (n,))[: text.count("%w:") + 1]]
        wanted = _all(fuse_opt.evaluate(module, *given))
        with guarded() as allocate:
            for a, b in zip(_all(program(*(allocate(each, at_end=True) for each in given))), wanted, strict=True):
                assert_close([a], [b], [f"{name}, {n} elements"])


@needs_compiler
def test_variance_of_rows_of_sixteen_times_a_size() -> None:
    """Seed 32695: the last vector counted twice."""
    text = """func.func @main(%x: tensor<16x?x2xf32> {graph.dims = ["", "m", ""]}) -> tensor<2xf32> {
      %0 = graph.var %x {axes = array<i64: 0, 1>} : (tensor<16x?x2xf32>) -> tensor<2xf32>
      func.return %0 : tensor<2xf32>
    }"""
    program, rng = fuse_opt.compile(text), np.random.default_rng(32695)
    for m in (*range(1, 18), 31, 64, 100):
        x = rng.standard_normal((16, m, 2)).astype(np.float32)
        np.testing.assert_allclose(program(x), x.astype(np.float64).var((0, 1)), 1e-5, 1e-6, err_msg=f"{m}")
