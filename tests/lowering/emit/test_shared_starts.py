"""Products that differ in where they begin in an operand: one function, right for each start, as if each had its own."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

STEPS, WIDTH = 4, 24


def unrolled(rows: str = "9", starts: tuple[int, ...] = (0, 24, 48, 72), count: int = WIDTH) -> str:
    """Products of slices of `x`, one behind the other; each is a kernel of its own."""
    x, w, y = f"tensor<{rows}x96xf32>", f"tensor<{count}x40xf32>", f"tensor<{rows}x40xf32>"
    part = f"tensor<{rows}x{count}xf32>"
    dims = ' {graph.dims = ["m", ""]}' if rows == "?" else ""
    lines = [f"func.func @main(%x: {x}{dims}, %w: {w}) -> ({', '.join([y] * len(starts))}) {{"]
    for number, start in enumerate(starts):
        stop = 9223372036854775807 if rows == "?" else rows
        ends = f"starts = array<i64: 0, {start}>, stops = array<i64: {stop}, {start + count}>"
        lines.append(f"  %p{number} = graph.slice %x {{{ends}}} : ({x}) -> {part}")
        lines.append(f"  %y{number} = graph.matmul %p{number}, %w : ({part}, {w}) -> {y}")
    names = ", ".join(f"%y{number}" for number in range(len(starts)))
    return "\n".join([*lines, f"  func.return {names} : {', '.join([y] * len(starts))}", "}"])


def functions(source: str) -> int:
    """Of products, in the text."""
    return len(set(re.findall(r"^static void (kernel_\w*matmul\w*)\(", source, re.M)))


@needs_compiler
@pytest.mark.parametrize("rows", ["9", "?"])
def test_products_of_slices_share_a_function(rows: str) -> None:
    program, rng = fuse_opt.compile(unrolled(rows)), np.random.default_rng(5)
    w = rng.standard_normal((WIDTH, 40)).astype(np.float32)
    for number in (9,) if rows == "9" else (1, 2, 7, 9, 30):
        x = rng.standard_normal((number, 96)).astype(np.float32)
        for start, found in zip((0, 24, 48, 72), program(x, w), strict=True):
            np.testing.assert_allclose(found, x[:, start : start + WIDTH] @ w, 1e-5, 1e-5)
    assert functions(program.source) == 1


@needs_compiler
def test_bits_are_those_of_functions_with_known_starts() -> None:
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((9, 96)).astype(np.float32), rng.standard_normal((WIDTH, 40)).astype(np.float32)
    every = fuse_opt.compile(unrolled())(x, w)
    for start, found in zip((0, 24, 48, 72), every, strict=True):
        alone = fuse_opt.compile(unrolled(starts=(start,)))
        assert np.asarray(alone(x, w)).tobytes() == found.tobytes()
        assert "start" not in alone.source, "the text of a product that nothing is shared with is as it was"


@needs_compiler
def test_symbols_with_names_like_starts_are_sizes() -> None:
    program, w = fuse_opt.compile(unrolled("?").replace('"m"', '"start 0"')), np.ones((WIDTH, 40), np.float32)
    for number in (1, 5, 17):
        for found in program(np.ones((number, 96), np.float32), w):
            np.testing.assert_array_equal(found, np.full((number, 40), WIDTH, np.float32))


@needs_compiler
def test_what_differs_in_more_than_starts_shares_nothing() -> None:
    """The operand's storage, how much is sliced, a step."""
    x, w, y = "tensor<8x96xf32>", "tensor<24x40xf32>", "tensor<8x40xf32>"
    part = "tensor<8x24xf32>"
    text = f"""func.func @main(%x: {x}, %w: {w}, %v: tensor<12x40xf32>) -> ({y}, {y}, {y}) {{
      %a = graph.slice %x {{starts = array<i64: 0, 3>, stops = array<i64: 8, 27>}} : ({x}) -> {part}
      %0 = graph.matmul %a, %w : ({part}, {w}) -> {y}
      %b = graph.slice %x {{starts = array<i64: 0, 5>, stops = array<i64: 8, 17>}} : ({x}) -> tensor<8x12xf32>
      %1 = graph.matmul %b, %v : (tensor<8x12xf32>, tensor<12x40xf32>) -> {y}
      %c = graph.slice %x {{starts = array<i64: 0, 5>, stops = array<i64: 8, 53>, steps = array<i64: 1, 2>}} : ({x}) -> {part}
      %2 = graph.matmul %c, %w : ({part}, {w}) -> {y}
      func.return %0, %1, %2 : {y}, {y}, {y}
    }}"""
    program, rng = fuse_opt.compile(text), np.random.default_rng(8)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 96), (24, 40), (12, 40))]
    found, (left, right, short) = program(*given), given
    for one, wanted in zip(found, (left[:, 3:27] @ right, left[:, 5:17] @ short, left[:, 5:53:2] @ right), strict=True):
        np.testing.assert_allclose(one, wanted, 1e-5, 1e-5)
    assert functions(program.source) == 3


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("seed", range(8))
def test_random_slices_of_either_operand(seed: int) -> None:
    """Of an operand or both, along either axis, turned or not, with what follows a product in its kernel."""
    rng = np.random.default_rng(100 + seed)
    m, k, n, more = (int(each) for each in rng.integers((1, 1, 1, 2), (20, 40, 70, 5)))
    turned, on_right = bool(rng.integers(2)), bool(rng.integers(2))
    whole = (m + int(rng.integers(3)) * 5, k * more + 3), (n, k * more + 3) if turned else (k * more + 3, n)
    x, w = (f"tensor<{a}x{b}xf32>" for a, b in whole)
    left, y = f"tensor<{m}x{k}xf32>", f"tensor<{m}x{n}xf32>"
    right = f"tensor<{n}x{k}xf32>" if turned else f"tensor<{k}x{n}xf32>"
    lines, wanted = [f"func.func @main(%x: {x}, %w: {w}) -> ({', '.join([y] * more)}) {{"], list[np.ndarray]()
    given = [rng.standard_normal(shape).astype(np.float32) for shape in whole]
    for number in range(more):
        row, first = int(rng.integers(whole[0][0] - m + 1)), int(rng.integers(k * more + 3 - k + 1))
        second = int(rng.integers(k * more + 3 - k + 1)) if on_right else 0
        at = (0, second) if turned else (second, 0)
        shape = (n, k) if turned else (k, n)
        lines += [
            f"  %a{number} = graph.slice %x {{starts = array<i64: {row}, {first}>, stops = array<i64: {row + m}, {first + k}>}}"
            f" : ({x}) -> {left}",
            f"  %b{number} = graph.slice %w {{starts = array<i64: {at[0]}, {at[1]}>, stops = array<i64: {at[0] + shape[0]}, "
            f"{at[1] + shape[1]}>}} : ({w}) -> {right}",
            f"  %p{number} = graph.matmul %a{number}, %b{number}{' {transpose_rhs = true}' if turned else ''} : "
            f"({left}, {right}) -> {y}",
            f"  %y{number} = graph.tanh %p{number} : ({y}) -> {y}",
        ]
        part = given[1][at[0] : at[0] + shape[0], at[1] : at[1] + shape[1]]
        wanted.append(np.tanh(given[0][row : row + m, first : first + k] @ (part.T if turned else part)))
    names = ", ".join(f"%y{number}" for number in range(more))
    text = "\n".join([*lines, f"  func.return {names} : {', '.join([y] * more)}", "}"])
    for found, expected in zip(fuse_opt.compile(text)(*given), wanted, strict=True):
        np.testing.assert_allclose(found, expected, 2e-5, 2e-5)
