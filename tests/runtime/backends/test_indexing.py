"""Reads and writes at positions that are data, as tasks of the pool: the same bits as NumPy's for any number of threads."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.runtime.host import thread_pool

Array = npt.NDArray[Any]
TYPES = {
    "f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "ui8": np.uint8, "f16": np.float16, "i1": np.bool_,
}  # fmt: skip
INDEX_TYPES = ("i64", "i32", "i16", "i8", "ui8")


def tensor(name: str, extents: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{n}x' for n in extents)}{name}>"


def values(rng: random.Random, name: str, extents: tuple[int, ...]) -> Array:
    numbers = np.array([rng.randint(-9, 9) for _ in range(prod(extents))]).reshape(extents)
    return (numbers * 0.75).astype(TYPES[name]) if name[0] == "f" else numbers.astype(TYPES[name])


def program(rng: random.Random) -> tuple[str, list[Array]]:
    """A call at random positions, and its arguments."""
    name, kind = rng.choice(list(TYPES)), rng.choice(INDEX_TYPES)
    rank = rng.randint(1, 3)
    shape = tuple(rng.choice((1, 2, 3, 7, 30, 67)) for _ in range(rank))
    axis = rng.randrange(rank)
    x = values(rng, name, shape)

    def positions(extent: int, extents: tuple[int, ...]) -> Array:
        low = 0 if kind == "ui8" else -extent
        return np.array([rng.randrange(low, extent) for _ in range(prod(extents))], TYPES[kind]).reshape(extents)

    count = rng.choice((1, 5, 64, 300))
    along = (*shape[:axis], count, *shape[axis + 1 :])
    op, reduce = rng.choice(("take", "take_along_axis", "index", "scatter", "scatter_reduce", "index_put", "total")), ""
    if op == "take":
        operands, result = [x, positions(shape[axis], (count, 2))], (*shape[:axis], count, 2, *shape[axis + 1 :])
    elif op == "take_along_axis":
        operands, result = [x, positions(shape[axis], along)], along
    elif op == "total":
        if name in ("i1", "f16"):
            return program(rng)
        op, operands, result = rng.choice(("cumulative_sum", "cumulative_prod")), [x], shape
        form = rng.choice(("", "", "exclusive", "include_initial"))
        result = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]) if form == "include_initial" else shape
        reduce = f", {form} = true" * bool(form) + ", reverse = true" * rng.randint(0, 1)
    elif op in ("scatter", "scatter_reduce"):
        if op == "scatter_reduce" and name == "i1":
            return program(rng)
        reduce = f', reduce = "{rng.choice(("add", "mul", "max", "min"))}"' if op == "scatter_reduce" else ""
        operands, result = [x, positions(shape[axis], along), values(rng, name, along)], shape
    else:
        named = rng.randint(1, rank)
        operands = [x, *(positions(n, (count, 1) if k else (1, 3)) for k, n in enumerate(shape[:named]))]
        together = (1, 3) if named == 1 else (count, 3)
        result, axis = (*together, *shape[named:]), -1
        if op == "index_put":
            update = result if rng.random() < 0.7 else shape[named:]
            operands.insert(1, values(rng, name, update))
            result, reduce = shape, "accumulate = true" if name != "i1" and rng.random() < 0.5 else ""
    attributes = reduce if axis < 0 else f"axis = {axis} : i64{reduce}"
    names = [next(key for key, known in TYPES.items() if a.dtype == known) for a in operands]
    types = [tensor(n, a.shape) for n, a in zip(names, operands, strict=True)]
    given = ", ".join(f"%a{k}: {t}" for k, t in enumerate(types))
    used = ", ".join(f"%a{k}" for k in range(len(types)))
    text = f"func.func @main({given}) -> {tensor(name, result)} {{\n"
    text += f"  %r = graph.{op} {used} {{{attributes}}} : ({', '.join(types)}) -> {tensor(name, result)}\n"
    return text + f"  func.return %r : {tensor(name, result)}\n}}", operands


@pytest.mark.sampled(13)
@needs_compiler
@pytest.mark.parametrize("seed", range(60))
def test_random_calls(seed: int) -> None:
    text, arguments = program(random.Random(seed))
    wanted = fuse_opt.evaluate(text, *arguments)
    compiled = fuse_opt.compile(text)
    threads = thread_pool.num_threads()
    try:
        for count in (1, 2, 4):
            thread_pool.set_num_threads(count)
            np.testing.assert_array_equal(compiled(*arguments), wanted)
    finally:
        thread_pool.set_num_threads(threads)


@needs_compiler
@pytest.mark.parametrize("op", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("name", ["f32", "f64", "i8", "i64"])
def test_running_totals_of_lines_that_are_taken_together(name: str, op: str) -> None:
    """Columns by up to 64, rows by eight, what is left over of both, and a line alone: each as if there were no other."""
    rng = random.Random(5)
    for shape, axis in (
        ((5, 130), 0),
        ((2, 6, 65), 1),
        ((70, 9), 1),
        ((35, 3), 1),
        ((500,), 0),
        ((3, 1), 1),
        ((4, 7, 1), 1),
    ):
        x, t = values(rng, name, shape), tensor(name, shape)
        text = f"func.func @main(%x: {t}) -> {t} {{\n  %r = graph.{op} %x {{axis = {axis} : i64}} : ({t}) -> {t}\n"
        wide = x.astype(np.float64) if name == "f32" else x
        wanted = (np.cumsum if op == "cumulative_sum" else np.cumprod)(wide, axis, dtype=wide.dtype).astype(x.dtype)
        np.testing.assert_array_equal(fuse_opt.compile(f"{text}  func.return %r : {t}\n}}")(x), wanted)


@needs_compiler
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["f32", "f64", "i8", "ui8", "i64"])
def test_places_in_ascending_numbers(name: str, side: Literal["left", "right"]) -> None:
    """Of values below, above, equal to and between the numbers, of NaN among both, of any count of either."""
    rng = random.Random(7)
    for count, extents in ((1, (9,)), (2, (1,)), (3, (7,)), (8, (3, 5)), (67, (17, 301)), (1000, (2, 8))):
        x, v = np.sort(values(rng, name, (count,))), values(rng, name, extents)
        if name[0] == "f":
            x[count - count // 4 :], v.flat[::6] = np.nan, np.nan
            v.flat[1::5], v.flat[2::7] = np.inf, -np.inf
        given, found = (tensor(name, x.shape), tensor(name, v.shape)), tensor("i64", v.shape)
        text = f"func.func @main(%x: {given[0]}, %v: {given[1]}) -> {found} {{\n"
        text += f'  %r = graph.searchsorted %x, %v {{side = "{side}"}} : ({", ".join(given)}) -> {found}\n'
        compiled = fuse_opt.compile(f"{text}  func.return %r : {found}\n}}")
        assert "fuse.searchsorted" in str(compiled.module)
        np.testing.assert_array_equal(compiled(x, v), np.searchsorted(x, v, side))


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "given", "axis"),
    [
        ((6, 300, 5), (6, 290, 1), 1),
        ((6, 300, 5), (1, 290, 1), 1),
        ((6, 300, 5), (1, 290, 5), 1),
        ((5, 40), (1, 700), 1),
        ((70, 9), (300, 1), 0),
        ((4, 5, 1), (1, 7, 1), 1),
    ],
)
def test_indices_that_places_share(shape: tuple[int, ...], given: tuple[int, ...], axis: int) -> None:
    """As if they were broadcast, which they are in the program: it reads them where they are."""
    rng = random.Random(3)
    x, wide = values(rng, "f32", shape), (*shape[:axis], given[axis], *shape[axis + 1 :])
    indices = np.array([rng.randrange(-shape[axis], shape[axis]) for _ in range(prod(given))]).reshape(given)
    types = tensor("f32", shape), tensor("i64", given), tensor("i64", wide), tensor("f32", wide)
    text = f"""func.func @main(%x: {types[0]}, %i: {types[1]}) -> {types[3]} {{
  %0 = graph.broadcast_to %i {{shape = array<i64: {", ".join(map(str, wide))}>}} : ({types[1]}) -> {types[2]}
  %1 = graph.take_along_axis %x, %0 {{axis = {axis} : i64}} : ({types[0]}, {types[2]}) -> {types[3]}
  func.return %1 : {types[3]}
}}"""
    compiled = fuse_opt.compile(text)
    assert "fuse.take_along_axis" in str(compiled.module) and "broadcast" not in str(compiled.module)
    np.testing.assert_array_equal(compiled(x, indices), np.take_along_axis(x, np.broadcast_to(indices, wide), axis))
    indices.flat[-1] = shape[axis]
    with pytest.raises(IndexError, match=f"index {shape[axis]} "):
        compiled(x, indices)


@needs_compiler
def test_calls_are_compiled_codes() -> None:
    """None of these falls back to Python, which would be as right and many times as slow."""
    x, i, j = "tensor<8x5xf32>", "tensor<3xi64>", "tensor<8x3xi32>"
    lines = {
        f"graph.take %x, %i : ({x}, {i}) -> tensor<3x5xf32>": "tensor<3x5xf32>",
        f"graph.take_along_axis %x, %j {{axis = 1 : i64}} : ({x}, {j}) -> tensor<8x3xf32>": "tensor<8x3xf32>",
        f"graph.index %x, %i : ({x}, {i}) -> tensor<3x5xf32>": "tensor<3x5xf32>",
        f"graph.cumulative_sum %x {{axis = 0 : i64}} : ({x}) -> {x}": x,
        f"graph.cumulative_sum %x {{axis = 1 : i64, exclusive = true, reverse = true}} : ({x}) -> {x}": x,
    }
    for line, result in lines.items():
        text = f"func.func @main(%x: {x}, %i: {i}, %j: {j}) -> {result} {{\n%r = {line}\nfunc.return %r : {result}\n}}"
        assert fuse_opt.compile(text).stats.foreign_calls == 1, line


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns all the time: in the middle of what a caller does with its error, too."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@needs_compiler
@pytest.mark.usefixtures("many_switches")
def test_each_caller_gets_its_own_error() -> None:
    """Callers at the same time: an index that is out of range is the error of who gave it, and of nobody else."""
    text = """func.func @main(%x: tensor<50x3xf32>, %i: tensor<40xi64>) -> tensor<40x3xf32> {
  %r = graph.take %x, %i : (tensor<50x3xf32>, tensor<40xi64>) -> tensor<40x3xf32>
  func.return %r : tensor<40x3xf32>
}"""
    compiled, x = fuse_opt.compile(text), np.arange(150, dtype=np.float32).reshape(50, 3)

    def call(number: int) -> bool:
        index = np.full(40, number % 50)
        for turn in range(60):
            bad = (number + turn) % 3 == 0
            index[turn % 40] = 50 + number if bad else number % 50
            try:
                result = compiled(x, index)
            except IndexError as error:
                if not bad or f"index {50 + number} at" not in str(error):
                    return False
                continue
            finally:
                index[turn % 40] = number % 50
            if bad or not (result == x[number % 50]).all():
                return False
        return True

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(call, range(240)))
