"""Attention through the torch.compile backend: results, gradients, layouts and what is left to PyTorch's kernel."""

from typing import Any

import pytest
from lowered_programs import needs_compiler
from torch_testing import compiled, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch import collect_reports

attention: Any = torch.nn.functional.scaled_dot_product_attention


def heads(x: Any, count: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of a [batch, tokens, 3 * count * width] tensor, as views."""
    batch, tokens, width = x.shape
    return x.view(batch, tokens, 3, count, width // (3 * count)).permute(2, 0, 3, 1, 4).unbind(0)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_inference_is_one_kernel(dtype: Any, options: dict[str, Any]):
    def function(x: Any) -> Any:
        y = attention(*heads(x, 3), **options)
        return y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)

    fast, x = compiled(function), torch.randn(2, 37, 3 * 3 * 20, dtype=dtype)
    with torch.no_grad(), collect_reports() as reports:
        actual, expected = fast(x), function(x)
    torch.testing.assert_close(actual, expected)
    assert actual.stride() == expected.stride()
    assert reports.graphs[0].stats.kernels == 1 and reports.graphs[0].stats.library_calls == 0


@needs_compiler
@pytest.mark.parametrize("mask", [torch.bool, torch.float32])
def test_masks(mask: Any):
    q, k, v = torch.randn(2, 3, 20, 16), torch.randn(2, 3, 33, 16), torch.randn(2, 3, 33, 16)
    given = torch.rand(20, 33) > 0.3 if mask is torch.bool else torch.randn(20, 33)
    with torch.no_grad():
        torch.testing.assert_close(compiled(attention)(q, k, v, given), attention(q, k, v, given))


@needs_compiler
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tokens", "width"), [(7, 5), (33, 16), (50, 33)])
def test_gradients(causal: bool, tokens: int, width: int):
    def function(x: Any) -> Any:
        return attention(*heads(x, 3), is_causal=causal).transpose(1, 2).square()

    x = torch.randn(2, tokens, 9 * width, requires_grad=True)
    grad = torch.randn(2, tokens, 3, width)
    (expected,) = torch.autograd.grad(function(x), x, grad)
    with collect_reports() as reports:
        (actual,) = torch.autograd.grad(compiled(function)(x), x, grad)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert [report.kind for report in reports.graphs] == ["forward", "backward"]
    assert not any(report.counts.external for report in reports.graphs)


MASKS = {
    "added": lambda: torch.randn(20, 33),
    "by key": lambda: torch.randn(2, 1, 1, 33),
    "chosen": lambda: torch.rand(2, 1, 20, 33) > 0.4,
    "rows of none": lambda: (torch.rand(20, 33) > 0.4) & (torch.arange(20)[:, None] % 5 > 0),
}


@needs_compiler
@pytest.mark.parametrize("kind", MASKS)
def test_gradients_with_a_mask(kind: str):
    """A query that a mask leaves no key has gradients of 0."""
    torch.manual_seed(3)
    operands = [torch.randn(2, 3, count, 16, requires_grad=True) for count in (20, 33, 33)]
    mask, grad = MASKS[kind](), torch.randn(2, 3, 20, 16)
    expected = torch.autograd.grad(attention(*operands, mask), operands, grad)
    with collect_reports() as reports:
        actual = torch.autograd.grad(compiled(attention)(*operands, mask), operands, grad)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert not any(report.counts.external for report in reports.graphs)
    assert all(report.stats.library_calls == 0 for report in reports.graphs)


@needs_compiler
@pytest.mark.parametrize(("queries", "keys", "causal"), [(300, 300, True), (200, 403, False), (400, 150, True)])
def test_gradients_are_one_kernel(queries: int, keys: int, causal: bool):
    """Beside the sums of rows; of the weights nothing is in memory."""
    torch.manual_seed(1)
    operands = [torch.randn(2, 3, count, 16, requires_grad=True) for count in (queries, keys, keys)]
    grad = torch.randn(2, 3, queries, 16)
    expected = torch.autograd.grad(attention(*operands, is_causal=causal), operands, grad)
    with collect_reports() as reports:
        actual = torch.autograd.grad(compiled(attention)(*operands, is_causal=causal), operands, grad)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    backward = reports.graphs[-1]
    assert (backward.kind, backward.stats.kernels, backward.stats.library_calls) == ("backward", 2, 0)
    assert backward.stats.arena_bytes <= 4 * 2 * 3 * queries + 64


@needs_compiler
def test_what_the_kernel_does_not_take_is_called():
    """Few queries, and half floats: in training the forward graph keeps what PyTorch's backward reads."""
    k, mask = torch.randn(1, 2, 40, 16), torch.randn(3, 40)
    with torch.no_grad():
        for q, keys in ((k[:, :, :3], k), (k.bfloat16(), k.bfloat16())):
            expected = attention(q, keys, keys)
            torch.testing.assert_close(compiled(attention)(q, keys, keys), expected, rtol=1e-2, atol=1e-2)
    q = torch.randn(1, 2, 3, 16, requires_grad=True)
    with torch.enable_grad():
        (expected,) = torch.autograd.grad(attention(q, k, k, mask).sum(), q)
        (actual,) = torch.autograd.grad(compiled(attention)(q, k, k, mask).sum(), q)
    torch.testing.assert_close(actual, expected)


@needs_compiler
@pytest.mark.parametrize("options", [{"attn_mask": torch.rand(20, 33) > 0.3}, {"enable_gqa": True, "scale": 0.3}])
def test_dropout_drops_what_eager_drops(options: dict[str, Any]):
    """PyTorch draws which weights are dropped; a kernel reads that, with all of attention in it."""

    def function(*operands: Any) -> Any:
        return attention(*operands, dropout_p=0.2, **options)

    groups = 2 if "enable_gqa" in options else 4
    shapes = [(2, 4, 20, 16), (2, groups, 33, 16), (2, groups, 33, 16)]
    operands, grad = [torch.randn(shape, requires_grad=True) for shape in shapes], torch.randn(shapes[0])
    found: list[Any] = []
    with collect_reports() as reports:
        for run in (function, compiled(function)):
            torch.manual_seed(1)
            y = run(*operands)
            found.append((y, *torch.autograd.grad(y, operands, grad)))
        with torch.no_grad():
            compiled(function)(*operands)
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    report = reports.graphs[-1]
    assert (report.stats.kernels, list(report.counts.external)) == (2, ["aten.bernoulli.p"]), "one of them is PyTorch's"
    assert "random numbers" in report.counts.reasons["aten.bernoulli.p"]
