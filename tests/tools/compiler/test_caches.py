"""Caches in buffers with room: a step writes its slice and nothing else, for any count and any room, by one program."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.tools.compiler.specialization import SpecializedPrograms, specialize

Array = np.ndarray[Any, Any]
MARKS = '{graph.dims = ["", "room", ""], graph.donated}'
STEP = f"""func.func @main(%n: tensor<i64> {{graph.size = "n"}}, %q: tensor<3x1x8xf32>, %k: tensor<3x?x8xf32> {MARKS},
                     %v: tensor<3x?x8xf32> {MARKS}, %new: tensor<3x2x8xf32>)
    -> (tensor<3x1x8xf32>, tensor<3x?x8xf32>, tensor<3x?x8xf32>)
    attributes {{graph.symbols = {{n = {{least = 0, most = 4000}}, room = {{most = 4096}}}}}} {{
  %e = graph.exp %new : (tensor<3x2x8xf32>) -> tensor<3x2x8xf32>
  %0 = graph.update_slice %k, %e {{axis = 1 : i64, start = #graph.size<n>}}
    : (tensor<3x?x8xf32>, tensor<3x2x8xf32>) -> tensor<3x?x8xf32>
  %1 = graph.update_slice %v, %new {{axis = 1 : i64, start = #graph.size<n>}}
    : (tensor<3x?x8xf32>, tensor<3x2x8xf32>) -> tensor<3x?x8xf32>
  %2 = graph.leading %0 {{axis = 1 : i64, count = #graph.size<n + 2>}} : (tensor<3x?x8xf32>) -> tensor<3x?x8xf32>
  %3 = graph.leading %1 {{axis = 1 : i64, count = #graph.size<n + 2>}} : (tensor<3x?x8xf32>) -> tensor<3x?x8xf32>
  %a = graph.scaled_dot_product_attention %q, %2, %3
    : (tensor<3x1x8xf32>, tensor<3x?x8xf32>, tensor<3x?x8xf32>) -> tensor<3x1x8xf32>
  func.return %a, %0, %1 : tensor<3x1x8xf32>, tensor<3x?x8xf32>, tensor<3x?x8xf32>
}}"""
NEW_BYTES = 3 * 2 * 8 * 4


@cache
def compiled(target: str = "cpu") -> fuse_opt.CompiledProgram:
    return fuse_opt.compile(STEP, target)


def drawn(room: int, n: int) -> list[Array]:
    """Arguments of a step; what is no token yet is NaN."""
    rng = np.random.default_rng(room)
    caches = [rng.standard_normal((3, room, 8), np.float32) for _ in range(2)]
    for one in caches:
        one[:, n:] = np.nan
    q, new = (rng.standard_normal((3, count, 8), np.float32) for count in (1, 2))
    return [np.array(n), q, *caches, new]


def native(program: fuse_opt.CompiledProgram) -> SpecializedPrograms:
    assert isinstance(program.native, SpecializedPrograms)
    return program.native


@needs_compiler
@needs_guard_pages
def test_a_step_writes_its_slice_for_any_count_and_room() -> None:
    program = compiled()
    for room, n in ((2, 0), (9, 7), (90, 37), (7, 5), (417, 401)):
        given = drawn(room, n)
        wanted = cast("tuple[Array, ...]", fuse_opt.evaluate(STEP, *given))
        with guarded() as allocate:
            arrays = [given[0], *(allocate(array, at_end=n % 2 == 0) for array in given[1:])]
            found = program(*arrays)
            np.testing.assert_allclose(found[0], wanted[0], 1e-5, 1e-6)
            for number in (1, 2):
                assert found[number] is arrays[number + 1]
                np.testing.assert_allclose(found[number], wanted[number], 1e-6)
            del arrays, found
        assert program.stats.bytes_written == 3 * NEW_BYTES + wanted[0].nbytes
    assert native(program).made == 0


@needs_compiler
def test_new_counts_ask_nothing_of_python() -> None:
    program, given = compiled(), drawn(40, 3)
    program(*given)
    for n in (5, 7, 9, 5, 38):
        given[0][()] = n
        found = native(program).direct(tuple(given), None)
        assert found is not NotImplemented and found[1] is given[2]
    for other in (np.array(5, np.int32), np.array([5]), np.array(39), np.array(-1), np.array(4001)):
        assert native(program).direct((other, *given[1:]), None) is NotImplemented
    assert native(program).made == 0


@needs_compiler
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_what_there_is_no_room_for_is_refused_before_anything_is_written(target: str) -> None:
    program = compiled(target)
    given = drawn(6, 4)
    program(*(array.copy() for array in given))
    ranges = [(-1, "'n'.*-1; expected 0 to 4000"), (4001, "'n'.*4001")] if target == "cpu" else []
    for n, said in [(5, "room for 6.*, got 7"), *ranges]:
        given[0][()] = n
        before = [array.copy() for array in given]
        with pytest.raises(ValueError, match=said):
            program(*given)
        for array, kept in zip(given, before, strict=True):
            np.testing.assert_array_equal(array, kept)


@needs_compiler
def test_one_array_as_two_caches_is_refused_and_overlaps_are_seen() -> None:
    program, given = compiled(), drawn(6, 4)
    program(*(array.copy() for array in given))
    with pytest.raises(ValueError, match="memory"):
        program(*given[:3], given[2], given[4])
    with pytest.raises(ValueError, match="memory"):
        program(*given[:4], given[2].reshape(-1)[48:96].reshape(3, 2, 8))


@needs_compiler
@pytest.mark.parametrize("kind", ["kept by the caller", "read later"])
def test_a_cache_that_is_needed_is_copied(kind: str) -> None:
    text = STEP
    if kind == "read later":
        text = text.replace("return %a, %0", "return %s, %0").replace(
            "  func.return",
            "  %o = graph.sum %k {axes = array<i64: 1>, keepdims = true} : (tensor<3x?x8xf32>) -> tensor<3x1x8xf32>\n"
            "  %s = graph.add %a, %o : (tensor<3x1x8xf32>, tensor<3x1x8xf32>) -> tensor<3x1x8xf32>\n  func.return",
        )
    else:
        text = text.replace(", graph.donated", "")
    given = [np.nan_to_num(array) for array in drawn(9, 5)]
    wanted, before = fuse_opt.evaluate(text, *given), given[2].copy()
    found = fuse_opt.compile(text)(*given)
    for a, b in zip(found, cast("tuple[Array, ...]", wanted), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    if kind != "read later":
        np.testing.assert_array_equal(given[2], before)


@needs_compiler
def test_passes_in_any_order_after_planning() -> None:
    given = drawn(9, 5)
    shapes = tuple((5,) if not number else array.shape for number, array in enumerate(given))
    module = specialize(fuse_opt.optimize(STEP, ()), None, shapes)
    wanted = cast("tuple[Array, ...]", fuse_opt.evaluate(STEP, *given))
    passes = "plan-memory,infer-inplace,schedule-kernels,cse,plan-memory"
    planned = fuse_opt.optimize(fuse_opt.compile(fuse_opt.optimize(module, "infer-shapes")).module, passes)
    for a, b in zip(fuse_opt.evaluate(planned, *given), wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    found = fuse_opt.compile(planned)(*given)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('%n: tensor<i64> {graph.size = "n"}', '%n: tensor<i32> {graph.size = "n"}', "graph.size.*tensor<i64>"),
        ('graph.size = "n"', 'graph.size = ""', "graph.size.*name of a symbol"),
        ("start = #graph.size<n>", "start = #graph.size<m>", "symbol 'm' is no extent"),
        ("start = #graph.size<n>", "start = #graph.size<0 - n - 1>", "never negative"),
        ("n = {least = 0,", "k = {least = 0,", "no argument has an extent 'k'"),
    ],
)
def test_what_says_no_size_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(fuse_opt.InputError, match=said):
        fuse_opt.optimize(STEP.replace(old, new), "infer-shapes{symbols=true}")
