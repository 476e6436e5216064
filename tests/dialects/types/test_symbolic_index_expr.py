"""Index expressions over sizes: random chains of reshapes and permutations are what they are over numbers."""

from __future__ import annotations

import random
from math import prod
from typing import Any

from fuse_opt.dialects.types.extents import evaluate, exact_quotient
from fuse_opt.dialects.types.index_expr import (
    Clamp,
    Dim,
    Index,
    IndexExpr,
    Loaded,
    Quotient,
    Remainder,
    delinearize,
    dimension,
    dimensions,
    linearize,
)
from fuse_opt.dialects.types.size import Extent, Undecided, symbol

B, S, T = symbol("b", most=4), symbol("s"), symbol("t", least=4, multiple=4)
START: list[list[Extent]] = [[B, S, 12], [B, T, 6], [S, 4, T], [2, S, S + 1, 3], [8 * S, T]]


def value(expression: IndexExpr, dims: dict[str, int], symbols: dict[str, int]) -> int:
    """The value at numbers for dimensions and symbols."""
    total = evaluate(expression.constant, symbols)
    for atom, factor in expression.terms:
        match atom:
            case Dim():
                part = dims[atom.name]
            case Quotient():
                part = value(atom.numerator, dims, symbols) // evaluate(atom.divisor, symbols)
            case Remainder():
                part = value(atom.numerator, dims, symbols) % evaluate(atom.divisor, symbols)
            case Loaded():
                raise AssertionError("no position here is data")
            case Clamp():
                clamped = max(value(atom.value, dims, symbols), evaluate(atom.low, symbols))
                part = min(clamped, evaluate(atom.high, symbols))
        total += evaluate(factor, symbols) * part
    return total


def reshaped(extents: list[Extent], given: random.Random) -> list[Extent]:
    """Other extents of as many elements: two neighbours as one, or one as two."""
    at = given.randrange(len(extents))
    if given.random() < 0.5 and at + 1 < len(extents):
        return [*extents[:at], extents[at] * extents[at + 1], *extents[at + 2 :]]
    for factor in given.sample([2, 3, 4, B, S], 5):
        if (rest := exact_quotient(extents[at], factor)) is not None:
            pair = [factor, rest] if given.random() < 0.5 else [rest, factor]
            return [*extents[:at], *pair, *extents[at + 1 :]]
    return extents


def chain(extents: list[Extent], steps: list[Any]) -> tuple[list[Extent], Index]:
    """Where the last of a chain of views reads the first, for each element; a step is an order of axes, or other extents."""
    shapes, orders = [extents], list[list[int] | None]()
    for step in steps:
        is_order = step[0] == "permute"
        shapes.append([shapes[-1][axis] for axis in step[1]] if is_order else step[1])
        orders.append(step[1] if is_order else None)
    index: Index = dimensions("i", shapes[-1])  # pyright: ignore[reportArgumentType]
    for shape, after, order in reversed(list(zip(shapes, shapes[1:], orders, strict=False))):
        if order is None:
            index = delinearize(linearize(index, after), shape)  # pyright: ignore[reportArgumentType]
        else:
            index = tuple([index[order.index(axis)] for axis in range(len(index))])
    return shapes[-1], index


def test_chains_of_views() -> None:
    given, undecided = random.Random(4), 0
    for _ in range(120):
        extents = given.choice(START)
        steps, shape = list[Any](), extents
        for _ in range(given.randint(1, 5)):
            if given.random() < 0.4:
                order = given.sample(range(len(shape)), len(shape))
                steps.append(("permute", order))
                shape = [shape[axis] for axis in order]
            else:
                shape = reshaped(shape, given)
                steps.append(("reshape", shape))
        try:
            last, index = chain(extents, steps)
        except Undecided:
            undecided += 1
            continue
        for _ in range(3):
            symbols = {"b": given.randint(1, 4), "s": given.randint(1, 7), "t": 4 * given.randint(1, 3)}
            numbers = [(kind, [evaluate(n, symbols) for n in what]) for kind, what in steps]
            start = [evaluate(n, symbols) for n in extents]
            _, wanted = chain(start, numbers)  # pyright: ignore[reportArgumentType]
            sizes = [evaluate(n, symbols) for n in last]
            assert prod(sizes) == prod(start)
            for _ in range(4):
                dims = {f"i{axis}": given.randrange(n) for axis, n in enumerate(sizes)}
                found = [value(expression, dims, symbols) for expression in index]
                assert found == [value(expression, dims, {}) for expression in wanted], (extents, steps, symbols)
    assert undecided < 12


def test_what_is_proven_is_simplified() -> None:
    s: Any = S
    i, j = dimension("i", 10), dimension("j", s)
    assert (i * s + j) // s == i and (i * s + j) % s == j
    assert delinearize(linearize(dimensions("i", (4, s, 64)), (4, s, 64)), (4, s * 64)) == delinearize(
        linearize(dimensions("i", (4, s, 64)), (4, s, 64)), (4, 64 * s)
    )
    index: Index = dimensions("i", (s, 8, 64))
    there = delinearize(linearize(index, (s, 8, 64)), (s, 512))
    assert delinearize(linearize(there, (s, 512)), (s, 8, 64)) == index
    assert (j - 3).clamp(0, s).bounds[0] == 0 and j.clamp(0, s) == j
