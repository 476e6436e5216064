"""Versions of a kernel by the length of its rows: chosen outside of loops, right at the edges of predicates, printed and kept."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
PIPELINE = ",".join(
    "schedule-kernels{versions=true}" if name == "schedule-kernels" else name for name in DEFAULT_PIPELINE
)
LAYER_NORM = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]},
                     %s: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32> {
  %1 = graph.layer_norm %x, %s : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}"""
IN_PLACE = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"], graph.donated}) -> tensor<?x?xf32> {
  %1 = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}"""
SUMS = """func.func @main(%x: tensor<?x3x?xf32> {graph.dims = ["m", "", "n"]}) -> (tensor<?x3xf32>, tensor<?x3xf32>) {
  %1 = graph.sum %x {axes = array<i64: 2>} : (tensor<?x3x?xf32>) -> tensor<?x3xf32>
  %2 = graph.max %x {axes = array<i64: 2>} : (tensor<?x3x?xf32>) -> tensor<?x3xf32>
  func.return %1, %2 : tensor<?x3xf32>, tensor<?x3xf32>
}"""
EDGES = (1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 300, 640)
ROWS = (1, 7, 255, 256, 257)


def _given(text: str, m: int, n: int, rng: np.random.Generator) -> list[Array]:
    shapes = {LAYER_NORM: [(m, n), (n,)], IN_PLACE: [(m, n)], SUMS: [(m, 3, n)]}[text]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _all(results: Any) -> tuple[Array, ...]:
    return cast("tuple[Array, ...]", results if isinstance(results, tuple) else (results,))


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("text", [LAYER_NORM, IN_PLACE, SUMS], ids=["layer_norm", "in_place", "sums"])
def test_versions_are_right_at_the_edges_of_predicates(text: str) -> None:
    program, rng = fuse_opt.compile(text, pipeline=PIPELINE), np.random.default_rng(24)
    module = fuse_opt.load(text)
    for n in EDGES:
        for m in ROWS:
            given = _given(text, m, n, rng)
            expected = fuse_opt.evaluate(module, *given)
            with guarded() as allocate:
                found = program(*(allocate(array, at_end=(m + n) % 2 == 0) for array in given))
                for one, other in zip(_all(found), _all(expected), strict=True):
                    np.testing.assert_allclose(one, other, 2e-5, 2e-5, err_msg=f"{m} rows of {n}")
                found = None  # it may lie in memory that goes
    assert isinstance(program.native, SpecializedPrograms) and not program.native.made


@needs_compiler
def test_the_choice_is_outside_of_all_loops_and_there_are_three_at_most() -> None:
    program = fuse_opt.compile(LAYER_NORM, pipeline=PIPELINE)
    program(*_given(LAYER_NORM, 5, 40, np.random.default_rng(1)))
    body = program.source[program.source.index("static void kernel_") :]
    conditions = [(place.start(), place[1]) for place in re.finditer(r"if \((n [<>]=? \d+)\)", body)]
    assert [text for _, text in conditions] == ["n <= 4", "n >= 256"]
    assert body.index("for (") > conditions[0][0]


def _decided(text: str) -> str:
    with sizes_asked_for():
        return str(fuse_opt.optimize(text, PIPELINE.replace("infer-shapes", "infer-shapes{symbols=true}")))


def test_versions_are_entries_of_a_schedule_that_are_read_again() -> None:
    text = _decided(LAYER_NORM)
    assert 'schedule = {kind = "row", short = 4 : i64, long = 256 : i64}' in text
    with sizes_asked_for():
        assert str(fuse_opt.optimize(text, "schedule-kernels")) == text


@needs_compiler
@pytest.mark.parametrize("n", [256, 300, 511])
def test_long_rows_have_the_bits_of_a_program_of_numbers(n: int) -> None:
    given = _given(LAYER_NORM, 9, n, np.random.default_rng(n))
    numbers = LAYER_NORM.replace("?x?x", f"9x{n}x").replace("<?x", f"<{n}x")
    found = fuse_opt.compile(LAYER_NORM, pipeline=PIPELINE)(*given)
    np.testing.assert_array_equal(found, fuse_opt.compile(re.sub(r" {graph.dims = [^}]*}", "", numbers))(*given))


@pytest.mark.parametrize(
    ("facts", "entries"),
    [
        ("most = 4", set[str]()),
        ("least = 5, most = 255", set[str]()),
        ("least = 5", {"long"}),
        ("most = 100", {"short"}),
    ],
)
def test_a_range_on_one_side_of_a_predicate_has_no_version_for_it(facts: str, entries: set[str]) -> None:
    said = ", ".join(f"{each} : i64" for each in facts.split(", "))
    text = LAYER_NORM.replace("xf32> {\n", f"xf32> attributes {{graph.symbols = {{n = {{{said}}}}}}} {{\n")
    with collect() as remarks:
        decided = _decided(text)
    assert {name for name in ("short", "long") if f"{name} = " in decided} == entries
    assert any(each.code == "versions" for each in remarks) == bool(entries)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("short = 0 : i64", "an integer from 1 to 64"),
        ("short = 65 : i64", "an integer from 1 to 64"),
        ("long = 5 : i64", "from 128"),
    ],
)
def test_entries_that_are_no_version_are_refused(entry: str, problem: str) -> None:
    text = f"""func.func @main(%x: tensor<8x6xf32>) -> tensor<8xf32> {{
  %r = fused.kernel(%a = %x : tensor<8x6xf32>) -> (tensor<8xf32>) attributes {{schedule = {{kind = "row", {entry}}}}} {{
    %0 = graph.sum %a {{axes = array<i64: 1>}} : (tensor<8x6xf32>) -> tensor<8xf32>
    fused.yield %0 : tensor<8xf32>
  }}
  func.return %r : tensor<8xf32>
}}"""
    with pytest.raises(Exception, match=f"entry '{entry.split()[0]}': expected .*{problem}"):
        fuse_opt.compile(text, pipeline="schedule-kernels,plan-memory")


def test_entries_change_nothing_where_the_length_is_a_number() -> None:
    text = """func.func @main(%x: tensor<8x600xf32>) -> tensor<8xf32> {
  %r = fused.kernel(%a = %x : tensor<8x600xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "row"}} {
    %0 = graph.sum %a {axes = array<i64: 1>} : (tensor<8x600xf32>) -> tensor<8xf32>
    fused.yield %0 : tensor<8xf32>
  }
  func.return %r : tensor<8xf32>
}"""
    other = text.replace('kind = "row"', 'kind = "row", short = 4 : i64, long = 256 : i64')
    pipeline = "schedule-kernels,plan-memory"
    assert fuse_opt.compile(text, pipeline=pipeline).source == fuse_opt.compile(other, pipeline=pipeline).source
