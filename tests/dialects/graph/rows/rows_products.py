"""Rows of products of tensors: NumPy's einsum in float64, or in Python integers wrapped to their type."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from graph_op_table import FLOATS, INTEGERS, Array, Case, Row, converted, noise, ramp, rounded, wide, wrapped

NUMBERS = (*FLOATS, *INTEGERS)
Shape = tuple[int, ...]


def values(name: str, *shape: int) -> Array:
    return noise(name, *shape) if name in FLOATS else ramp(name, *shape)


def summed(name: str, equation: str, *operands: Array) -> Array:
    """NumPy's einsum without order of its own."""
    if name in FLOATS:
        return rounded(np.einsum(equation, *map(wide, operands), optimize=False), name)
    return wrapped(np.einsum(equation, *(x.astype(np.int64) for x in operands), optimize=False), name)


def _gemm_cases() -> Iterator[Case]:
    sizes = [(3, 4, 5), (1, 1, 1), (0, 2, 3), (3, 0, 2), (2, 3, 0)]
    added: list[Shape | None] = [None, (3, 5), (5,), (3, 1), ()]
    for name, c, (m, k, n) in product(FLOATS, added, sizes):
        if c and (m, n) != (3, 5):
            continue
        operands = (noise(name, m, k), ramp(name, k, n), *([noise(name, *c)] if c is not None else []))
        offset = wide(operands[2]) if c is not None else 0.0
        yield Case("graph.gemm", "", operands, rounded(wide(operands[0]) @ wide(operands[1]) + offset, name))
    for name, left, right in product(FLOATS, (False, True), (False, True)):
        a = noise(name, 4, 3) if left else noise(name, 3, 4)
        b, c = ramp(name, 5, 4) if right else ramp(name, 4, 5), noise(name, 5)
        value = 0.5 * (wide(a).T if left else wide(a)) @ (wide(b).T if right else wide(b)) - 2 * wide(c)
        flags = f"transpose_a = {str(left).lower()}, transpose_b = {str(right).lower()}"
        yield Case("graph.gemm", f"alpha = 0.5 : f64, beta = -2.0 : f64, {flags}", (a, b, c), rounded(value, name))
    a, b, c = noise("f32", 2, 3), noise("f32", 3, 2), np.full(2, np.nan, np.float32)
    yield Case("graph.gemm", "beta = 0.0 : f64", (a, b, c), summed("f32", "ij,jk->ik", a, b))


def _linear_cases() -> Iterator[Case]:
    shapes: list[Shape] = [(3, 4), (2, 3, 4), (4,), (0, 4)]
    for name, shape, biased in product(FLOATS, shapes, (False, True)):
        x, weight, bias = noise(name, *shape), ramp(name, 5, 4), noise(name, 5)
        value = wide(x) @ wide(weight).T + (wide(bias) if biased else 0.0)
        yield Case("graph.linear", "", (x, weight, *([bias] if biased else [])), rounded(value, name))
    x, weight = noise("f32", 2, 0), noise("f32", 3, 0)
    yield Case("graph.linear", "", (x, weight), np.zeros((2, 3), np.float32))


def _outer_cases() -> Iterator[Case]:
    for name, (n, m) in product(NUMBERS, [(3, 4), (1, 1), (0, 3), (5, 2)]):
        a, b = values(name, n), values(name, m)
        yield Case("graph.outer", "", (a, b), summed(name, "i,j->ij", a, b))


def _vecdot_cases() -> Iterator[Case]:
    shapes: list[tuple[Shape, Shape, int]] = [
        ((4,), (4,), -1),
        ((3, 4), (4,), -1),
        ((2, 3, 4), (3, 1), -2),
        ((2, 1, 3), (5, 3), -1),
        ((3, 0), (3, 0), -1),
        ((0, 3), (0, 3), -1),
    ]
    for name, (a, b, axis) in product(NUMBERS, shapes):
        x, y = values(name, *a), values(name, *b)
        text = "" if axis == -1 else f"axis = {axis} : i64"
        if name in FLOATS:
            value = rounded((wide(x) * wide(y)).sum(axis=axis), name)
        else:
            value = wrapped((x.astype(np.int64) * y.astype(np.int64)).sum(axis=axis), name)
        yield Case("graph.vecdot", text, (x, y), value)
    large = converted(np.array([300.0, 300.0, 60000.0]), "f16")
    yield Case("graph.vecdot", "", (large, converted(np.array([300.0, -300.0, 1.0]), "f16")), large[2])


EQUATIONS: list[tuple[str, list[Shape]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,kj", [(3, 4), (5, 4)]),
    ("ji,jk->ki", [(4, 3), (4, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bkhd->bhqk", [(2, 2, 3, 4), (2, 5, 2, 4)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...ij,jk", [(2, 3, 4), (4, 2)]),
    ("i...,i...->...", [(3, 2), (3, 2)]),
    ("...i->i...", [(2, 3, 4)]),
    ("...,...", [(2, 3), (3,)]),
    ("...i->i", [(2, 3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i->", [(4,), (4,)]),
    ("i,i->i", [(4,), (4,)]),
    ("ij,ij->i", [(3, 4), (3, 4)]),
    ("ij->ji", [(3, 4)]),
    ("ba", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->j", [(3, 4)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iij->ji", [(3, 3, 2)]),
    ("iii->i", [(3, 3, 3)]),
    ("ijji->i", [(2, 3, 3, 2)]),
    ("iij,jk->ki", [(3, 3, 2), (2, 4)]),
    ("ab,bcd,dc->a", [(2, 3), (3, 4, 2), (2, 4)]),
    ("ij,jk,kl,lm->im", [(2, 3), (3, 2), (2, 4), (4, 2)]),
    ("i,ij,j->", [(3,), (3, 4), (4,)]),
    ("ijk,j->ik", [(2, 3, 4), (3,)]),
    ("abc,abd->acd", [(2, 3, 4), (2, 3, 5)]),
    ("ijx,jy->i", [(2, 3, 2), (3, 2)]),
    ("ij,jk->ik", [(3, 1), (4, 5)]),
    ("ij,ij->ij", [(3, 1), (1, 4)]),
    (" i j , j k -> i k ", [(2, 3), (3, 2)]),
    (",i->i", [(), (3,)]),
    ("->", [()]),
    ("ij,jk->ik", [(3, 0), (0, 2)]),
    ("ij,jk->ik", [(0, 3), (3, 2)]),
    ("ij->i", [(3, 0)]),
]


def _einsum_cases() -> Iterator[Case]:
    for name, (equation, shapes) in product(("f32", "i8"), EQUATIONS):
        yield _einsum(name, equation, shapes)
    for name, (equation, shapes) in product(NUMBERS, EQUATIONS[::6]):
        yield _einsum(name, equation, shapes)


def _einsum(name: str, equation: str, shapes: list[Shape]) -> Case:
    operands = tuple(values(name, *shape) for shape in shapes)
    hidden = "..." in equation and "..." not in equation.partition("->")[2] and "->" in equation
    named = equation.replace("...", "yz") if hidden else equation  # NumPy wants the ellipsis in the result
    value = summed(name, named, *operands)
    return Case("graph.einsum", f'equation = "{equation}"', operands, value)


ROWS: list[Row] = [
    Row("gemm", FLOATS, _gemm_cases),
    Row("linear", FLOATS, _linear_cases),
    Row("outer", NUMBERS, _outer_cases),
    Row("vecdot", NUMBERS, _vecdot_cases),
    Row("einsum", NUMBERS, _einsum_cases),
]
