"""Reads and writes at positions that are data, orders, running totals and pools of the torch backend, against eager."""

from collections.abc import Callable
from typing import Any

import pytest
from torch_testing import check, compiled, external, torch
from torch_testing import fresh as fresh

functional: Any = torch.nn.functional
X = torch.arange(-11.0, 13.0).reshape(4, 6).square() - 30
INDICES = torch.tensor([[0, 2, 1], [3, 3, 0], [1, 0, 2], [2, 2, 2]])

READS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: torch.gather(x, 1, i),
    "gather along the first axis": lambda x, i: torch.gather(x, 0, i[:2]),
    "gather of a transposed tensor": lambda x, i: torch.gather(x.t(), 0, i.t()[:, :4]),
    "embedding": lambda x, i: functional.embedding(i, x),
    "embedding with padding": lambda x, i: functional.embedding(i, x, padding_idx=2),
    "index_select": lambda x, i: torch.index_select(x, 1, i[1]),
    "index": lambda x, i: x[i[0], i[1]],
    "index with negative ones": lambda x, i: x[:, -i - 1],
    "index between slices": lambda x, i: x.reshape(2, 4, 3)[:, i[0]],
    "index apart": lambda x, i: x.reshape(4, 2, 3)[i[0], :, i[1] % 3],
    "index by a matrix and a row": lambda x, i: x[i[:, :1], i[0]],
    "take": lambda x, i: torch.take(x, i * 5 - 3),
    "of a scalar": lambda x, i: torch.gather(x[1, 2], 0, i[0, 0] * 0),
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "scatter": lambda x, i: torch.scatter(x, 1, i[:, :1], x * 2),
    "scatter of a number": lambda x, i: torch.scatter(x, 0, i, 7.5),
    "scatter_add": lambda x, i: torch.scatter_add(x, 0, i, x + 1),
    "scatter of smaller indices": lambda x, i: torch.scatter_add(x, 1, i[:2], x[:3]),
    "scatter with a reduction": lambda x, i: torch.scatter(x, 1, i, x, reduce="multiply"),
    **{
        f"scatter_reduce {name} {kept}": lambda x, i, n=name, k=kept: torch.scatter_reduce(
            x, 1, i, x + 1, n, include_self=k
        )
        for name in ("sum", "prod", "mean", "amax", "amin")
        for kept in (True, False)
    },
    "index_put": lambda x, i: torch.index_put(x, (i[:, 0].sort()[0][::2],), x[:2]),
    "index_put of a row": lambda x, i: torch.index_put(x, (i[1],), x[0]),
    "index_put that accumulates": lambda x, i: torch.index_put(x, (i, i), x[:, :3], accumulate=True),
    "index_put behind the first axis": lambda x, i: torch.ops.aten.index_put(x, (None, i[0]), x[:, :1]),
    "index_add": lambda x, i: torch.index_add(x, 0, i[:, 0], x),
    "index_copy": lambda x, i: torch.index_copy(x, 1, torch.tensor([5, 0]), x[:, :2]),
    "masked_scatter": lambda x, i: torch.masked_scatter(x, x > 0, x + 100),
    "put": lambda x, i: torch.ops.aten.put(x, i[0] * 3 - 4, x[0, :3]),
    "diagonal_scatter": lambda x, i: torch.diagonal_scatter(x, x[0, :4], 1),
    "slice_scatter of a scalar": lambda x, i: torch.select_scatter(x[0], x[1, 1], 0, 3),
}
ALONG: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda x, i: (torch.cumsum(x, 0), torch.cumsum(x, 1), torch.cumsum(i, 1)),
    "cumprod": lambda x, i: torch.cumprod(x / 30, -1),
    "of scalars": lambda x, i: (torch.cumsum(x[0, 0], 0), torch.argmax(x[0, 0]), x[1, 1].max(0)),
    "sort": lambda x, i: (
        *torch.sort(x, dim=1, stable=True),
        torch.sort(x, 0, descending=True)[0],
        torch.argsort(i, stable=True),
    ),
    "searchsorted": lambda x, i: (
        torch.bucketize(x, i[1].sort()[0].float()),
        torch.searchsorted(x[0].sort()[0], x, right=True),
    ),
    "round": lambda x, i: (torch.round(x / 7, decimals=2), torch.round(x, decimals=-1)),
    "small products": lambda x, i: (x @ x.t(), x[0] @ x[1], x @ x[0], torch.addmm(x[:, :4], x, x.t(), beta=0)),
}


POOLS: list[Callable[[Any], Any]] = [
    lambda x: functional.avg_pool2d(x, 3, 2, 1),
    lambda x: functional.avg_pool2d(x, (2, 3), ceil_mode=True, count_include_pad=False, padding=(1, 1)),
    lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
    lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
    lambda x: functional.avg_pool3d(x[None], (2, 3, 2)),
    lambda x: functional.avg_pool1d(x[0], 3),
    lambda x: functional.adaptive_avg_pool2d(x, (3, 5)),
    lambda x: functional.adaptive_avg_pool2d(x, 1),
    lambda x: functional.adaptive_avg_pool3d(x, (2, 4, 3)),
    lambda x: functional.adaptive_max_pool2d(x, (3, 5), return_indices=True),
    lambda x: functional.adaptive_max_pool3d(x, (2, 4, 3), return_indices=True),
    lambda x: functional.max_pool3d(x, 2, 1, 1, return_indices=True),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "int16", "uint8", "bool"])
@pytest.mark.parametrize("name", READS)
def test_reads(name: str, dtype: str):
    assert external(check(READS[name], X.to(getattr(torch, dtype)), INDICES)) == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "int16"])
@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str, dtype: str):
    if dtype == "int16" and "mean" in name:
        pytest.skip("the products of so many elements overflow before PyTorch divides")
    tolerance = 3e-2 if dtype == "bfloat16" else 1e-5
    assert external(check(WRITES[name], X.to(getattr(torch, dtype)), INDICES, tolerance=tolerance)) == {}


@pytest.mark.parametrize("name", ALONG)
def test_orders_and_totals(name: str):
    assert external(check(ALONG[name], X, INDICES, tolerance=1e-4)) == {}


@pytest.mark.parametrize("call", POOLS)
def test_pools(call: Callable[[Any], Any]):
    assert external(check(call, torch.randn(2, 3, 7, 10))) == {}


def test_gradients_of_reads_and_pools():
    weight = torch.randn(6, 5)
    ids, x = torch.tensor([[0, 2, 2], [5, 2, 0]]), torch.randn(2, 3, 8, 8)

    def function(weight: Any, x: Any) -> Any:
        rows = functional.embedding(ids, weight, padding_idx=5)
        return rows.square().sum() + functional.avg_pool2d(x, 3, 2, 1).sin().sum() + torch.cumsum(x, -1).sin().sum()

    results: list[Any] = []
    for call in (compiled(function), function):
        a, b = weight.clone().requires_grad_(), x.clone().requires_grad_()
        call(a, b).backward()
        results.append((a.grad, b.grad))
    for given, wanted in zip(*results, strict=True):
        torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gather", "embedding", "index_select", "scatter of a number", "scatter_add"])
def test_negative_indices_are_refused_where_pytorch_refuses_them(name: str):
    call = compiled({**READS, **WRITES}[name])
    good, bad = call(X, INDICES), INDICES.clone()
    bad[1, 1] = -1
    with pytest.raises(IndexError, match=r"index -1 at .* is out of range .*; expected 0 <= index"):
        call(X, bad)
    torch.testing.assert_close(call(X, INDICES), good)
