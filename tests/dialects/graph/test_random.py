"""Random numbers: the published vectors, statistics, and that a number follows from its position and seed alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ir_testing import Array, evaluate, parse
from rows_random import MASK, Four, words

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.scalar.philox import philox
from fuse_opt.dialects.types.dtypes import I64
from fuse_opt.lowering.reference.scalar import evaluate_body

VECTORS: list[tuple[Four, tuple[int, int], Four]] = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK, MASK, MASK, MASK), (MASK, MASK), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Known answers of philox4x32-10 in Random123, the authors' library."""


@pytest.mark.parametrize(("counter", "key", "answer"), VECTORS)
def test_known_answers(counter: Four, key: tuple[int, int], answer: Four) -> None:
    a, b, c, d = (sc.constant(word, I64) for word in counter)
    found = [int(evaluate_body(word, (), ())) for word in philox((a, b, c, d), key)]
    assert tuple(found) == answer


def draw(op: str, shape: Sequence[int], seed: int, name: str = "f32", offset: int | None = None, rest: str = "") -> Any:
    extents = ", ".join(map(str, shape))
    type_ = f"tensor<{''.join(f'{n}x' for n in shape)}{name}>"
    attributes = f"{{shape = array<i64: {extents}>, seed = {seed} : i64, dtype = {name}{rest}}}"
    argument, operand, operand_type = ("", "", "") if offset is None else ("%o: tensor<i64>", " %o", "tensor<i64>")
    line = f"%r = graph.random_{op}{operand} {attributes} : ({operand_type}) -> {type_}"
    module = parse(f"func.func @main({argument}) -> {type_} {{\n  {line}\n  func.return %r : {type_}\n}}")
    inputs: list[Array] = [] if offset is None else [np.array(offset, np.int64)]
    return evaluate(module, inputs)[0]


COUNT = 100_000


@pytest.mark.parametrize("name", ["f32", "f64", "f16"])
def test_uniform_statistics(name: str) -> None:
    x = draw("uniform", (COUNT,), 12, name).astype(np.float64)
    assert 0 <= x.min() < 1e-3 and 0.999 < x.max() < 1
    assert abs(x.mean() - 0.5) < 5 * math.sqrt(1 / 12 / COUNT) + 2e-4 * (name == "f16")
    assert abs(x.var() - 1 / 12) < 0.002
    counts = np.histogram(x, 64, (0, 1))[0]
    assert ((counts - COUNT / 64) ** 2 / (COUNT / 64)).sum() < 120  # chi-squared of 63 degrees: 1 in 10**5
    for lag in (1, 2, 4, 256):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_normal_statistics(name: str) -> None:
    x = draw("normal", (COUNT,), 5, name).astype(np.float64)
    assert abs(x.mean()) < 5 / math.sqrt(COUNT)
    assert abs(x.var() - 1) < 0.03
    assert abs((x**3).mean()) < 0.06
    assert abs((x**4).mean() - 3) < 0.2
    assert 3.5 < np.abs(x).max() < 6.7
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / math.sqrt(COUNT)


def test_streams_are_independent() -> None:
    streams = [
        draw("uniform", (COUNT,), seed, offset=offset) for seed, offset in [(0, 0), (1, 0), (0, 1), (1 << 32, 0)]
    ]
    for k, x in enumerate(streams):
        for y in streams[k + 1 :]:
            assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(COUNT)


def test_a_number_follows_from_position_and_seed() -> None:
    flat = draw("uniform", (24,), 9)
    np.testing.assert_array_equal(draw("uniform", (2, 3, 4), 9).reshape(-1), flat)
    np.testing.assert_array_equal(draw("uniform", (5,), 9), flat[:5])
    np.testing.assert_array_equal(draw("uniform", (24,), 9, offset=0), flat)
    assert not np.any(draw("uniform", (24,), 9, offset=1) == flat)


def test_bits_are_words_of_the_paper() -> None:
    found = draw("bits", (7,), 2**40 + 3, "i64", offset=2**33 + 1)
    expected = [w[0] | w[1] << 32 for w in words(7, 2**40 + 3, 2**33 + 1)]
    np.testing.assert_array_equal(found.astype(np.uint64), np.array(expected, np.uint64))
