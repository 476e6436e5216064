"""Transposes whose results have few neighbours: tiles of less than a vector, where these are worth it."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8}


def transposed(name: str, batch: int, count: int, width: int, op: str = "") -> str:
    a, b = f"tensor<{batch}x{width}x{count}x{name}>", f"tensor<{batch}x{count}x{width}x{name}>"
    line = f"%s = graph.{op} %t : ({b}) -> {b}" if op else ""
    return f"""func.func @f(%x: {a}) -> {b} {{
  %t = graph.permute_dims %x {{axes = array<i64: 0, 2, 1>}} : ({a}) -> {b}
  {line}
  func.return %{"s" if op else "t"} : {b}
}}"""


def kind(text: str) -> str:
    found = str(fuse_opt.optimize(text, "decompose,fuse-elementwise,fuse-injective,wrap-kernels,schedule-kernels"))
    return next(name for name in ("tile", "pointwise") if f'kind = "{name}"' in found)


@needs_compiler
@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("width", range(8, 17))
@pytest.mark.parametrize("count", (5, 16, 203))
@pytest.mark.parametrize("op", ("", "negative"))
def test_values(name: str, width: int, count: int, op: str) -> None:
    text = transposed(name, 3, count, width, op)
    x = (np.arange(3 * width * count) % 101).reshape(3, width, count).astype(TYPES[name])
    np.testing.assert_array_equal(fuse_opt.compile(text)(x), fuse_opt.evaluate(text, x))


@pytest.mark.parametrize(
    ("name", "count", "width", "op", "wanted"),
    [
        ("f32", 2001, 13, "", "tile"),
        ("f16", 2001, 9, "", "tile"),
        ("f32", 2001, 8, "", "pointwise"),
        ("i8", 2001, 13, "", "pointwise"),
        ("f32", 200001, 13, "", "pointwise"),
        ("f32", 200001, 13, "gelu", "tile"),
    ],
)
def test_where_tiles_are_worth_it(name: str, count: int, width: int, op: str, wanted: str) -> None:
    assert kind(transposed(name, 9, count, width, op)) == wanted
