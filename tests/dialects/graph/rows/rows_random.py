"""Rows of random numbers, by Philox-4x32-10 on Python integers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from graph_op_table import FLOATS, INTEGERS, TYPES, Array, Case, Row, converted, rounded
from rows_placement import Shape, numbers

MASK = 0xFFFFFFFF
Four = tuple[int, int, int, int]


def philox(counter: Four, key: tuple[int, int]) -> Four:
    """The ten rounds of the paper's section 3.3."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = second >> 32 ^ c1 ^ k0, second & MASK, first >> 32 ^ c3 ^ k1, first & MASK
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c0, c1, c2, c3


def words(count: int, seed: int, offset: int = 0) -> list[Four]:
    key = (seed & MASK, seed >> 32 & MASK)
    return [philox((i & MASK, i >> 32, offset & MASK, offset >> 32 & MASK), key) for i in range(count)]


STREAMS: list[tuple[Shape, int, int | None]] = [
    ((9,), 0, None),
    ((2, 3), 1234567890123, None),
    ((2, 1, 5), -1, None),
    ((), 7, None),
    ((0, 3), 7, None),
    ((9,), 0, 0),
    ((2, 3), 42, 5),
    ((4,), 42, -(2**40) - 3),
]


def random_case(
    op: str, name: str, shape: Shape, seed: int, offset: int | None, rest: str, values: list[float]
) -> Case:
    inputs: tuple[Array, ...] = () if offset is None else (np.array(offset, np.int64),)
    text = f"shape = {numbers(shape)}, seed = {seed} : i64, dtype = {name}{rest}"
    expected = np.array(values, np.int64) if name in INTEGERS else np.array(values, np.float64)
    final = expected.astype(np.uint64).astype(TYPES[name]) if name in INTEGERS else rounded(expected, name)
    return Case(f"graph.{op}", text, inputs, (converted(expected, name) if name == "i1" else final).reshape(shape))


def _bits_cases() -> Iterator[Case]:
    for name in (*INTEGERS, "i1"):
        for shape, seed, offset in STREAMS:
            found: list[float] = []
            for w in words(math.prod(shape), seed, offset or 0):
                both = w[0] | w[1] << 32
                found.append(w[0] & 1 if name == "i1" else both - (both >> 63 << 64))
            yield random_case("random_bits", name, shape, seed, offset, "", found)


def unit(w: Four, name: str) -> Fraction:
    if name == "f64":
        return Fraction((w[0] << 32 | w[1]) >> 11, 2**53)
    digits = {"f32": 24, "f16": 11, "bf16": 8}[name]
    return Fraction(w[0] >> 32 - digits, 2**digits)


def _uniform_cases() -> Iterator[Case]:
    for name in FLOATS:
        for shape, seed, offset in STREAMS:
            for low, high in [(0.0, 1.0), (-2.0, 3.5), (0.0, 0.1)]:
                span = high - low
                exact = Fraction(span if name == "f64" else float(np.float32(span)))
                found = [
                    float(exact * unit(w, name) + Fraction(low)) for w in words(math.prod(shape), seed, offset or 0)
                ]
                limits = f", low = {low} : f64, high = {high} : f64" * ((low, high) != (0.0, 1.0))
                yield random_case("random_uniform", name, shape, seed, offset, limits, found)


def _normal_cases() -> Iterator[Case]:
    for name in FLOATS:
        for shape, seed, offset in STREAMS:
            for mean, std in [(0.0, 1.0), (-3.0, 0.5), (0.0, 100.0)]:
                found: list[float] = []
                for w in words(math.prod(shape), seed, offset or 0):
                    wide = name == "f64"
                    distance = ((w[0] << 32 | w[1]) >> 11) + 1 if wide else w[0] + 1
                    angle = ((w[2] << 32 | w[3]) >> 11) - 2**52 if wide else w[1] - 2**31
                    radius = math.sqrt(-2 * math.log(distance / 2 ** (53 if wide else 32)))
                    found.append(radius * math.cos(math.pi * angle / 2 ** (52 if wide else 31)) * std + mean)
                moments = f", mean = {mean} : f64, std = {std} : f64" * ((mean, std) != (0.0, 1.0))
                yield random_case("random_normal", name, shape, seed, offset, moments, found)


ROWS: list[Row] = [
    Row("random_bits", [], _bits_cases),
    Row("random_uniform", [], _uniform_cases),
    Row("random_normal", [], _normal_cases),
]
