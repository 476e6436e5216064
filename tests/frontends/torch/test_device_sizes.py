"""Graphs with symbols for extents on a device: kernels of one text for all lengths, by emulation, with eager's values."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch_block import Block  # noqa: E402

from fuse_opt.frontends.torch import collect_reports  # noqa: E402
from fuse_opt.frontends.torch.codegen import sized_device_call  # noqa: E402
from fuse_opt.frontends.torch.codegen.sized_device_call import SizedDeviceCall  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="CUDA C is emulated by g++")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def emulated(function: Any, **options: Any) -> Any:
    options = {"target": "emulated", "strict": True, **options}
    return torch.compile(function, backend="fuse_opt", dynamic=True, options=options)


def check_same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(found, wanted, strict=True):
        assert a.stride() == b.stride() and a.dtype == b.dtype


def several(x: Any, w: Any, b: Any) -> Any:
    y = torch.nn.functional.gelu(x @ w + b)
    return torch.softmax(y * 2, -1), y.sum(0), x.t().contiguous() + 1, y.flip(-1)


def test_one_text_for_all_lengths():
    fast = emulated(several)
    with collect_reports() as reports:
        for length in (5, 9, 33, 5, 700, 3):
            given = torch.randn(length, 24), torch.randn(24, 17), torch.randn(17)
            check_same(fast(*given), several(*given))
    (graph,) = reports.graphs
    assert len(graph.symbols) == 3 and graph.stats.kernels >= 2


def test_a_step_of_training_of_a_transformer_block():
    module = Block()
    fast = emulated(module)
    with collect_reports() as reports:
        for length in (7, 2, 13, 61):
            x = torch.randn(2, length, 16, requires_grad=True)
            slow_x = x.detach().clone().requires_grad_()
            y, expected = fast(x), module(slow_x)
            seed = torch.randn_like(y)
            inputs = [*module.parameters()]
            found = torch.autograd.grad(y, [x, *inputs], seed)
            wanted = torch.autograd.grad(expected, [slow_x, *inputs], seed)
            check_same((y, *found), (expected, *wanted))
    assert [graph.kind for graph in reports.graphs] == ["forward", "backward"]
    assert all(graph.symbols for graph in reports.graphs)


def stored(x: Any, y: Any) -> Any:
    x.mul_(2).add_(y)
    y[:, 1:].sigmoid_()
    return x.t(), y[:, ::2], x.exp()


def test_arguments_that_are_written_to_and_views_of_them():
    fast = emulated(stored)
    for shape in ((4, 7), (3, 9), (8, 2)):
        x, y = torch.randn(shape), torch.randn(shape[::-1]).t()
        others = x.clone(), y.t().clone().t()
        found, wanted = fast(x, y), stored(*others)
        check_same((*found, x, y), (*wanted, *others))
        assert found[0].data_ptr() == x.data_ptr() and found[1].data_ptr() == y.data_ptr()


def test_lengths_that_a_text_is_not_for(monkeypatch: pytest.MonkeyPatch):
    """Without an element, and rows longer than memory of a block: compiled by themselves."""

    def centred(x: Any) -> Any:
        return x - x.mean(-1, keepdim=True), x.relu()

    fast = emulated(centred)
    for shape in ((3, 5), (0, 5), (4, 70001), (2, 3)):
        check_same(fast(x := torch.randn(shape)), centred(x))


def test_calls_of_the_last_vectors_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sized_device_call, "KEPT", 2)
    made: list[int] = []
    kept = SizedDeviceCall._vector_of  # pyright: ignore[reportPrivateUsage]

    def noted(self: Any, values: dict[str, int]) -> Any:
        made.append(max(values.values()))
        return kept(self, values)

    monkeypatch.setattr(SizedDeviceCall, "_vector_of", noted)
    fast = emulated(torch.nn.functional.gelu)
    for length in (5, 6, 5, 6, 7, 6, 5):
        x = torch.randn(length, 3)
        torch.testing.assert_close(fast(x), torch.nn.functional.gelu(x))
    assert made == [5, 6, 7, 5]


def decoded(x: Any, cache: Any) -> Any:
    cache = torch.cat([cache, x], 1)
    scores = torch.softmax(x @ cache.transpose(1, 2) * 0.25, -1)
    return scores @ cache, cache


def test_a_cache_that_grows():
    fast = emulated(decoded)
    cache = torch.randn(2, 3, 16)
    with collect_reports() as reports:
        for _ in range(9):
            x = torch.randn(2, 1, 16)
            wanted = decoded(x, cache)
            found = fast(x, cache)
            check_same(found, wanted)
            cache = found[1]
    assert len(reports.graphs) == 1 and reports.graphs[0].symbols


def test_a_static_graph_of_nothing():
    """A result without an element has no step that it is made for."""

    def both(x: Any) -> Any:
        return x.relu(), x.sum(-1)

    fast = torch.compile(both, backend="fuse_opt", options={"target": "emulated", "strict": True}, dynamic=False)
    check_same(fast(x := torch.randn(0, 5)), both(x))


@pytest.mark.parametrize(("target", "end"), [("cpu", "c"), ("emulated", "cu")])
def test_what_options_say_of_graphs_with_symbols(target: str, end: str, tmp_path: Path):
    """Texts are written, and what inference may take is said to the passes."""
    options = {"target": target, "dump": str(tmp_path), "numerics": "fast"}
    fast, x = emulated(torch.nn.functional.gelu, **options), torch.randn(6, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), torch.nn.functional.gelu(x))
    found = {path.name.partition("_inference")[2]: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(found) == sorted([".mlir", f".{end}", "_call.py", "_decisions.txt", "_optimized.mlir", "_report.txt"])
    assert 'graph.numerics = "fast"' in found["_optimized.mlir"] and "graph.gelu" in found[".mlir"]
    assert "def call(args):" in found["_call.py"] and "sized: one program" in found["_report.txt"]


def test_recorded_graphs_are_for_numbers():
    fast = emulated(torch.nn.functional.gelu, cuda_graphs=True)
    with collect_reports() as reports:
        for length in (5, 6, 5):
            x = torch.randn(length, 3)
            torch.testing.assert_close(fast(x), torch.nn.functional.gelu(x))
    assert [graph.symbols for graph in reports.graphs] == [(), ()]
