"""Attention of few queries to long keys: parts of the keys are tasks, joined with the same bits by any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import Array, evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from thread_counts import by_threads
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, i64

import fuse_opt
from fuse_opt.dialects.analysis.contractions.attention import ATTENTION
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

DECODE = """
func.func @main(%n: tensor<i64> {graph.size = "n"}, %q: tensor<HxRx24xf32>,
                %k: tensor<Hx?x24xf32> {graph.dims = ["", "room", ""]},
                %v: tensor<Hx?x40xf32> {graph.dims = ["", "room", ""]}) -> tensor<HxRx40xf32>
    attributes {graph.symbols = {n = {least = 1, most = 4000}, room = {most = 4096}}} {
  %0 = graph.leading %k {axis = 1 : i64, count = #graph.size<n>} : (tensor<Hx?x24xf32>) -> tensor<Hx?x24xf32>
  %1 = graph.leading %v {axis = 1 : i64, count = #graph.size<n>} : (tensor<Hx?x40xf32>) -> tensor<Hx?x40xf32>
  %y = graph.scaled_dot_product_attention %q, %0, %1
    : (tensor<HxRx24xf32>, tensor<Hx?x24xf32>, tensor<Hx?x40xf32>) -> tensor<HxRx40xf32>
  func.return %y : tensor<HxRx40xf32>
}"""


def static_text(heads: int, queries: int, keys: int, attributes: str = "", mask: str = "", element: str = "f32") -> str:
    q, k, v, y = (
        f"tensor<{heads}x{rows}x{width}x{element}>"
        for rows, width in ((queries, 24), (keys, 24), (keys, 40), (queries, 40))
    )
    name, typed, argument = (", %m", f", {mask}", f", %m: {mask}") if mask else ("", "", "")
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {v}{argument}) -> {y} {{
  %y = graph.scaled_dot_product_attention %q, %k, %v{name} {{{attributes}}} : ({q}, {k}, {v}{typed}) -> {y}
  func.return %y : {y}
}}"""


def compiled(text: str, parts: int | None) -> Any:
    """With keys in so many parts, where that is not left to lowering."""
    module = fuse_opt.optimize(text, None)
    (kernel,) = kernels(module)
    assert kernel.schedule_kind() == ATTENTION and kernel.schedule is not None
    if parts is not None:
        kernel.schedule = DictionaryAttr({**kernel.schedule.data, "splits": IntegerAttr(parts, i64)})
    return fuse_opt.compile(module, pipeline="schedule-kernels")


CASES = {
    "one query": (static_text(1, 1, 1500), None),
    "three matrices": (static_text(3, 5, 777), None),
    "f64": (static_text(2, 2, 513, "", "", "f64"), None),
    "mask": (static_text(1, 3, 600, "", "tensor<3x600xi1>"), None),
    "causal": (static_text(1, 3, 520, "is_causal = true"), None),
    "parts that are asked for": (static_text(1, 2, 100), 3),
    "more parts than keys": (static_text(2, 2, 37), 8),
}


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_parts_are_joined_in_order(name: str) -> None:
    text, parts = CASES[name]
    program, arguments = compiled(text, parts), random_arguments(parse(text), 5)
    assert program.stats.launches == 4
    wanted = evaluate(parse(text), arguments)[0]
    slack = 1e-13 if "f64" in text else 1e-5
    for at_end in (True, False):
        with guarded() as allocate:
            given = [allocate(array, at_end=at_end) for array in arguments]
            out = allocate(np.full_like(wanted, np.nan), at_end=at_end)
            program(*given, out=out)
            np.testing.assert_allclose(out, wanted, rtol=10 * slack, atol=10 * slack)
            del given, out
    results = by_threads(lambda: program(*arguments).tobytes())
    assert all(each == results[0] for each in results)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("heads", [1, 3])
def test_any_number_of_keys_by_one_program(heads: int) -> None:
    """Long keys are cut as those of a program for their number are, with the same bits; short ones are one task a matrix."""
    text = DECODE.replace("H", str(heads)).replace("R", "2")
    program, random = fuse_opt.compile(text), np.random.default_rng(2)
    for keys in (1, 255, 511, 512, 513, 1023, 4000):
        given: list[Array] = [np.array(keys)]
        for rows, width in ((2, 24), (keys + 7, 24), (keys + 7, 40)):
            given.append(random.standard_normal((heads, rows, width), np.float32))
        for cache in given[2:]:
            cache[:, keys:] = np.nan
        found = program(*given)
        assert keys >= 512 or program.stats.bytes_written == found.nbytes, "what has no tasks moves nothing"
        own = fuse_opt.compile(static_text(heads, 2, keys))
        alone = own(given[1], *(np.ascontiguousarray(cache[:, :keys]) for cache in given[2:]))
        np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6)
        assert keys == 1 or own.stats.launches == (4 if keys >= 512 else 1)
    assert isinstance(program.native, SpecializedPrograms) and program.native.made == 0
    results = by_threads(lambda: program(*given).tobytes())
    assert all(each == results[0] for each in results)


def test_many_matrices_are_tasks_of_their_own() -> None:
    assert fuse_opt.compile(static_text(8, 1, 2000)).stats.launches == 1
