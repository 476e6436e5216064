"""What primitives state about themselves is true of what they compute: NaN, sign, order of operands."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.scalar import PRIMITIVES
from fuse_opt.dialects.scalar.intervals import Interval
from fuse_opt.dialects.types.dtypes import BOOL, F32, I32, DType, Kind
from fuse_opt.lowering.reference.scalar import evaluate_body

FLOATS = np.array([np.nan, -np.inf, -3.5, -1.0, -0.0, 0.0, 0.3, 1.0, 2.0, np.inf], np.float32)
INTEGERS = np.array([-7, -1, 0, 1, 5], np.int32)


def applied(name: str, dtype: DType, *operands: np.ndarray) -> np.ndarray:
    body = sc.apply(name, *(sc.operand(number, dtype) for number in range(len(operands))))
    with np.errstate(all="ignore"):
        return np.asarray(evaluate_body(body, list(operands), ()))


def grid(values: np.ndarray, arity: int) -> list[np.ndarray]:
    return [np.array(column, values.dtype) for column in zip(*product(values, repeat=arity), strict=True)]


FLOAT_PRIMITIVES = [
    name for name, fact in PRIMITIVES.items() if Kind.FLOAT in fact.kinds and name not in ("select", "cast", "bitcast")
]


@pytest.mark.parametrize("name", FLOAT_PRIMITIVES)
def test_nan_and_sign(name: str) -> None:
    fact = PRIMITIVES[name]
    operands = grid(FLOATS, fact.arity)
    result = applied(name, F32, *operands)
    if fact.gives_bool:
        assert not fact.spreads_nan and fact.interval is None
        return
    spread = all(np.isnan(result[np.isnan(operand)]).all() for operand in operands)
    assert fact.spreads_nan <= spread, "it states that NaN spreads"


@pytest.mark.parametrize("name", [name for name, fact in PRIMITIVES.items() if fact.interval is not None])
def test_intervals(name: str) -> None:
    """Whatever lies between the ends of the operands gives what lies between those of the result."""
    fact, draw = PRIMITIVES[name], np.random.default_rng(7)
    assert fact.interval is not None
    edges = np.array([-np.inf, -3e38, -100, -1, -1e-20, 0, 1e-20, 0.5, 1, 3, 90, 3e38, np.inf], np.float32)
    for _ in range(200):
        ends = [np.sort(draw.choice(edges, 2)) for _ in range(fact.arity)]
        between = [draw.uniform(np.float32(0), np.float32(1), 60).astype(np.float32) for _ in ends]
        with np.errstate(all="ignore"):
            inner = [low + (high - low) * part for (low, high), part in zip(ends, between, strict=True)]
        operands = [np.concatenate((end, np.clip(x, *end))) for end, x in zip(ends, inner, strict=True)]
        operands = [draw.permutation(x) for x in operands]
        if name == "select":
            with np.errstate(all="ignore"):
                result = np.where(operands[0] > 0, operands[1], operands[2])
        else:
            result = applied(name, F32, *operands)
        found = fact.interval(*(Interval(float(low), float(high)) for low, high in ends)).widened()
        known = result[~np.isnan(result)].astype(np.float64)
        assert ((found.low <= known) & (known <= found.high)).all(), (ends, found, known.min(), known.max())


@pytest.mark.parametrize("name", [name for name, fact in PRIMITIVES.items() if fact.arity == 2])
def test_order_of_operands(name: str) -> None:
    fact = PRIMITIVES[name]
    for dtype, values in ((F32, FLOATS), (I32, INTEGERS), (BOOL, np.array([False, True]))):
        if dtype.kind not in fact.kinds or (name in ("shl", "shr") and dtype is I32):
            continue
        x, y = grid(values, 2)
        if fact.commutative:
            np.testing.assert_array_equal(applied(name, dtype, x, y), applied(name, dtype, y, x))
        if fact.idempotent:
            np.testing.assert_array_equal(applied(name, dtype, x, x), x)
