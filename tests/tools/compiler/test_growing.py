"""Caches that grow in memory of their own: a step writes what is new, and nothing that somebody has."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

Array = np.ndarray[Any, Any]
STEP = """func.func @main(%past: tensor<2x?x8xf32> {graph.donated, graph.dims = ["", "past", ""]}, %new: tensor<2x?x8xf32>,
                          %old: tensor<?x2xf32> {graph.donated, graph.dims = ["past", ""]}, %q: tensor<2x1x8xf32>)
    -> (tensor<2x?x8xf32>, tensor<2x1x8xf32>, tensor<?x2xf32>) attributes {graph.symbols = {past = {most = 4096}}} {
  %0 = graph.concat %past, %new {axis = 1 : i64} : (tensor<2x?x8xf32>, tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %2 = graph.scaled_dot_product_attention %q, %0, %0
    : (tensor<2x1x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>) -> tensor<2x1x8xf32>
  %3 = graph.sum %new {axes = array<i64: 2>} : (tensor<2x?x8xf32>) -> tensor<2x?xf32>
  %4 = graph.permute_dims %3 {axes = array<i64: 1, 0>} : (tensor<2x?xf32>) -> tensor<?x2xf32>
  %5 = graph.concat %old, %4 : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %0, %2, %5 : tensor<2x?x8xf32>, tensor<2x1x8xf32>, tensor<?x2xf32>
}"""


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def begun(count: int = 1) -> tuple[Array, Array]:
    return drawn(1, 2, count, 8), drawn(2, count, 2)


def stepped(
    program: fuse_opt.CompiledProgram, caches: tuple[Array, Array], number: int, new: int
) -> tuple[Array, Array]:
    """The caches behind a step, which is compared with the reference."""
    more, query = drawn(number, 2, new, 8), drawn(number + 1, 2, 1, 8)
    wanted = fuse_opt.evaluate(STEP, caches[0].copy(), more, caches[1].copy(), query)
    keys, mixed, sums = program(caches[0], more, caches[1], query)
    for found, expected in zip((keys, mixed, sums), wanted, strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    return keys, sums


@needs_compiler
def test_steps_write_what_is_new_and_keep_their_memory() -> None:
    program = fuse_opt.compile(STEP, growing=True)
    caches, addresses = begun(), list[int]()
    for number in range(40):
        caches = stepped(program, caches, number, 1 + (number == 7))
        addresses.append(caches[0].ctypes.data)
    assert len(set(addresses)) == 4  # room for 4, 10, 22 and 46 elements: twice what was needed
    assert program.native.made == 0
    assert program.stats.bytes_written < 4 * 2 * (8 + 8 + 2 + 2)  # what is new, and the result for a query


@needs_compiler
def test_what_a_caller_went_back_to_is_copied() -> None:
    program = fuse_opt.compile(STEP, growing=True)
    first = stepped(program, begun(), 1, 3)
    second = stepped(program, first, 2, 2)
    kept = [one.copy() for one in second]
    other = stepped(program, (second[0][:, :4], second[1][:4]), 3, 1)
    assert not np.shares_memory(other[0], second[0])
    for one, before in zip(second, kept, strict=True):
        np.testing.assert_array_equal(one, before)
    again = stepped(program, first, 4, 1)  # given up before: what is in the buffer behind it is not its own
    assert not np.shares_memory(again[0], second[0]) or again[0].shape[1] <= second[0].shape[1]
    for one, before in zip(second, kept, strict=True):
        np.testing.assert_array_equal(one, before)


@needs_compiler
def test_buffers_go_with_their_last_view_and_views_of_others_are_copied() -> None:
    program = fuse_opt.compile(STEP, growing=True)
    caches = stepped(program, begun(), 1, 1)
    turned = np.asfortranarray(caches[0]), caches[1][::1]
    stepped(program, (turned[0], turned[1]), 2, 1)
    mechanism = vars(program)["_caches"]
    del caches, turned
    gc.collect()
    assert not vars(mechanism)["_used"]


@needs_compiler
def test_frozen_arguments_and_a_restart() -> None:
    program = fuse_opt.compile(STEP, growing=True)
    query = drawn(5, 2, 1, 8)
    program.freeze({"q": query})
    caches = begun()
    for _ in range(3):
        for number in range(5):
            more = drawn(number, 2, 1, 8)
            wanted = fuse_opt.evaluate(STEP, caches[0].copy(), more, caches[1].copy(), query)
            found = program(caches[0], more, caches[1])
            for one, expected in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, expected, 1e-5, 1e-6)
            caches = found[0], found[2]
        caches = begun(2)


@needs_compiler
def test_a_cache_of_which_nothing_is_said() -> None:
    text = """func.func @main(%past: tensor<?x3xf32> {graph.donated}, %new: tensor<1x3xf32>) -> tensor<?x3xf32> {
      %0 = graph.concat %past, %new {axis = 0 : i64} : (tensor<?x3xf32>, tensor<1x3xf32>) -> tensor<?x3xf32>
      func.return %0 : tensor<?x3xf32>
    }"""
    program = fuse_opt.compile(text, growing=True)
    found = wanted = drawn(1, 1, 3)
    for number in range(9):
        new = drawn(number, 1, 3)
        found, wanted = program(found, new), np.concatenate((wanted, new))
        np.testing.assert_array_equal(found, wanted)


@needs_compiler
def test_what_does_not_fit_is_refused() -> None:
    program = fuse_opt.compile(STEP, growing=True)
    keys, sums = begun(2)
    with pytest.raises(ValueError, match="argument 0 has 2 elements in use, argument 2 has 1; they must be equal"):
        program(keys, drawn(1, 2, 1, 8), sums[:1], drawn(1, 2, 1, 8))
    with pytest.raises(ValueError, match="out, stream: expected None"):
        program(keys, drawn(1, 2, 1, 8), sums, drawn(1, 2, 1, 8), out=[keys, keys, keys])
    with pytest.raises(ValueError, match="for target 'cpu'"):
        fuse_opt.compile(STEP, "reference", growing=True)


def test_a_cache_that_is_read_beside_its_growth_is_refused_by_name() -> None:
    text = STEP.replace("%q, %0, %0", "%q, %past, %past")
    with pytest.raises(
        fuse_opt.InputError,
        match=r"argument 0 \('past'\) is a cache that 'graph.concat' grows and 'graph.scaled_dot_product_attention' reads",
    ):
        fuse_opt.compile(text, growing=True)


def test_a_cache_that_is_not_returned_and_one_that_nobody_gives_up_are_refused() -> None:
    kept = STEP.replace("return %0, %2", "return %past, %2").replace("return %past", "return %new")
    with pytest.raises(fuse_opt.InputError, match="expected it to be returned once, got 0 times"):
        fuse_opt.compile(kept, growing=True)
    with pytest.raises(fuse_opt.InputError, match="'main': expected a donated argument"):
        fuse_opt.compile(STEP.replace("graph.donated, ", ""), growing=True)
