"""Programs with unknown extents on a CUDA device: one text for all sizes, called with arrays of any, up and down."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from cuda_running import Array, driver_calls, normal, on_device, raises

import fuse_opt

WEIGHTED = """func.func @main(%x: tensor<?x48xf32> {graph.dims = ["rows", ""]}, %w: tensor<48x20xf32>)
    -> (tensor<?x20xf32>, tensor<20xf32>) attributes {graph.symbols = {rows = {most = 4096}}} {
  %m = graph.matmul %x, %w : (tensor<?x48xf32>, tensor<48x20xf32>) -> tensor<?x20xf32>
  %s = graph.softmax %m {axis = -1 : i64} : (tensor<?x20xf32>) -> tensor<?x20xf32>
  %t = graph.sum %s {axes = array<i64: 0>} : (tensor<?x20xf32>) -> tensor<20xf32>
  %a = graph.multiply %s, %t : (tensor<?x20xf32>, tensor<20xf32>) -> tensor<?x20xf32>
  func.return %a, %t : tensor<?x20xf32>, tensor<20xf32>
}"""
"""A product, an arena whose places follow from the rows, and several launches."""
ADDED = """func.func @main(%x: tensor<?xf32> {graph.dims = ["n"], graph.donated}, %y: tensor<?xf32> {graph.dims = ["n"]})
    -> tensor<?xf32> {
  %r = graph.add %x, %y : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  func.return %r : tensor<?xf32>
}"""
WINDOWS = """func.func @main(%x: tensor<?x4x?x6xf32>, %w: tensor<5x4x3x3xf32>) -> tensor<?x5x?x4xf32> {
  %r = graph.conv %x, %w : (tensor<?x4x?x6xf32>, tensor<5x4x3x3xf32>) -> tensor<?x5x?x4xf32>
  func.return %r : tensor<?x5x?x4xf32>
}"""


def weighted_value(x: Array, w: Array) -> tuple[Array, Array]:
    power = np.exp(x @ w - np.max(x @ w, -1, keepdims=True))
    shares = power / np.sum(power, -1, keepdims=True)
    return shares * np.sum(shares, 0), np.sum(shares, 0)


def _same(found: Any, wanted: tuple[Array, ...]) -> None:
    for given, value in zip(found, wanted, strict=True):
        array: Array = given if isinstance(given, np.ndarray) else given.get()  # pyright: ignore[reportUnknownVariableType]
        assert (array.shape, array.dtype) == (value.shape, np.float32)
        np.testing.assert_allclose(array, value, 1e-4, 1e-5)


def any_sizes() -> str:
    """Sizes up and down in turn, more than are kept, by arrays of the host and of the device, with results given and not."""
    program, w = fuse_opt.compile(WEIGHTED, "cuda"), normal(48, 20, seed=1)
    lengths = [1, 33, 700, 2, 33, 1025, 5, 64, 700, 3, 9, 11, 13, 700, 1, 33]
    with on_device() as (_, gpuarray):
        dw = gpuarray.to_gpu(w)
        modules = driver_calls("cuModuleLoadData")
        for turn, rows in enumerate(lengths):
            x = normal(rows, 48, seed=turn)
            wanted = weighted_value(x, w)
            _same(program(x, w), wanted)
            dx, out = gpuarray.to_gpu(x), [gpuarray.empty((rows, 20), np.float32), gpuarray.empty(20, np.float32)]
            for _ in range(3):  # launched, captured, replayed
                _same(program(dx, dw), wanted)
                assert program(dx, dw, out=out)[0] is out[0]
            _same(out, wanted)
        loaded = driver_calls("cuModuleLoadData")[0] - modules[0]
        assert loaded <= 2, f"{loaded} modules for all sizes and the library"
        assert program.native.made == 0, "a program for some sizes was compiled"
        assert program.native.sized.compiled == 1
        assert len(program.native._programs) <= 8, "more are kept than are said"
    return f"{len(lengths)} calls of {len(set(lengths))} sizes"


def arrays_of_other_sizes() -> str:
    """What is no array for the program is refused by name, and nothing is written."""
    program, w = fuse_opt.compile(WEIGHTED, "cuda"), normal(48, 20, seed=1)
    refused = [
        (normal(3, 47), r"argument 0 \(%x\): expected float32 \[\?, 48\], got shape \[3, 47\]"),
        (normal(3, 48, 1), r"got shape \[3, 48, 1\]"),
        (normal(5000, 48), "extent 'rows': argument 0, axis 0 has 5000; expected 1 to 4096"),
    ]
    with on_device() as (_, gpuarray):
        for x, message in refused:
            for given in (x, gpuarray.to_gpu(x)):
                raises(ValueError, message, partial(program, given, w))
        raises(TypeError, "takes 2 arguments, got 1", partial(program, normal(3, 48)))
        raises(TypeError, "float64", partial(program, normal(3, 48).astype("f8"), w))
        wrong, other = (gpuarray.to_gpu(np.zeros(shape, np.float32)) for shape in ((4, 20), 20))
        raises(
            ValueError,
            r"expected float32 \[3, 20\], got f32 \[4, 20\]",
            partial(program, gpuarray.to_gpu(normal(3, 48)), w, out=[wrong, other]),
        )
        assert not np.any(wrong.get())
        _same(program(normal(3, 48), w), weighted_value(normal(3, 48), w))
    return f"{2 * len(refused) + 3} calls"


def donated_of_any_size() -> str:
    """Memory that is given up is the result's; arrays may begin anywhere."""
    program = fuse_opt.compile(ADDED, "cuda")
    with on_device() as (_, gpuarray):
        for count in (1, 3, 1000, 4099, 3, 100_000):
            x, y = normal(count), normal(count, seed=1)
            for offset in (0, 1):
                dx, dy = (
                    gpuarray.to_gpu(np.concatenate([a[:1], a]))[1:] if offset else gpuarray.to_gpu(a) for a in (x, y)
                )
                found = program(dx, dy)
                np.testing.assert_array_equal(found.get(), x + y)
                np.testing.assert_array_equal(dx.get(), x + y)
    return "6 sizes"


