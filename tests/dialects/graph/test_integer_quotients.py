"""Quotients and remainders of integers by numbers that the text has, which compilers make multiplications, and by others."""

from __future__ import annotations

from collections.abc import Sequence
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


def program(ops: Sequence[str], divisor: int | None, element: str = "i32") -> str:
    kind = f"tensor<{NUMBERS[element].size}x{element}>"
    given = "" if divisor is None else f"%y = graph.constant dense<{divisor}> : tensor<{element}>"
    other = kind if divisor is None else f"tensor<{element}>"
    lines = "\n".join(f"  %{op} = graph.{op} %x, %y : ({kind}, {other}) -> {kind}" for op in ops)
    kinds, names = ", ".join(kind for _ in ops), ", ".join(f"%{op}" for op in ops)
    return f"""func.func @f(%x: {kind}{f", %y: {kind}" if divisor is None else ""}) -> ({kinds}) {{
  {given}
{lines}
  func.return {names} : {kinds}
}}"""


@pytest.fixture(scope="module")
def several() -> dict[str, Any]:
    """By type: the program of divisors that it is given."""
    return {element: fuse_opt.compile(program(OPS, None, element)) for element in NUMBERS}


@pytest.mark.sampled(10)
@needs_compiler
@pytest.mark.parametrize(
    ("element", "divisor"),
    [*(("i32", divisor) for divisor in DIVISORS), *(("i64", divisor) for divisor in (*DIVISORS, 2**62 - 1, -(2**63)))],
)
def test_values(divisor: int, element: str, several: dict[str, Any]) -> None:
    text, x = program(OPS, divisor, element), NUMBERS[element]
    found = fuse_opt.compile(text)(x), several[element](x, np.full_like(x, divisor))
    for op, wanted, *actual in zip(OPS, fuse_opt.evaluate(text, x), *found, strict=True):
        for each in actual:
            np.testing.assert_array_equal(each, wanted, err_msg=op)


@pytest.mark.parametrize("element", NUMBERS)
def test_the_reference_truncates(element: str) -> None:
    x = NUMBERS[element].tolist()
    found = fuse_opt.evaluate(program(["truncate_divide"], -7, element), NUMBERS[element])
    assert np.asarray(found).tolist() == [-(n // 7) if n >= 0 else -n // 7 for n in x]


def test_remainders_choose_no_truth_values() -> None:
    """Where others asked whether a remainder is 0, gcc 12 had no vectors: for one of a choice, or of masks, it has."""
    source = fuse_opt.compile(program(["fmod"], None)).source
    assert "? v0 - " not in source
