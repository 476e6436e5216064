"""Sizes against numbers: values, proofs, divisions, and that none becomes a number in silence."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_opt.dialects.types import extents
from fuse_opt.dialects.types.extents import common_divisor, estimate, exact_quotient, largest, least, most, smallest
from fuse_opt.dialects.types.size import Size, SizeRefusal, Undecided, symbol

N, M = symbol("n", most=512), symbol("m", least=0)
K, L = symbol("k"), symbol("l")
SYMBOLS = {"n": N, "m": M, "p": symbol("p", 2, 9), "q": symbol("q", least=8, multiple=8)}
VALUES = st.fixed_dictionaries(
    {
        "n": st.integers(1, 512),
        "m": st.integers(0, 70),
        "p": st.integers(2, 9),
        "q": st.integers(1, 20).map(lambda k: 8 * k),
    }
)
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "max": lambda a, b: largest(a, b) if isinstance(a, Size) or isinstance(b, Size) else max(a, b),
    "min": lambda a, b: smallest(a, b) if isinstance(a, Size) or isinstance(b, Size) else min(a, b),
}
LEAVES = st.sampled_from(sorted(SYMBOLS)) | st.integers(-9, 70)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    divided = st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 9))
    return st.tuples(st.sampled_from(sorted(STEPS)), inner, inner) | divided


EXPRESSIONS = st.recursive(LEAVES, _grown, max_leaves=8)


def value(expression: Any, symbols: dict[str, Any]) -> Any:
    match expression:
        case str():
            return symbols[expression]
        case int():
            return expression
        case ("//", a, k):
            return value(a, symbols) // k
        case ("%", a, k):
            return value(a, symbols) % k
        case (step, a, b):
            return STEPS[step](value(a, symbols), value(b, symbols))
        case _:
            raise TypeError(expression)


def unless_undecided(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (Undecided, ZeroDivisionError):
        return None


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, st.lists(VALUES, min_size=3, max_size=3))
def test_sizes_are_what_numbers_give(one: Any, other: Any, draws: list[dict[str, int]]) -> None:
    a, b = value(one, SYMBOLS), value(other, SYMBOLS)
    for values in draws:
        x, y = value(one, values), value(other, values)
        assert extents.evaluate(a, values) == x and least(a) <= x <= most(a)
        assert a != b or x == y
        for compare in (operator.le, operator.lt, operator.ge, operator.gt):
            assert unless_undecided(lambda compare=compare: compare(a, b)) in (None, compare(x, y))
        if y != 0:
            quotients = unless_undecided(lambda: a // b), exact_quotient(a, b)
            assert all(q is None or extents.evaluate(q, values) == x // y for q in quotients)
        divisor = extents.evaluate(common_divisor(a, b), values)
        assert (x % divisor, y % divisor) == (0, 0) if divisor else (x, y) == (0, 0)
        assert extents.evaluate(extents.substitute(a, {"n": M + 1}), values) == value(
            one, values | {"n": values["m"] + 1}
        )


def test_normal_forms() -> None:
    q = SYMBOLS["q"]
    assert (4 * N + 8) // 4 == N + 2 and 16 * (q // 8) == 2 * q and (N + M) * (N - M) == N * N - M * M
    assert (N // 2 + 3) // 4 == (N + 6) // 8 and -(-N // 4) == (N + 3) // 4 and N - N == 0
    assert divmod(N * M + M, N + 1) == (M, 0) and divmod(5, N + 5) == (0, 5)
    assert largest(N, M + N) == M + N and smallest(N, 512) == N and largest(N, M) == largest(M, N)
    texts = {str(size) for size in (4 * K * L - K + 3, q // 16 + K, 2 * (K // 3), -(K // 3), largest(K, L), N)}
    assert texts == {
        "4*k*l - k + 3",
        "((q{least = 8, multiple = 8} floordiv 8) floordiv 2) + k",
        "2*(k floordiv 3)",
        "-(k floordiv 3)",
        "max(k, l)",
        "n{most = 512}",
    }


def test_proofs() -> None:
    assert N <= 512 and not N > 512 and N * M <= 512 * M and N // 2 <= N and 2 * (N // 2) + 1 >= N and N * N >= N
    assert largest(N, 100) >= N and smallest(N, 100) <= 100 and bool(N) and SYMBOLS["q"] >= 8
    assert M * M + (M // 2) * (M // 2) <= 2**63 - 1 and N * N <= 512 * 512
    questions: list[Callable[[], Any]] = [lambda: N < 100, lambda: bool(M), lambda: N // M, lambda: (N + 5) // (2 * N)]
    for question in questions:
        with pytest.raises(Undecided, match="cannot decide between sizes"):
            question()
    assert estimate(N) == 22 and estimate(symbol("x")) == 1024 and estimate(3 * symbol("y", typical=7)) == 21


def test_no_size_becomes_a_number() -> None:
    numbers: Any = [1]
    uses: list[Callable[[Any], Any]] = [int, float, range, numbers.__getitem__, lambda n: n / 2, lambda n: 2**n]
    for use in uses:
        with pytest.raises(SizeRefusal if use not in (range, uses[-1]) else TypeError):
            use(N)


def test_ranges_without_a_number_are_refused() -> None:
    for arguments, message in [
        ((5, 4), "no number from 5 to 4"),
        ((-1,), "least value of 0 or more, got -1"),
        ((1, 7, 8), "no number from 1 to 7 that is a multiple of 8"),
        ((1, 9, 1, 10), "expected 1 to 9 as the typical value, got 10"),
    ]:
        with pytest.raises(ValueError, match=f"symbol 's': .*{message}"):
            symbol("s", *arguments)
