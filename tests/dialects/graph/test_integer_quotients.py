"""Quotients and remainders of integers by numbers that the text has, which compilers make multiplications, and by others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

OPS = ("floor_divide", "truncate_divide", "remainder", "fmod")
DIVISORS = (7, -7, 1, -1, 0, 2, 1000003, 2**31 - 1, -(2**31))
SMALL, WIDE = (
    [*range(-17, 18), *range(-(2**30), 2**30, 99_999_989)],
    [2**62 - 1, 2**63 - 1, -(2**63), 10**18 + 9, -(2**40) - 3],
)
NUMBERS: dict[str, Any] = {
    "i32": np.array([-(2**31), -(2**31) + 1, 2**31 - 1, *SMALL], np.int32),
    "i64": np.array([-(2**31), 2**31 - 1, *WIDE, *(-n - 1 for n in WIDE), *SMALL], np.int64),
}


def program(op: str, divisor: int | None, element: str = "i32") -> str:
    kind = f"tensor<{NUMBERS[element].size}x{element}>"
    given = "" if divisor is None else f"%y = graph.constant dense<{divisor}> : tensor<{element}>"
    other = kind if divisor is None else f"tensor<{element}>"
    return f"""func.func @f(%x: {kind}{f", %y: {kind}" if divisor is None else ""}) -> {kind} {{
  {given}
  %r = graph.{op} %x, %y : ({kind}, {other}) -> {kind}
  func.return %r : {kind}
}}"""


@needs_compiler
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("divisor", [*DIVISORS, 2**62 - 1, -(2**63)])
@pytest.mark.parametrize("element", NUMBERS)
def test_values(op: str, divisor: int, element: str) -> None:
    if element == "i32" and divisor not in DIVISORS:
        return
    text, several, x = program(op, divisor, element), program(op, None, element), NUMBERS[element]
    wanted = fuse_opt.evaluate(text, x)
    np.testing.assert_array_equal(fuse_opt.compile(text)(x), wanted)
    np.testing.assert_array_equal(fuse_opt.compile(several)(x, np.full_like(x, divisor)), wanted)


@pytest.mark.parametrize("element", NUMBERS)
def test_the_reference_truncates(element: str) -> None:
    x = NUMBERS[element].tolist()
    found = fuse_opt.evaluate(program("truncate_divide", -7, element), NUMBERS[element])
    assert np.asarray(found).tolist() == [-(n // 7) if n >= 0 else -n // 7 for n in x]


def test_remainders_choose_no_truth_values() -> None:
    """Where others asked whether a remainder is 0, gcc 12 had no vectors: for one of a choice, or of masks, it has."""
    source = fuse_opt.compile(program("fmod", None)).source
    assert "? v0 - " not in source
