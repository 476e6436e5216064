"""Maxima of windows with their indices: those of PyTorch, of ties, NaN and infinities, at any padding, step and dilation."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
functional: Any = torch.nn.functional

from fuse_opt.frontends.torch.backend import collect_reports  # noqa: E402

Case = tuple[tuple[int, ...], int, dict[str, Any]]
CASES: dict[str, Case] = {
    "first layer": ((2, 3, 17, 19), 3, {"stride": 2, "padding": 1}),
    "pairs": ((2, 3, 8, 10), 2, {}),
    "overlapping": ((1, 2, 9, 11), 3, {"stride": 1}),
    "dilated": ((2, 2, 15, 13), 3, {"stride": 2, "padding": 1, "dilation": 2}),
    "beyond the end": ((1, 3, 10, 13), 3, {"stride": 2, "ceil_mode": True}),
    "beyond the end and padded": ((1, 2, 7, 9), 5, {"stride": 3, "padding": 2, "ceil_mode": True}),
    "one element": ((1, 2, 5, 7), 1, {"stride": 2}),
    "without a batch": ((3, 12, 7), 2, {"stride": 1}),
    "far apart": ((1, 1, 40, 1500), 4, {"stride": 3}),
    "furthest apart": ((1, 1, 9, 20000), 3, {"stride": 2}),
}
KINDS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


def filled(shape: tuple[int, ...], how: str) -> Any:
    found = torch.randn(shape, generator=torch.Generator().manual_seed(2911), dtype=torch.float32)
    if how == "ties":
        return found.round()
    if how == "infinite":
        return torch.full(shape, -math.inf)
    if how == "mixed":
        flat, draw = found.reshape(-1), random.Random(5)
        for number in range(flat.numel()):
            flat[number] = draw.choice((math.nan, -math.inf, math.inf, 0.0, -0.0, 1.0, float(flat[number])))
    return found


@pytest.mark.parametrize("how", ["random", "ties", "infinite", "mixed"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_indices_are_those_of_pytorch(name: str, how: str) -> None:
    shape, size, options = CASES[name]
    x = filled(shape, how)

    def pooled(x: Any) -> Any:
        return functional.max_pool2d(x, size, return_indices=True, **options)

    torch._dynamo.reset()
    with collect_reports() as found:
        values, places = torch.compile(pooled, backend="fuse_opt", dynamic=False)(x)
    wanted, indices = pooled(x)
    assert torch.equal(places, indices)
    assert places.dtype == torch.int64
    torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
    assert not found.graphs[0].counts.external


@pytest.mark.parametrize("kind", KINDS)
def test_elements_of_any_width(kind: str) -> None:
    x = filled((2, 3, 17, 19), "ties").to(KINDS[kind])

    def pooled(x: Any) -> Any:
        return functional.max_pool2d(x, 3, 2, 1, return_indices=True)

    torch._dynamo.reset()
    for one, other in zip(torch.compile(pooled, backend="fuse_opt", dynamic=False)(x), pooled(x), strict=True):
        assert torch.equal(one, other)


def test_images_of_any_extents_are_left_to_pytorch() -> None:
    def pooled(x: Any) -> Any:
        return functional.max_pool2d(x, 3, 2, 1, return_indices=True)

    torch._dynamo.reset()
    compiled = torch.compile(pooled, backend="fuse_opt", dynamic=True)
    for shape in ((2, 3, 9, 11), (1, 3, 17, 8)):
        x = filled(shape, "mixed")
        for one, other in zip(compiled(x), pooled(x), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
