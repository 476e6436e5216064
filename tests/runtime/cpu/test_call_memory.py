"""What arrays of the caller may have in common: results are right, or the call is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lowered_programs import Array, needs_compiler

import fuse_opt

DONATED = """
func.func @main(%x: tensor<64xf32> {graph.donated}, %y: tensor<32xf32>) -> (tensor<32xf32>, tensor<64xf32>) {
  %0 = graph.exp %y : (tensor<32xf32>) -> tensor<32xf32>
  %1 = graph.tanh %x : (tensor<64xf32>) -> tensor<64xf32>
  func.return %0, %1 : tensor<32xf32>, tensor<64xf32>
}"""
TURNED = """
func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %x, %0 : tensor<8x8xf32>, tensor<8x8xf32>
}"""
X = np.linspace(-1, 1, 64, dtype=np.float32)
Y = np.linspace(0, 2, 32, dtype=np.float32)


@needs_compiler
def test_a_result_in_donated_memory_is_read_before_another_is_written_there() -> None:
    program = fuse_opt.compile(DONATED, "cpu")
    given = X.copy()
    first, second = program(given, Y)
    assert second is given, "the case is about a result that takes an argument's memory"
    given, apart = X.copy(), np.empty(64, np.float32)
    first, second = program(given, Y, out=[given[:32], apart])
    np.testing.assert_allclose(first, np.exp(Y), rtol=1e-6)
    np.testing.assert_allclose(second, np.tanh(X), rtol=1e-6)


SHARED: dict[str, tuple[Callable[[Array], Array], str]] = {
    "the same": (lambda base: base[:8], r"out\[0\] and out\[1\] share memory"),
    "a row on": (lambda base: base[1:9], r"out\[0\] and out\[1\] share memory"),
    "turned": (lambda base: base[:8].T, r"out\[0\] and out\[1\] share memory"),
    "one row": (
        lambda base: np.lib.stride_tricks.as_strided(base[8:], (8, 8), (0, 4)),
        r"out\[1\]: expected an array whose",
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", SHARED)
def test_results_that_would_overwrite_each_other_are_refused(name: str) -> None:
    second, words = SHARED[name]
    program = fuse_opt.compile(TURNED, "cpu")
    base = np.zeros((17, 8), np.float32)
    with pytest.raises(ValueError, match=words):
        program(X.reshape(8, 8), out=[base[:8], second(base)])
    assert not base.any()


@needs_compiler
def test_halves_of_one_array_take_the_results() -> None:
    base = np.zeros((8, 16), np.float32)
    fuse_opt.compile(TURNED, "cpu")(X.reshape(8, 8), out=[base[:, ::2], base[:, 1::2]])
    np.testing.assert_array_equal(base[:, ::2], X.reshape(8, 8))
    np.testing.assert_array_equal(base[:, 1::2], X.reshape(8, 8).T)


OVERLAPS: dict[str, Callable[[Array], tuple[Array, Array, Array]]] = {
    "out 0 is the argument": lambda m: (m[:8], m[:8], m[8:16]),
    "out 1 is the argument": lambda m: (m[:8], m[8:16], m[:8]),
    "out 1 overlaps it": lambda m: (m[:8], m[16:24], m[3:11]),
    "out 1 is it, turned": lambda m: (m[:8], m[16:24], m[:8].T),
    "out 1 is it, backwards": lambda m: (m[:8], m[16:24], m[7::-1]),
    "out 0 is it, turned": lambda m: (m[:8], m[:8].T, m[16:24]),
    "the argument is turned": lambda m: (m[:8].T, m[16:24], m[:8]),
    "at odd addresses": lambda m: (_shifted(m[:8]), m[16:24], _shifted(m[8:16])),
}


def _shifted(array: Array) -> Array:
    """A copy whose elements lie one byte from where their type wants them."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    moved = memory[1:].view(np.float32).reshape(array.shape)
    moved[:] = array
    return moved


@needs_compiler
@pytest.mark.parametrize("name", OVERLAPS)
def test_results_may_take_an_arguments_memory(name: str) -> None:
    memory = np.random.default_rng(1).standard_normal((24, 8)).astype(np.float32)
    x, *out = OVERLAPS[name](memory)
    expected = x.copy(), x.T.copy()
    results: Any = fuse_opt.compile(TURNED, "cpu")(x, out=out)
    for given, result, wanted in zip(out, results, expected, strict=True):
        assert result is given
        np.testing.assert_array_equal(result, wanted)


@needs_compiler
@pytest.mark.parametrize(
    "given", [np.zeros((8, 8), ">f4"), np.zeros((8, 8)), np.zeros(64, np.float32), None, [[1]], "x"]
)
def test_what_does_not_fit_is_refused_by_name(given: Any) -> None:
    program = fuse_opt.compile(TURNED, "cpu")
    with pytest.raises((TypeError, ValueError), match=r"argument 0 \('x'\): expected float32 \[8, 8\], got "):
        program(given)
    with pytest.raises(ValueError, match=r"out\[0\]: expected float32 \[8, 8\], got "):
        program(X.reshape(8, 8), out=[given, np.zeros((8, 8), np.float32)])
