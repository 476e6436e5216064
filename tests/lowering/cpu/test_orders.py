"""Products and convolutions whose operands and results lie in other orders, against the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ir_testing import apply, kernels, parse

import fuse_opt

NHWC = "#graph.order<0, 2, 3, 1>"
COLUMNS = "#graph.order<1, 0>"
CASES = [
    ((2, 5, 9, 11), (20, 5, 3, 3), "{pads = array<i64: 1, 1, 1, 1>}", 1, 1),
    ((1, 40, 14, 14), (33, 40, 3, 3), "{strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>}", 2, 1),
    ((2, 48, 10, 12), (33, 48, 1, 1), "", 1, 0),
    ((1, 48, 16, 12), (33, 48, 1, 1), "{strides = array<i64: 2, 2>}", 2, 0),
    ((3, 3, 40, 40), (64, 3, 7, 7), "{strides = array<i64: 2, 2>, pads = array<i64: 3, 3, 3, 3>}", 2, 3),
]


def tensor(extents: tuple[int, ...], order: str = "") -> str:
    return f"tensor<{'x'.join(map(str, extents))}xf32{order and ', ' + order}>"


def convolution(case: int, x_order: str, y_order: str, frozen: bool) -> tuple[str, list[tuple[int, ...]]]:
    """A convolution with a bias, and the shapes of its arguments."""
    x, w, attributes, stride, pad = CASES[case]
    extents = [(n + 2 * pad - k) // stride + 1 for n, k in zip(x[2:], w[2:], strict=True)]
    b, y = (w[0], 1, 1), tensor((x[0], w[0], *extents), y_order)
    mark = " {graph.frozen}" if frozen else ""
    text = f"""
func.func @main(%x: {tensor(x, x_order)}, %w: {tensor(w)}{mark}, %b: {tensor(b)}) -> {y} {{
  %0 = graph.conv %x, %w {attributes} : ({tensor(x, x_order)}, {tensor(w)}) -> {y}
  %1 = graph.add %0, %b : ({y}, {tensor(b)}) -> {y}
  func.return %1 : {y}
}}
"""
    return text, [x, w, b]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_convolutions_of_channels_innermost(case: int) -> None:
    rng = np.random.default_rng(case)
    forms = list(itertools.product(("", NHWC), ("", NHWC), (False, True)))
    for x_order, y_order, frozen in forms[case % 2 :: 2]:
        text, shapes = convolution(case, x_order, y_order, frozen)
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        program = fuse_opt.compile(text)
        assert list(program.implementations) in (["fuse.conv"], ["fuse.matmul"])
        assert program.conversions == (0, 0)
        expected = fuse_opt.evaluate(text, *arrays)
        np.testing.assert_allclose(program(*arrays), expected, rtol=1e-4, atol=1e-4)


def test_windows_of_one_element_are_products_where_channels_are_innermost() -> None:
    for x_order, y_order in itertools.product(("", NHWC), repeat=2):
        (kernel,) = kernels(apply(parse(convolution(2, x_order, y_order, False)[0]), "default"))
        assert kernel.implementation is not None
        assert (kernel.implementation.data == "fuse.matmul") == (x_order == y_order == NHWC)


def test_groups_store_channels_innermost_by_a_conversion() -> None:
    x, w = (2, 8, 20, 20), (16, 4, 3, 3)
    y = tensor((2, 16, 18, 18), NHWC)
    text = f"""
func.func @main(%x: {tensor(x)}, %w: {tensor(w)}) -> {y} {{
  %0 = graph.conv %x, %w {{groups = 2 : i64}} : ({tensor(x)}, {tensor(w)}) -> {y}
  func.return %0 : {y}
}}
"""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x, w)]
    program = fuse_opt.compile(text)
    assert program.conversions[0] == 1
    np.testing.assert_allclose(program(*arrays), fuse_opt.evaluate(text, *arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("orders", list(itertools.product(("", COLUMNS), repeat=3)))
@pytest.mark.parametrize("extents", [(70, 50, 90), (3, 40, 17), (16, 16, 1)])
def test_products_of_any_order(orders: tuple[str, str, str], extents: tuple[int, int, int]) -> None:
    m, k, n = extents
    a, b, c = tensor((m, k), orders[0]), tensor((k, n), orders[1]), tensor((m, n), orders[2])
    text = f"""
func.func @main(%a: {a}, %b: {b}, %v: {tensor((n,))}) -> {c} {{
  %0 = graph.matmul %a, %b : ({a}, {b}) -> {c}
  %1 = graph.add %0, %v : ({c}, {tensor((n,))}) -> {c}
  %2 = graph.relu %1 : ({c}) -> {c}
  func.return %2 : {c}
}}
"""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (n,))]
    program = fuse_opt.compile(text)
    expected = np.maximum(arrays[0] @ arrays[1] + arrays[2], 0)
    np.testing.assert_allclose(program(*arrays), expected, rtol=1e-4, atol=1e-4)
    assert program.conversions == (0, 0) and program.implementations == {"fuse.matmul": 1}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("orders", list(itertools.product(("", NHWC), repeat=2)))
@pytest.mark.parametrize("pool", ["max_pool", "avg_pool"])
def test_pooling_reads_and_stores_either_order(pool: str, orders: tuple[str, str]) -> None:
    x, y = tensor((2, 5, 13, 11), orders[0]), tensor((2, 5, 7, 6), orders[1])
    text = f"""
func.func @main(%x: {x}) -> {y} {{
  %0 = graph.{pool} %x {{kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>}}
      : ({x}) -> {y}
  func.return %0 : {y}
}}
"""
    array = np.random.default_rng(0).standard_normal((2, 5, 13, 11)).astype(np.float32)
    program = fuse_opt.compile(text)
    assert program.conversions[0] == (orders[0] != orders[1])
    np.testing.assert_allclose(program(array), fuse_opt.evaluate(text, array), rtol=1e-5, atol=1e-6)


def test_padding_lies_as_what_is_padded() -> None:
    """So that windows behind it go through memory as it lies, whatever follows."""
    x = tensor((1, 8, 5, 5), NHWC)
    module = parse(f"""
func.func @main(%x: {x}) -> {tensor((1, 8, 3, 3), NHWC)} {{
  %0 = graph.max_pool %x {{kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>}}
      : ({x}) -> {tensor((1, 8, 3, 3), NHWC)}
  func.return %0 : {tensor((1, 8, 3, 3), NHWC)}
}}""")
    made = [op for op in apply(module, ["decompose"]).walk() if op.name.startswith("graph.")]
    assert [op.name for op in made] == ["graph.pad", "graph.window_max"]
    assert all(str(NHWC) in str(op.results[0].type) for op in made)
