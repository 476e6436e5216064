"""Attention that divides behind its second product: where it does, what that gives, and values for which it comes too late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from draws import all_pairs
from ir_testing import evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from thread_counts import by_threads
from xdsl.dialects.builtin import DictionaryAttr, StringAttr

import fuse_opt
from fuse_opt.dialects.analysis.contractions.attention import attention_of
from fuse_opt.lowering.cpu.attention.late_factor import late_factor
from fuse_opt.lowering.emit.c import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

Array = np.ndarray[Any, Any]
HELPER = "fo_factor_rows_"
"""What divides weights of values that are too large."""


def text_of(queries: int, keys: int, mask: str = "", attributes: str = "", element: str = "f32") -> str:
    q, k = (f"tensor<2x{rows}x24x{element}>" for rows in (queries, keys))
    of_mask = (", %m", f", %m: {mask}", f", {mask}") if mask else ("", "", "")
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {k}{of_mask[1]}) -> {q} {{
  %y = graph.scaled_dot_product_attention %q, %k, %v{of_mask[0]} {{{attributes}}} : ({q}, {k}, {k}{of_mask[2]}) -> {q}
  func.return %y : {q}
}}"""


def both(text: str) -> tuple[CpuProgram, CpuProgram]:
    """The program that divides late, and the one of which an entry says that it divides early."""
    module = fuse_opt.compile(text).module
    late = build_program(module)
    assert HELPER in late.source
    for kernel in kernels(module):
        schedule = kernel.schedule
        assert schedule is not None
        kernel.properties["schedule"] = DictionaryAttr({**schedule.data, "row_factor": StringAttr("early")})
    early = build_program(module)
    assert HELPER not in early.source
    return CpuProgram(late), CpuProgram(early)


@needs_compiler
@pytest.mark.parametrize(
    ("mask", "keys", "element"), all_pairs(["", "i1", "float"], [2, 9, 16, 53, 197], ["f32", "f64"])
)
def test_it_gives_what_the_reference_gives(keys: int, mask: str, element: str) -> None:
    """Those that divide early are what attention of other kinds is, and are compared with the reference where that is tested."""
    kind = "" if not mask else f"tensor<37x{keys}x{element if mask == 'float' else mask}>"
    text = text_of(37, keys, kind, element=element)
    arguments = random_arguments(parse(text), 3)
    if mask == "i1":
        arguments[3][:, 0] = True
        arguments[3][5] = False  # a row of which nothing is seen
    (wanted,) = evaluate(parse(text), arguments)
    tolerance = 1e-12 if element == "f64" else 3e-6
    program = fuse_opt.compile(text)
    assert HELPER in program.source
    np.testing.assert_allclose(program(*arguments), wanted, rtol=tolerance, atol=tolerance)


@needs_compiler
@pytest.mark.parametrize(("element", "scale"), [("f32", 3e38), ("f64", 1.7e308)])
def test_values_whose_sum_is_too_large_are_divided_before(element: str, scale: float) -> None:
    text = text_of(20, 41, element=element)
    arguments = random_arguments(parse(text), 5)
    arguments[2][:] = scale * np.sign(arguments[2])
    arguments[2][1] = np.abs(arguments[2][1])  # all alike: their mean is one of them
    late, early = (np.asarray(program(*arguments)) for program in both(text))
    assert np.isfinite(late).all()
    np.testing.assert_allclose(late, early, rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(late[1], scale, rtol=1e-5)


@needs_compiler
def test_values_of_a_matrix_alone_decide_for_it() -> None:
    text = text_of(20, 41)
    arguments = random_arguments(parse(text), 5)
    late, _ = both(text)
    plain = np.array(late(*arguments))
    arguments[2][1] = 3e38
    np.testing.assert_array_equal(late(*arguments)[0], plain[0])


@needs_compiler
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite(value: float) -> None:
    text = text_of(20, 41)
    arguments = random_arguments(parse(text), 5)
    arguments[2][0, 7, 3] = value
    late, early = (np.asarray(program(*arguments)) for program in both(text))
    np.testing.assert_allclose(late[0], early[0], rtol=3e-6, atol=3e-6)
    np.testing.assert_array_equal(late[0, :, 3], np.full(20, value, np.float32))


@needs_compiler
def test_threads_change_no_bit() -> None:
    late, _ = both(text := text_of(197, 131))
    arguments = random_arguments(parse(text), 5)
    first, *others = by_threads(lambda: late(*arguments))
    for found in others:
        np.testing.assert_array_equal(found, first)


def test_what_is_no_softmax_is_left_as_it_is() -> None:
    """Weights that may be large or negative, or are results as well, and rows whose mask leaves most of them out."""
    q, s, r = "tensor<20x8xf32>", "tensor<20x30xf32>", "tensor<20x1xf32>"
    k, sums = "tensor<30x8xf32>", "{axes = array<i64: 1>, keepdims = true}"
    program = f"""
func.func @main(%q: {q}, %k: {k}) -> ({q}, {s}) {{
  %y, %w = fused.kernel(%a = %q : {q}, %b = %k : {k}) -> ({q}, {s}) {{
    %0 = graph.matmul %a, %b {{transpose_rhs = true}} : ({q}, {k}) -> {s}
    %1 = graph.max %0 {sums} : ({s}) -> {r}
    %2 = graph.subtract %0, %1 : ({s}, {r}) -> {s}
    %3 = graph.exp %2 : ({s}) -> {s}
    %4 = graph.sum %3 {sums} : ({s}) -> {r}
    %5 = graph.reciprocal %4 : ({r}) -> {r}
    %6 = graph.multiply %3, %5 : ({s}, {r}) -> {s}
    %7 = graph.matmul %6, %b : ({s}, {k}) -> {q}
    fused.yield %7, %6 : {q}, {s}
  }}
  func.return %y, %w : {q}, {s}
}}"""
    alone = program.replace(f"({q}, {s})", f"({q})").replace("%y, %w", "%y").replace("%7, %6", "%7")
    alone = alone.replace(f": {q}, {s}\n", f": {q}\n")
    negative = alone.replace("graph.exp %2", "graph.sin %2")
    assert [_is_late(text) for text in (alone, program, negative)] == [True, False, False]
    causal = fuse_opt.compile(text_of(40, 40, attributes="is_causal = true"))
    assert HELPER not in causal.source


def _is_late(text: str) -> bool:
    (kernel,) = kernels(parse(text))
    return late_factor(attention_of(kernel).weights) is not None
