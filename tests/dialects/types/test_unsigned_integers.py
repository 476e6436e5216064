"""Unsigned integers of all widths: one list of element types everywhere, and programs at the ends of their ranges."""

from __future__ import annotations

import numpy as np
import pytest
from graph_op_table import Array
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.dialects.types.dtypes import DTYPES
from fuse_opt.lowering.c.language import CUDA, C
from fuse_opt.lowering.program import NUMPY_NAMES
from fuse_opt.lowering.reference.scalar import NUMPY_DTYPES

WIDTHS = (8, 16, 32, 64)
TARGETS = ("reference", pytest.param("cpu", marks=needs_compiler))


def test_every_element_type_is_known_everywhere() -> None:
    for dtype in DTYPES:
        assert np.dtype(NUMPY_NAMES[dtype.name]) == NUMPY_DTYPES[dtype], dtype
        assert dtype.name in C.types and dtype.name in CUDA.types, dtype
    assert set(NUMPY_NAMES) == {dtype.name for dtype in DTYPES}


def _values(bits: int) -> Array:
    """Numbers of all sizes, those beyond the signed range and both ends among them, more than a vector of each."""
    kind = np.dtype(f"u{bits // 8}")
    rng = np.random.default_rng(bits)
    x = rng.integers(0, 2**bits - 1, (37, 53), kind, endpoint=True)
    x[::3, 1], x[1::3, 2], x[2, 3:7] = 2**bits - 1, 0, 2 ** (bits - 1)
    return x


@pytest.mark.sampled(20)
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("op", ("max", "min", "sum", "prod", "argmax", "argmin", "cumulative_sum", "sort"))
def test_order_is_that_of_unsigned_numbers(op: str, axis: int, target: str, bits: int) -> None:
    x = _values(bits)
    t = f"ui{bits}"
    kept = op in ("cumulative_sum", "sort")
    shape = "37x53x" if kept else ("53x" if axis == 0 else "37x")
    result = f"tensor<{shape}{'i64' if op.startswith('arg') else t}>"
    axes = f"axes = array<i64: {axis}>" if op in ("max", "min", "sum", "prod") else f"axis = {axis} : i64"
    text = (
        f"func.func @main(%x: tensor<37x53x{t}>) -> {result} {{\n"
        f"  %r = graph.{op} %x {{{axes}}} : (tensor<37x53x{t}>) -> {result}\n  func.return %r : {result}\n}}\n"
    )
    (got,) = as_list(fuse_opt.compile(text, target=target)(x))
    wanted = {
        "sum": lambda: np.sum(x, axis, dtype=x.dtype),
        "prod": lambda: np.prod(x, axis, dtype=x.dtype),
        "cumulative_sum": lambda: np.cumsum(x, axis, dtype=x.dtype),
    }.get(op, lambda: getattr(np, op)(x, axis=axis))()
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == (np.int64 if op.startswith("arg") else x.dtype)
