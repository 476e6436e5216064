"""The laws of passes on programs over symbols: each pass alone, and sequences of them compiled and run at five sets of values."""

from __future__ import annotations

import random
from contextvars import Context
from functools import cache

import pytest
from draws import draws
from fuzz import SIZES, random_sequence, run
from ir_testing import parse, text_of
from laws import OPTIMIZATIONS, Subject, pass_fault
from lowered_programs import needs_compiler
from sized_fuzz import is_refusal, sized_fault
from sized_programs import SizedSubject, sized_program

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.tools.source.verification import verify

PROGRAMS = draws(6)


@cache
def subject(seed: int) -> SizedSubject:
    return SizedSubject.of(text_of(sized_program(seed)), seed)


@pytest.mark.parametrize("number", range(len(OPTIMIZATIONS)))
def test_a_pass_keeps_the_laws_at_all_sizes(number: int) -> None:
    known = subject(PROGRAMS[number % len(PROGRAMS)])
    first = Subject(known.text, known.arguments[0], known.results[0])
    with sizes_asked_for():
        fault = pass_fault(first, [OPTIMIZATIONS[number]], same=lambda module, _: Context().run(known.same, module))
    assert not fault or is_refusal(fault)


@pytest.mark.parametrize("seed", draws(4))
def test_sequences_keep_the_laws_where_nobody_asks_for_sizes(seed: int) -> None:
    known = subject(seed)
    first = Subject(known.text, known.arguments[0], known.results[0])
    assert not pass_fault(first, random_sequence(random.Random(f"unsized {seed}")))


@needs_compiler
def test_sequences_of_passes_give_one_program_that_is_right_at_all_sizes() -> None:
    summary = run(seeds := draws(3), SIZES)
    assert not summary.mismatches, "\n".join(summary.reports)
    assert summary.work.sized > len(seeds) // 2


CUT = """func.func @main(%x: tensor<?xf32, #graph.shape<n{{most = 40}}>>) -> tensor<?xf32> {{
  %0 = graph.slice %x {{starts = array<i64: 0>, stops = array<i64: {stop}>}}
    : (tensor<?xf32, #graph.shape<n{{most = 40}}>>) -> tensor<?xf32>
  func.return %0 : tensor<?xf32>
}}"""


def test_a_program_that_is_wrong_at_some_sizes_alone_is_found() -> None:
    known = SizedSubject.of(CUT.format(stop=1 << 60), 1)
    known.same(parse(CUT.format(stop=50)))
    with pytest.raises(AssertionError):
        known.same(parse(CUT.format(stop=39)))


MATRIX, COLUMN, ROW = (
    f"tensor<{n}xf32, #graph.shape<{m}>>" for n, m in (("?x?", "n, n"), ("?x1", "n, 1"), ("1x?", "1, n"))
)
RETURNED_VIEW = f"""func.func @main(%x: {MATRIX}, %y: {COLUMN}) -> ({COLUMN}, {ROW}) attributes {{
    fused.arena = {{method = "universal", alignment = 64 : i64, places = [], orders = [array<i64>], bounds = []}}}} {{
  %0 = fused.kernel(%a = %x : {MATRIX}, %b = %y : {COLUMN}) -> ({COLUMN}) attributes {{slots = array<i64: -1>}} {{
    %5 = graph.matmul %a, %b : ({MATRIX}, {COLUMN}) -> {COLUMN}
    fused.yield %5 : {COLUMN}
  }}
  %1 = fused.kernel(%a = %0 : {COLUMN}) -> ({COLUMN}) attributes {{slots = array<i64: -1>}} {{
    %5 = graph.relu %a : ({COLUMN}) -> {COLUMN}
    fused.yield %5 : {COLUMN}
  }}
  %2 = graph.permute_dims %0 {{axes = array<i64: 1, 0>}} : ({COLUMN}) -> {ROW}
  func.return %1, %2 : {COLUMN}, {ROW}
}}"""


def test_a_view_of_unknown_extents_is_the_memory_of_what_it_shows() -> None:
    with sizes_asked_for():
        verify(parse(RETURNED_VIEW))


WHOLE, PART = "tensor<?x?xf16, #graph.shape<n{most = 9}, m{most = 9}>>", "tensor<?xf16, #graph.shape<n{most = 9}>>"
DIVIDED = f"""func.func @main(%x: {WHOLE}) -> {PART} {{
  %0 = graph.var %x {{axes = array<i64: 1>}} : ({WHOLE}) -> {PART}
  func.return %0 : {PART}
}}"""


@needs_compiler
def test_kernels_may_name_counts_that_none_of_their_extents_have() -> None:
    """Without fusion the division by a count is a kernel of its own."""
    assert not sized_fault(DIVIDED, (), 1)
