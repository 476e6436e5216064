"""Convolutions of bytes by oneDNN: arguments and panels on the stand-in, exact sums of the library, and who runs others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onednn_testing import FakeOneDnn

import fuse_opt
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.backends.onednn.library import find_library, load_library
from fuse_opt.runtime.backends.onednn.trial import multiplies
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

Array = NDArray[Any]
NAME = "onednn.conv_integer"
WANTED = f', use_implementation = "{NAME}"'
SHAPES = [((3, 9, 8, 64), (3, 3, 64, 32)), ((2, 11, 128), (3, 128, 64)), ((1, 5, 6, 64), (1, 1, 64, 64))]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeOneDnn:
    return FakeOneDnn(tmp_path, monkeypatch)


def numbers(x: tuple[int, ...], w: tuple[int, ...], signed: bool = False) -> tuple[Array, Array]:
    """The largest bytes among them."""
    rng = np.random.default_rng(len(x))
    made = rng.integers(0, 256, x).astype(np.uint8), rng.integers(-128, 128, w).astype(np.int8)
    made[0].reshape(-1)[:7], made[1].reshape(-1)[:7] = 255, -128
    return (made[0].view(np.int8) if signed else made[0]), made[1]


def text_of(x: Array, w: Array, config: str = "", more: str = WANTED, frozen: bool = True) -> str:
    """A convolution whose filters are turned from what a caller has, a value of its own behind it."""
    turned = (w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))
    given = "x".join(str(w.shape[axis]) for axis in turned)
    back = ", ".join(map(str, (*range(2, w.ndim), 1, 0)))
    a, b = ("x".join(map(str, array.shape)) for array in (x, w))
    element = "ui8" if x.dtype == np.uint8 else "i8"
    config = config or f"pads = array<i64: {', '.join(['1'] * 2 * (w.ndim - 2))}>"
    line = f"%y = graph.conv_integer %x, %v {{{config}{more}}} : (tensor<{a}x{element}>, tensor<{b}xi8>)"
    found = fuse_opt.optimize(
        f"func.func @f(%x: tensor<{a}x{element}>, %v: tensor<{b}xi8>) {{\n {line} -> tensor<{'x'.join('?' * x.ndim)}xi32>\n"
        "  func.return\n}",
        "infer-shapes",
    )
    out = next(str(op.results[0].type) for op in found.walk() if op.name == "graph.conv_integer")
    return (
        f"func.func @main(%x: tensor<{a}x{element}>, %w: tensor<{given}xi8>{' {graph.frozen}' if frozen else ''}) -> {out} {{\n"
        f"  %v = graph.permute_dims %w {{axes = array<i64: {back}>}} : (tensor<{given}xi8>) -> tensor<{b}xi8>\n"
        f"  {line} -> {out}\n"
        f"  %r = graph.negative %y : ({out}) -> {out}\n  func.return %r : {out}\n}}"
    )


def given(w: Array) -> Array:
    return np.ascontiguousarray(w.transpose((w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))))


def expected(x: Array, w: Array, config: str = "") -> Array:
    """By the meaning of the op, of wider integers alone."""
    return fuse_opt.evaluate(text_of(x, w, config, ""), x, given(w))


def test_meaning() -> None:
    x, w = numbers((1, 4, 5, 3), (2, 3, 3, 2))
    padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), axis=(1, 2))
    np.testing.assert_array_equal(expected(x, w), -np.einsum("nhwcij,ijco->nhwo", windows, w.astype(np.int64)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_frozen_filters_lie_in_panels_of_fours(fake: FakeOneDnn, shapes: Any, signed: bool) -> None:
    fake.say(panel=16, scratch=8)
    x, w = numbers(*shapes, signed=signed)
    program = fuse_opt.compile(text_of(x, w), backend="onednn").freeze({1: given(w)})
    assert program.implementations == {NAME: 1} and program.stats.foreign_calls == 1
    assert f"#graph.panel<axis = {w.ndim - 1}, width = 16, group = 4>" in str(program.module)
    wanted = expected(x, w)
    np.testing.assert_array_equal(program(x), wanted)
    np.testing.assert_array_equal(fuse_opt.evaluate(str(program.module), x, given(w)), wanted)
    again = fuse_opt.compile(str(program.module), pipeline="default").freeze({1: given(w)})
    assert again.implementations == {NAME: 1}
    np.testing.assert_array_equal(again(x), wanted)
    w[0] = 3
    program.freeze({1: given(w)})
    np.testing.assert_array_equal(program(x), expected(x, w))


@pytest.mark.parametrize(
    "config",
    [
        "strides = array<i64: 2, 1>, pads = array<i64: 1, 0, 2, 1>",
        "dilations = array<i64: 2, 3>, pads = array<i64: 3, 3, 3, 3>",
    ],
)
def test_windows_of_all_kinds(fake: FakeOneDnn, config: str) -> None:
    fake.say(panel=8)
    x, w = numbers((2, 7, 9, 8), (3, 2, 8, 16))
    program = fuse_opt.compile(text_of(x, w, config), backend="onednn").freeze({1: given(w)})
    assert program.implementations == {NAME: 1}
    np.testing.assert_array_equal(program(x), expected(x, w, config))


@pytest.mark.parametrize(
    ("shapes", "frozen", "said", "reason"),
    [
        (((1, 5, 5, 64), (3, 3, 64, 32)), False, {"panel": 16}, "filters-vary"),
        (((1, 5, 5, 64), (3, 3, 64, 24)), True, {"panel": 16}, "filters"),
        (((1, 5, 5, 3), (3, 3, 3, 32)), True, {"panel": 16}, "filters"),
        (((1, 5, 5, 64), (3, 3, 64, 32)), True, {"panel": 0}, "filters"),
        (((1, 5, 5, 64), (3, 3, 64, 32)), True, {"panel": 16, "sums": 128}, "filters"),
        (((1, 5, 5, 64), (3, 3, 64, 32)), True, {"panel": 16, "impl": "ref:any"}, "filters"),
    ],
    ids=[
        "filters that vary",
        "a part-filled panel",
        "a part-filled group",
        "no panels",
        "sums behind them",
        "by loops",
    ],
)
def test_what_it_does_not_take_is_code_of_the_program(
    fake: FakeOneDnn, shapes: Any, frozen: bool, said: dict[str, Any], reason: str
) -> None:
    fake.say(**said)
    x, w = numbers(*shapes)
    with pytest.raises(fuse_opt.InputError, match=f'"{NAME}" refuses it: {reason}; remove the directive'):
        fuse_opt.optimize(text_of(x, w, frozen=frozen), "attach-backends{backends=onednn},default")
    with collect() as remarks:
        program = fuse_opt.compile(text_of(x, w, more="", frozen=frozen), backend="fuse,onednn")
    assert any(f"refused={NAME}:{reason}" in str(remark) for remark in remarks)
    assert NAME not in program.implementations
    np.testing.assert_array_equal(program(x, given(w)), expected(x, w))


def test_groups_are_code_of_the_program(fake: FakeOneDnn) -> None:
    fake.say(panel=16)
    x, w = numbers((1, 5, 5, 64), (3, 3, 1, 64))
    config = "pads = array<i64: 1, 1, 1, 1>, groups = 64 : i64"
    with pytest.raises(fuse_opt.InputError, match=f'"{NAME}" refuses it: groups; remove the directive'):
        fuse_opt.optimize(text_of(x, w, config), "attach-backends{backends=onednn},default")
    program = fuse_opt.compile(text_of(x, w, config, ""), backend="fuse,onednn").freeze({1: given(w)})
    assert NAME not in program.implementations
    padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    np.testing.assert_array_equal(program(x), -np.einsum("nhwcij,ijkc->nhwc", windows, w.astype(np.int64)))


def test_filters_that_are_packed_by_no_pass_are_read_as_they_lie(fake: FakeOneDnn) -> None:
    """Of a pipeline that prepares nothing: right, and no faster than what it is run by."""
    fake.say(panel=16)
    x, w = numbers((1, 5, 5, 64), (3, 3, 64, 32))
    text = text_of(x, w).replace("%v =", "%u =").replace("%x, %v", "%x, %w")
    text = text.replace("tensor<32x64x3x3xi8> {graph.frozen}", "tensor<3x3x64x32xi8> {graph.frozen}")
    text = "\n".join(line for line in text.splitlines() if "%u" not in line)
    program = fuse_opt.compile(
        text, pipeline="select-composites,decompose,wrap-kernels,select-implementation", backend="onednn"
    )
    assert program.implementations == {NAME: 1} and "#graph.panel" not in str(program.module)
    np.testing.assert_array_equal(program(x, w), expected(x, w))


@pytest.mark.skipif(isinstance(find_library(), str), reason="oneDNN is not installed")
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    "shapes", [*SHAPES, ((2, 14, 14, 256), (3, 3, 256, 256)), ((1, 7, 7, 512), (1, 1, 512, 2048))], ids=str
)
def test_sums_of_the_library_are_exact(shapes: Any, signed: bool) -> None:
    """Where the machine sums such products without saturating, and the library has code for filters in panels."""
    x, w = numbers(*shapes, signed=signed)
    try:
        program = fuse_opt.compile(text_of(x, w), backend="onednn").freeze({1: given(w)})
    except fuse_opt.InputError as error:
        assert str(error).partition("refuses it: ")[2].startswith(("filters;", "saturates;", "needs-avx512_vnni;"))
        pytest.skip(str(error))
    assert "group = 4" in str(program.module)
    wanted, before = expected(x, w), num_threads()
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            np.testing.assert_array_equal(program(x), wanted)
    finally:
        set_num_threads(before)
    assert multiplies(load_library(), "i8" if signed else "ui8", "i8", "i32")