def frozen_beside_sizes() -> str:
    """Arguments are bound for all sizes."""
    program, w = fuse_opt.compile(WEIGHTED, "cuda"), normal(48, 20, seed=1)
    program.freeze({"w": w})
    with on_device() as (_, gpuarray):
        for rows in (4, 1, 90, 4):
            x = normal(rows, 48)
            _same(program(x), weighted_value(x, w))
            _same(program(gpuarray.to_gpu(x)), weighted_value(x, w))
    return "4 sizes"


def specialised_sizes() -> str:
    """What needs numbers is compiled for each set of shapes, and says why."""
    program, w = fuse_opt.compile(WINDOWS, "cuda"), normal(5, 4, 3, 3, seed=1)
    for batch, height in ((1, 5), (2, 7), (1, 5)):
        x = normal(batch, 4, height, 6)
        found = program(x, w)
        np.testing.assert_allclose(found, fuse_opt.evaluate(WINDOWS, x, w), 1e-4, 1e-5)
    assert program.native.made == 2 and "'graph.conv'" in str(program.native.sized.problem)
    return f"{program.native.made} programs"


def sizes_in_threads() -> str:
    """Calls of other sizes from several threads at once share an arena, and never mix."""
    program, w = fuse_opt.compile(WEIGHTED, "cuda"), normal(48, 20, seed=1)

    def call(number: int) -> None:
        x = normal(1 + 37 * number % 300, 48, seed=number)
        _same(program(x, w), weighted_value(x, w))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(40)))
    return "40 calls"


SIZED_SCENARIOS: list[Callable[[], str]] = [
    any_sizes, arrays_of_other_sizes, donated_of_any_size, frozen_beside_sizes, specialised_sizes, sizes_in_threads,
]  # fmt: skip
