"""Convolutions whose channels are made the innermost: the same values, and results in eager's order."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from fuse_opt.frontends.torch.graph_passes.channels_last import turn_convolutions  # noqa: E402

functional: Any = torch.nn.functional


def traced(function: Any, *args: Any) -> Any:
    found: list[Any] = []

    def noting(gm: Any, example_inputs: Any) -> Any:
        found.append(gm)
        return gm

    torch._dynamo.reset()
    torch.compile(function, backend=noting)(*args)
    (gm,) = found
    return gm


def two(x: Any, v: Any, w: Any) -> Any:
    y = functional.conv2d(x, v, None, 1, 1).relu()
    return functional.conv2d(y, w) + y[:, :3], y.amax((2, 3))


def operands(dtype: Any = torch.bfloat16) -> list[Any]:
    return [torch.randn(shape, dtype=dtype) for shape in ((2, 5, 7, 6), (8, 5, 3, 3), (3, 8, 1, 1))]


def orders(gm: Any) -> int:
    return sum(node.target == "contiguous" and bool(node.kwargs) for node in gm.graph.nodes)


@pytest.mark.parametrize("learning", [False, True])
def test_values_and_orders_of_results(learning: bool) -> None:
    args = operands()
    with torch.set_grad_enabled(learning):
        gm = traced(two, *args)
        changed = turn_convolutions(gm, forced=True)
        assert orders(changed) == (2 if learning else 4) and orders(gm) == 0
        for found, wanted in zip(changed(*args), gm(*args), strict=True):
            torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-1)
            assert found.stride() == wanted.stride()


def test_what_keeps_its_order() -> None:
    def strided(x: Any, v: Any, w: Any) -> Any:
        return two(x, v, w)[0].as_strided((2, 2), (3, 1))

    def turned(x: Any, v: Any, w: Any) -> Any:
        return two(x, v, w)[0].transpose(1, 2)

    def one(x: Any, v: Any, w: Any) -> Any:
        return functional.conv2d(x, v)

    cases = [(two, operands(torch.float32)), (strided, operands()), (turned, operands()), (one, operands())]
    for function, args in cases:
        gm = traced(function, *args)
        assert turn_convolutions(gm, forced=True) is gm
    gm = traced(two, *operands())
    assert turn_convolutions(gm) is gm, "on the processor"


@pytest.mark.skipif(shutil.which("g++") is None, reason="CUDA C is emulated by g++")
def test_a_graph_that_needs_its_order_is_compiled_as_it_is() -> None:
    def viewed(x: Any, v: Any, w: Any) -> Any:
        y = two(x, v, w)[0]
        return y.view(2, -1) * 2

    torch._dynamo.reset()
    options = {"target": "emulated", "strict": True, "channels_last": True}
    args = operands()
    with torch.no_grad():
        found = torch.compile(viewed, backend="fuse_opt", options=options)(*args)
    torch.testing.assert_close(found, viewed(*args), rtol=2e-2, atol=1e-1)
