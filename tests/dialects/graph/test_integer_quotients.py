"""Quotients and remainders of integers by numbers that the text has, which compilers make multiplications, and by others."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

OPS = ("floor_divide", "remainder", "fmod")
DIVISORS = (7, -7, 1, -1, 0, 2, 1000003, 2**31 - 1, -(2**31))
NUMBERS = np.array([-(2**31), -(2**31) + 1, 2**31 - 1, *range(-17, 18), *range(-(2**30), 2**30, 99_999_989)], np.int32)


def program(op: str, divisor: int | None) -> str:
    kind, given = (
        f"tensor<{NUMBERS.size}xi32>",
        "" if divisor is None else f"%y = graph.constant dense<{divisor}> : tensor<i32>",
    )
    other = kind if divisor is None else "tensor<i32>"
    return f"""func.func @f(%x: {kind}{f", %y: {kind}" if divisor is None else ""}) -> {kind} {{
  {given}
  %r = graph.{op} %x, %y : ({kind}, {other}) -> {kind}
  func.return %r : {kind}
}}"""


@needs_compiler
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("divisor", DIVISORS)
def test_values(op: str, divisor: int) -> None:
    text, several = program(op, divisor), program(op, None)
    wanted = fuse_opt.evaluate(text, NUMBERS)
    np.testing.assert_array_equal(fuse_opt.compile(text)(NUMBERS), wanted)
    divisors = np.full_like(NUMBERS, divisor)
    np.testing.assert_array_equal(fuse_opt.compile(several)(NUMBERS, divisors), wanted)


def test_remainders_choose_no_truth_values() -> None:
    """Where others asked whether a remainder is 0, gcc 12 had no vectors: for one of a choice, or of masks, it has."""
    source = fuse_opt.compile(program("fmod", None)).source
    assert "? v0 - " not in source
