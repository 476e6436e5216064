"""Arguments of PyTorch's kernels of which these look at the shape alone: nothing is kept, or computed, for their elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from fuse_opt.frontends.torch.backend import collect_reports  # noqa: E402


def pooled(x: Any) -> Any:
    return torch.nn.functional.max_pool2d(torch.tanh(x), 3, 2, 1)


def total(x: Any) -> Any:
    return torch.nn.functional.max_pool2d(x + 1, 2).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_pooling(dtype: Any, layout: Any) -> None:
    """Values, strides and layouts are those of PyTorch."""
    x = torch.randn(2, 3, 11, 14, dtype=dtype, generator=torch.Generator().manual_seed(1)).to(memory_format=layout)
    grads: list[Any] = []
    for call in (pooled, torch.compile(pooled, backend="fuse_opt")):
        given = x.clone(memory_format=torch.preserve_format).requires_grad_()
        (call(given) ** 2).sum().backward()
        grads.append(given.grad)
    torch.testing.assert_close(grads[1], grads[0])
    assert grads[1].stride() == grads[0].stride()


def test_what_lends_its_shape_needs_no_memory(tmp_path: Path) -> None:
    """The elements of what was pooled are no operand of the backward graph's call, whose text says the shape."""
    with collect_reports() as reports:
        x = torch.randn(2, 8, 64, 64, requires_grad=True)
        torch.compile(total, backend="fuse_opt", options={"dump": str(tmp_path)})(x).backward()
    backward = next(each for each in reports.graphs if each.kind == "backward")
    assert backward.counts.external == {"aten.max_pool2d_with_indices_backward.default": 1}
    assert x.grad is not None and x.grad.count_nonzero() == 2 * 8 * 32 * 32
    texts = [path.read_text() for path in tmp_path.glob("*backward*.mlir")]
    calls = [line for text in texts for line in text.splitlines() if "torch.aten" in line]
    assert calls and all("#1[2x8x64x64]" not in line and " [2x8x64x64]" in line for line in calls), calls
    assert all("tensor<2x8x64x64xf32>" not in line.partition("->")[0] for line in calls), calls
