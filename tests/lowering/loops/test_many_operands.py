"""Concatenations of many tensors: each is copied by a loop of its own, and no element looks for its tensor among all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt


def joined(parts: list[tuple[int, int]], axis: int) -> str:
    shape = [*parts[0]]
    shape[axis] = sum(part[axis] for part in parts)
    types = [f"tensor<{n}x{m}xf32>" for n, m in parts]
    result, names = f"tensor<{shape[0]}x{shape[1]}xf32>", [f"%a{k}" for k in range(len(parts))]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
    return f"""func.func @f({arguments}) -> {result} {{
  %r = graph.concat {", ".join(names)} {{axis = {axis} : i64}} : ({", ".join(types)}) -> {result}
  func.return %r : {result}
}}"""


@pytest.mark.sampled(5)
@needs_compiler
@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("count", (33, 64, 65, 90))
def test_many_tensors(count: int, axis: int) -> None:
    """Beyond 80 the reference ran them, which compares positions with all that there are for each element."""
    extents = [1 + k % 3 for k in range(count)]
    parts: list[tuple[int, int]] = [(n, 19) if axis == 0 else (5, n) for n in extents]
    arrays: list[Any] = [np.full(part, k, np.float32) for k, part in enumerate(parts)]
    program = fuse_opt.compile(joined(parts, axis))
    assert program.stats.library_calls == 0
    np.testing.assert_array_equal(program(*arrays), np.concatenate(arrays, axis))


def test_each_tensor_has_a_loop() -> None:
    """Of more than 32 the loops were one, which read all tensors for each element."""
    source = fuse_opt.compile(joined([(1, 64)] * 60, 0)).source
    assert "? a" not in source
    assert source.count("_1 = a") >= 60
