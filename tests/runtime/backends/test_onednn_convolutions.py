"""Convolutions by oneDNN, over a stand-in that checks every argument, and by the library where it does not unfold windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from convolution_cases import Conv
from onednn_testing import FakeOneDnn

import fuse_opt
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.emit import build_program
from fuse_opt.passes.remarks import collect
from fuse_opt.runtime.backends.onednn.library import find_library
from fuse_opt.runtime.backends.onednn.primitives import primitive_of
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

SILU = "  %a = graph.add %p, %r : (T, T) -> T\n  %y = graph.silu %a : (T) -> T\n"
NOTHING = "  %y = graph.sin %p : (T) -> T\n"
CASES = {
    "one axis": Conv((2, 3, 11), 4, (3,), pads=(1, 1), epilogue=SILU),
    "plain": Conv((2, 3, 8, 9), 4, (3, 3), epilogue=SILU),
    "pads of each side": Conv((1, 3, 8, 9), 4, (3, 2), pads=(1, 0, 2, 1), epilogue=SILU),
    "strides": Conv((2, 3, 9, 9), 4, (3, 3), (2, 3), (1, 1, 1, 1), epilogue=SILU),
    "dilations": Conv((2, 3, 9, 9), 4, (3, 3), dilations=(2, 3), epilogue=SILU),
    "groups": Conv((2, 6, 8, 8), 4, (3, 3), groups=2, epilogue=SILU),
    "a channel each": Conv((2, 6, 8, 8), 6, (3, 3), pads=(1, 1, 1, 1), groups=6, epilogue=SILU),
    "pointwise": Conv((3, 6, 8, 8), 5, (1, 1), epilogue=SILU),
    "three axes": Conv((2, 2, 5, 6, 4), 3, (2, 3, 2), epilogue=SILU),
    "parts": Conv((7, 32, 30, 30), 32, (3, 3), epilogue=SILU),
    "nothing that it takes behind it": Conv((2, 3, 8, 9), 4, (3, 3), epilogue=NOTHING),
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeOneDnn:
    return FakeOneDnn(tmp_path, monkeypatch)


@pytest.fixture
def threads() -> Iterator[None]:
    before = num_threads()
    yield
    set_num_threads(before)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_convolutions_are_calls(fake: FakeOneDnn, threads: None, case: Conv) -> None:
    fake.say(scratch=16)
    arguments = case.arguments()
    expected = fuse_opt.evaluate(case.text, *arguments)
    for count in (1, 3):
        set_num_threads(count)
        program = fuse_opt.compile(case.text, backend="none,onednn")
        assert program.implementations == {"onednn.conv": 1} and program.stats.foreign_calls == 1
        np.testing.assert_allclose(program(*arguments), expected, rtol=2e-5, atol=2e-5)
    kernel = next(k for k in program.module.walk() if isinstance(k, KernelOp) and k.implementation is not None)
    alone = case.epilogue == NOTHING or "graph.to_layout" in str(program.module)  # conversions are no steps of its
    assert len(kernel.ops()) == (1 if alone else 3) and kernel.workspace_bytes()


def test_a_residual_of_ours_is_overwritten(fake: FakeOneDnn) -> None:
    case = replace(CASES["plain"], epilogue=f"  %t = graph.sort %r : (T) -> T\n{SILU.replace('%r', '%t')}")
    program = fuse_opt.compile(case.text, backend="none,onednn,numpy")
    (kernel,) = [k for k in program.module.walk() if isinstance(k, KernelOp) and "graph.conv" in str(k)]
    assert kernel.inplace_pairs()
    arguments = case.arguments()
    np.testing.assert_allclose(program(*arguments), fuse_opt.evaluate(case.text, *arguments), rtol=1e-5, atol=1e-5)


CHANNELS_LAST, FILTERS_LAST = "#graph.order<0, 2, 3, 1>", "#graph.order<2, 3, 1, 0>"


def channels_last(groups: int = 1, filters: int = 24, window: int = 3) -> str:
    """A convolution whose channels are innermost, with a bias and a residual behind it that lies as the result does."""
    x, y = f"tensor<2x16x12x12xf32, {CHANNELS_LAST}>", f"tensor<2x{filters}x12x12xf32, {CHANNELS_LAST}>"
    w, b = f"tensor<{filters}x{16 // groups}x{window}x{window}xf32>", f"tensor<{filters}x1x1xf32>"
    turned, pads = w.replace("xf32>", f"xf32, {FILTERS_LAST}>"), ", ".join([str(window // 2)] * 4)
    return f"""func.func @main(%x: {x}, %w: {w} {{graph.frozen}}, %b: {b}, %r: {y}) -> {y} {{
  %v = graph.to_layout %w : ({w}) -> {turned}
  %c = graph.conv %x, %v {{pads = array<i64: {pads}>, groups = {groups} : i64}} : ({x}, {turned}) -> {y}
  %s = graph.add %c, %b : ({y}, {b}) -> {y}
  %z = graph.add %s, %r : ({y}, {y}) -> {y}
  %o = graph.silu %z : ({y}) -> {y}
  func.return %o : {y}
}}"""


def arguments_of(groups: int = 1, filters: int = 24, window: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = (2, 16, 12, 12), (filters, 16 // groups, window, window), (filters, 1, 1), (2, filters, 12, 12)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_channels_are_innermost(fake: FakeOneDnn, threads: None) -> None:
    """The filters are turned where they are prepared, and no value in a run."""
    fake.say(scratch=16)
    text, arguments = channels_last(), arguments_of()
    expected = fuse_opt.evaluate(text, *arguments)
    for count in (1, 3):
        set_num_threads(count)
        program = fuse_opt.compile(text, backend="none,onednn")
        assert program.implementations == {"onednn.conv": 1} and program.conversions[0] == 0
        np.testing.assert_allclose(program(*arguments), expected, rtol=2e-5, atol=2e-5)
    kernel = next(k for k in program.module.walk() if isinstance(k, KernelOp) and k.implementation is not None)
    assert len(kernel.ops()) == 4 and FILTERS_LAST in str(kernel.operands[1].type)


def test_frozen_filters_lie_in_panels(fake: FakeOneDnn, threads: None) -> None:
    """Those that the library would have, made where arguments are prepared, again where these change."""
    fake.say(scratch=16, panel=8)
    text, (x, w, b, r) = channels_last(), arguments_of()
    program = fuse_opt.compile(text, backend="none,onednn").freeze({1: w})
    assert program.conversions[0] == 0 and "#graph.panel<axis = 3, width = 8>" in str(program.module)
    assert fuse_opt.optimize(str(program.module), "select-implementation,pack-operands,infer-inplace,plan-memory")
    for filters in (w, w[::-1].copy()):
        expected = fuse_opt.evaluate(text, x, filters, b, r)
        program.freeze({1: filters})
        for count in (1, 3):
            set_num_threads(count)
            np.testing.assert_allclose(program(x, b, r), expected, rtol=2e-5, atol=2e-5)
    printed = str(program.module)
    again = fuse_opt.compile(printed, pipeline="default").freeze({1: w})
    assert again.implementations == {"onednn.conv": 1}
    np.testing.assert_allclose(again(x, b, r), fuse_opt.evaluate(text, x, w, b, r), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(fuse_opt.evaluate(printed, x, w, b, r), fuse_opt.evaluate(text, x, w, b, r), rtol=2e-5)


@pytest.mark.parametrize(("filters", "packed"), [(24, True), (20, False)])
def test_windows_of_one_element_are_products(fake: FakeOneDnn, threads: None, filters: int, packed: bool) -> None:
    """Of positions by filters, whose panels are those of products; cut by rows, with the same bits for any threads."""
    fake.say(scratch=16, panel=8)
    text, (x, w, b, r) = channels_last(1, filters, 1), arguments_of(1, filters, 1)
    expected, bits = fuse_opt.evaluate(text, x, w, b, r), set[bytes]()
    program = fuse_opt.compile(text, backend="none,onednn").freeze({1: w})
    assert program.implementations == {"onednn.conv": 1} and ("#graph.panel" in str(program.module)) == packed
    for count in (1, 3):
        set_num_threads(count)
        np.testing.assert_allclose(found := np.asarray(program(x, b, r)), expected, rtol=2e-5, atol=2e-5)
        bits.add(found.tobytes())
    assert len(bits) == 1 and fake.count("primitives") > 0


@pytest.mark.parametrize(
    ("panel", "frozen"), [(16, True), (0, True), (8, False)], ids=["not whole", "none", "not frozen"]
)
def test_filters_that_stay(fake: FakeOneDnn, panel: int, frozen: bool) -> None:
    fake.say(panel=panel)
    text = channels_last() if frozen else channels_last().replace(" {graph.frozen}", "")
    module = str(fuse_opt.compile(text, backend="none,onednn").module)
    assert "onednn.conv" in module and "#graph.panel" not in module


def test_panels_of_another_library_are_refused(fake: FakeOneDnn) -> None:
    """Where it is chosen the reference stands in, by a remark; where it is called that is an error."""
    fake.say(panel=8)
    module = fuse_opt.compile(channels_last(), backend="none,onednn").module
    primitive_of.cache_clear()
    fake.say(panel=4)
    with pytest.raises(RuntimeError, match="reads filters in other panels; run pack-operands"):
        CpuProgram(build_program(module.clone(), "main"))
    with collect() as remarks:
        fuse_opt.optimize(module.clone(), "select-implementation")
    assert any("onednn.conv:panels" in str(remark) for remark in remarks)


@pytest.mark.skipif(isinstance(find_library(), str), reason="oneDNN is not installed")
@pytest.mark.parametrize(("groups", "filters"), [(1, 64), (1, 24), (2, 24)], ids=["panels", "plain", "groups"])
def test_the_library_takes_channels_innermost(groups: int, filters: int) -> None:
    """Its own code for them, where there are no groups; others run those."""
    text, arguments = channels_last(groups, filters), arguments_of(groups, filters)
    program = fuse_opt.compile(text, backend="onednn")
    if groups > 1:
        assert "onednn.conv" not in program.implementations
    elif "onednn.conv" in program.implementations:
        assert ("#graph.panel" in str(program.module)) == (filters == 64), "24 filters fill no panel of the library's"
    np.testing.assert_allclose(program(*arguments), fuse_opt.evaluate(text, *arguments), rtol=2e-4, atol=2e-4)


@pytest.mark.skipif(isinstance(find_library(), str), reason="oneDNN is not installed")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_library_or_another_one(case: Conv) -> None:
    """What it has no code for but unfolded windows, as in plain strides on machines with AVX2, others run."""
    program = fuse_opt.compile(case.text, backend="none,onednn,numpy")
    arguments = case.arguments()
    assert sum(program.implementations.values()) == 1
    np.testing.assert_allclose(program(*arguments), fuse_opt.evaluate(case.text, *arguments), rtol=2e-4, atol=2e-4)


def test_bf16_is_a_fast_one_that_this_library_has_not(fake: FakeOneDnn) -> None:
    text = CASES["plain"].text.replace("f32", "bf16")
    with pytest.raises(fuse_opt.InputError, match="onednn.conv:dtype,onednn.conv_fast:unimplemented"):
        fuse_opt.optimize(
            text, "attach-backends{backends=none,onednn},wrap-kernels,select-implementation{numerics=fast}"
        )
