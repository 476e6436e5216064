"""Index expressions: simplification never changes a value, and reshapes cancel."""

import itertools
import random
from collections.abc import Callable
from operator import itemgetter

from fuse_opt.dialects.types.index_expr import (
    Clamp,
    Dim,
    IndexExpr,
    constant,
    delinearize,
    dimension,
    dimensions,
    linearize,
    loaded,
)


def test_division_uses_ranges() -> None:
    i, j = dimension("i", 10), dimension("j", 64)
    assert (i * 64 + j) // 64 == i
    assert (i * 64 + j) % 64 == j
    assert (i * 64 + j) // 128 == i // 2
    assert (i // 2) // 3 == i // 6


def test_quotient_and_remainder_recombine() -> None:
    e = dimension("e", 1000)
    assert (e // 7) * 7 + e % 7 == e
    index = delinearize(e, (10, 20, 5))
    assert linearize(index, (10, 20, 5)) == e
    assert linearize(delinearize(e, (5, 4, 50)), (5, 4, 50)) == e


def test_reshape_there_and_back_is_identity() -> None:
    index = dimensions("i", (4, 8, 256, 64))
    there = delinearize(linearize(index, (4, 8, 256, 64)), (4, 256, 512))
    back = delinearize(linearize(there, (4, 256, 512)), (4, 8, 256, 64))
    assert back == index


def test_dimension_of_extent_one_is_zero() -> None:
    assert dimension("i", 1) == constant(0)


def test_clamp_knows_ranges() -> None:
    i = dimension("i", 10)
    assert i.clamp(0, 9) == i
    assert (i + 10).clamp(0, 9) == constant(9)
    assert (i - 9).clamp(0, 9) == constant(0)
    assert i.clamp(4, 4) == constant(4)
    assert i.clamp(0, -1) == constant(-1)
    assert (i - 3).clamp(0, 5).bounds == (0, 5)


def test_clamp_stays_loose_where_it_was_made_so() -> None:
    i, j = dimension("i", 10), dimension("j", 20)
    loose = (i - 3).clamp(0, 5, loose=True).substitute({Dim("i", 10): j})
    ((atom, _),) = loose.terms
    assert isinstance(atom, Clamp) and atom.loose and loose == (j - 3).clamp(0, 5)


def test_reflection_stays_inside() -> None:
    for before, extent, after in [(3, 4, 3), (0, 5, 4), (1, 2, 1), (2, 7, 0)]:
        i = dimension("i", before + extent + after)
        p = i - before
        reflected = p - p.clamp(-before, 0) * 2 - (p - (extent - 1)).clamp(0, after) * 2
        found = [reflected.evaluate({Dim("i", before + extent + after): v}) for v in range(before + extent + after)]
        inner = list(range(extent))
        assert found == [*inner[before:0:-1], *inner, *inner[-2 : -2 - after : -1]]


def test_positions_that_are_data() -> None:
    """One is an atom of a range; its own index is substituted with the rest; data says its value, limited to what is there."""
    i, j = dimension("i", 3), dimension("j", 64)
    at = loaded("ids", (i,), 100)
    address = at * 64 + j
    assert address // 64 == at and address % 64 == j and address.bounds == (0, 6399)
    assert address.coefficients() is None and address.step(Dim("j", 64)) == 1 and address.step(Dim("i", 3)) is None
    assert address.dims() == {Dim("i", 3), Dim("j", 64)}
    assert loaded("ids", (i,), 1) == constant(0) and loaded("ids", (i,), 0) == constant(0)
    (atom,) = address.loaded()
    turned = address.substitute({Dim("i", 3): constant(2)}, {"ids": "others"})
    assert turned == loaded("others", (constant(2),), 100) * 64 + j
    assert address.substitute({atom: dimension("k", 100)}) == dimension("k", 100) * 64 + j
    for given, read in ((7, 7), (-1, 0), (100, 99)):
        data = {"ids": {(0,): given}}
        assert address.evaluate({Dim("i", 3): 0, Dim("j", 64): 5}, data) == read * 64 + 5
    nested = loaded("table", (at // 2,), 9)
    assert [each.source for each in (nested + at).loaded()] == ["ids", "table"]


Evaluate = Callable[[dict[str, int]], int]


def test_random_expressions_keep_their_values() -> None:
    rng = random.Random(7)
    shape = {"a": 3, "b": 4, "c": 5}
    for _ in range(2000):
        pool: list[tuple[IndexExpr, Evaluate]] = [(dimension(n, k), itemgetter(n)) for n, k in shape.items()]
        for _ in range(rng.randrange(1, 7)):
            pool.append(_combine(rng, rng.choice(pool), rng.choice(pool)))
        expression, evaluate = pool[-1]
        low, high = expression.bounds
        for values in itertools.product(*(range(k) for k in shape.values())):
            env = dict(zip(shape, values, strict=True))
            got = expression.evaluate({Dim(n, shape[n]): v for n, v in env.items()})
            assert got == evaluate(env)
            assert low <= got <= high


def _combine(
    rng: random.Random, left: tuple[IndexExpr, Evaluate], right: tuple[IndexExpr, Evaluate]
) -> tuple[IndexExpr, Evaluate]:
    """A random expression over two others, and how Python computes it."""
    (x, f), (y, g) = left, right
    k = rng.randrange(1, 9)
    match rng.randrange(5):
        case 0:
            return x + y, lambda env: f(env) + g(env)
        case 1:
            return x * k, lambda env: f(env) * k
        case 2:
            return x // k, lambda env: f(env) // k
        case 3:
            return x % k, lambda env: f(env) % k
        case _:
            low = rng.randrange(-3, k + 1)
            return x.clamp(low, k), lambda env: min(max(f(env), low), k)
