"""The first elements of lines in order, as compiled tasks: the same as the reference's, on any number of threads."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.lowering.program import NUMPY_NAMES
from fuse_opt.runtime.host import thread_pool

Array = npt.NDArray[Any]
TYPES = ("f32", "f64", "f16", "bf16", "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")


def text(name: str, shape: tuple[int, ...], k: int, axis: int, largest: bool) -> str:
    extents = "".join(f"{n}x" for n in shape)
    found = "".join(f"{k if at == axis else n}x" for at, n in enumerate(shape))
    given, types = f"tensor<{extents}{name}>", f"tensor<{found}{name}>, tensor<{found}i64>"
    attributes = f"k = {k} : i64, axis = {axis} : i64, largest = {str(largest).lower()}"
    return f"""func.func @main(%x: {given}) -> ({types}) {{
  %v, %i = graph.top_k %x {{{attributes}}} : ({given}) -> ({types})
  func.return %v, %i : {types}
}}"""


def values(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Few different numbers or many, the extremes of a type, zeros of both signs, and NaN."""
    dtype, count = np.dtype(NUMPY_NAMES[name]), prod(shape)
    if dtype.kind in "biu":
        low, high = (0, 1) if name == "i1" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        near = rng.integers(max(low, -3), min(high, 9), count, endpoint=True).astype(dtype)
        return np.where(rng.random(count) < 0.1, np.array([low, high], dtype)[rng.integers(0, 2, count)], near).reshape(
            shape
        )
    numbers = rng.standard_normal(count) if rng.random() < 0.5 else rng.integers(-3, 4, count) * 0.5
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7])[rng.integers(0, 7, count)]
    return np.where(rng.random(count) < rng.choice([0.0, 0.05, 0.6]), special, numbers).astype(dtype).reshape(shape)


def same(found: Array, wanted: Array) -> bool:
    """Bits, but those of NaN."""
    return bool(((found == wanted) | ((found != found) & (wanted != wanted))).all())


@needs_compiler
@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(120))
def test_random_lines(seed: int) -> None:
    drawn, rng = random.Random(seed), np.random.default_rng(seed)
    name, axis = TYPES[seed % len(TYPES)], drawn.randrange(3)
    shape = [drawn.choice((1, 2, 5, 33)) for _ in range(3)]
    shape[axis] = drawn.choice((1, 7, 40, 333, 1500))
    k = min(shape[axis], drawn.choice((1, 2, 5, 50, 1024)))
    program = text(name, tuple(shape), k, axis, drawn.random() < 0.6)
    x = values(rng, name, tuple(shape))
    wanted, compiled = fuse_opt.evaluate(program, x), fuse_opt.compile(program)
    assert compiled.stats.foreign_calls == 1
    threads = thread_pool.num_threads()
    try:
        for count in (1, 3):
            thread_pool.set_num_threads(count)
            found = compiled(x)
            assert same(found[0], wanted[0])
            np.testing.assert_array_equal(found[1], wanted[1])
    finally:
        thread_pool.set_num_threads(threads)


@needs_compiler
def test_more_than_a_heap_holds() -> None:
    """Heaps are on a task's stack: the reference runs what has more."""
    program, x = text("f32", (2, 1500), 1025, 1, True), np.random.default_rng(0).standard_normal((2, 1500), np.float32)
    compiled = fuse_opt.compile(program)
    assert compiled.stats.foreign_calls == 0
    np.testing.assert_array_equal(compiled(x)[1], fuse_opt.evaluate(program, x)[1])
