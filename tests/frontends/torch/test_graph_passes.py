"""What the torch.compile backend makes of operators before the import: fewer calls of PyTorch, fewer bytes read."""

from typing import Any

import pytest
from torch_testing import check, compiled, external, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch import collect_reports
from fuse_opt.frontends.torch.export import export

functional: Any = torch.nn.functional


def test_group_norm_is_code_of_the_program():
    def function(x: Any, w: Any, b: Any) -> Any:
        return functional.silu(functional.group_norm(x, 4, w, b))

    assert external(check(function, torch.randn(2, 8, 5, 5), torch.randn(8), torch.randn(8))) == {}


@pytest.mark.parametrize(
    "size, step, padding, apart, ceil", [(3, 2, 1, 1, True), ((3, 2), (1, 2), (1, 0), (2, 1), False)]
)
def test_max_pooling_is_code_of_the_program(size: Any, step: Any, padding: Any, apart: Any, ceil: bool):
    def function(x: Any) -> Any:
        y = torch.relu(x)
        return functional.max_pool2d(y, size, step, padding, apart, ceil, True), functional.max_pool2d(x, size)

    x = torch.randn(2, 3, 13, 11)
    x[0, 0, 3, 4], x[1, 1], x[1, 2] = torch.nan, 1.0, -torch.inf
    assert external(check(function, x, tolerance=0)) == {}


@pytest.mark.parametrize("options", [{"scale_factor": 2.0}, {"scale_factor": (2.0, 3.0)}, {"size": (10, 21)}])
def test_upsampling_by_whole_factors_is_a_view(options: dict[str, Any]):
    def function(x: Any) -> Any:
        return functional.interpolate(x * 2, **options) + 1

    x = torch.randn(2, 3, 5, 7)
    assert external(check(function, x)) == {}
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    for call, argument in ((compiled(function), a), (function, b)):
        (y := call(argument)).backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    torch.testing.assert_close(a.grad, b.grad)


def test_exported_upsampling_by_whole_factors_has_no_positions():
    def function(x: Any) -> Any:
        return functional.interpolate(x, scale_factor=2) + 1

    (text,) = export(function, [torch.randn(2, 3, 5, 7)])
    assert "graph.broadcast_to" in text and "graph.index" not in text


def test_upsampling_by_other_factors():
    def function(x: Any) -> Any:
        return functional.interpolate(x, size=(7, 9)), functional.interpolate(x, scale_factor=1.5)

    check(function, torch.randn(2, 3, 5, 7))


@pytest.mark.parametrize(
    ("extents", "window", "expected"),
    [
        ((2, 8, 9, 7), (6, 8, 1, 1), {}),
        ((2, 32, 3, 5), (12, 32, 1, 1), {}),
        ((5, 16, 1, 1), (12, 16, 1, 1), {}),
        ((2, 16, 21), (6, 16, 1), {}),
        ((2, 4, 7), (6, 4, 1), {}),
        ((2, 4, 9, 9), (6, 4, 3, 1), {}),
        ((2, 4, 21, 9), (6, 2, 1, 1), {}),
        ((8, 40, 3, 4), (6, 40, 3, 3), {"aten.convolution.default": 1}),
    ],
)
def test_convolutions_are_generated_or_products_or_calls(extents: Any, window: Any, expected: dict[str, int]):
    run = functional.conv2d if len(window) == 4 else functional.conv1d
    groups = extents[1] // window[1]

    def function(x: Any, w: Any, b: Any) -> Any:
        return torch.relu(run(x + 1, w, b, groups=groups))

    arguments = torch.randn(extents), torch.randn(window), torch.randn(window[0])
    assert external(check(function, *arguments)) == expected


def test_a_weight_that_is_used_often_has_its_gradient_from_one_product():
    weight = torch.nn.Parameter(torch.randn(40, 30))
    steps = torch.randn(9, 2, 30)

    def function(x: Any) -> Any:
        return sum(torch.tanh(x[k] @ weight.t()).sum() * (k + 1) for k in range(9)) + (weight * weight).sum()

    function(steps).backward()
    wanted, weight.grad = weight.grad, None
    with collect_reports() as reports:
        compiled(function)(steps).backward()
    assert reports.graphs[-1].counts.external == {"aten.cat.default": 2}
    torch.testing.assert_close(weight.grad, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_tensor_that_is_read_slice_by_slice_has_its_gradient_joined(overlap: bool):
    weight = torch.nn.Parameter(torch.randn(7, 10, 3))

    def function() -> Any:
        parts = [weight[:, k] for k in (4, 0, 1, 5, 2, 9, 7, 8, 6)] + ([weight[:, 1:3].sum(1)] if overlap else [])
        return sum(torch.sin(part * k).sum() for k, part in enumerate(parts)) + (weight**2).sum()

    function().backward()
    wanted, weight.grad = weight.grad, None
    with collect_reports() as reports:
        compiled(function)().backward()
    torch.testing.assert_close(weight.grad, wanted)
    assert reports.graphs[-1].counts.external == {"aten.cat.default": 1}


def test_two_halves_have_their_gradient_from_one_kernel():
    def function(x: Any) -> Any:
        turned = torch.cat([-x[..., 4:], x[..., :4]], -1)
        return (x * 2 + turned * 3).cos().sum()

    x = torch.randn(3, 8, requires_grad=True)
    function(x).backward()
    wanted, x.grad = x.grad, None
    with collect_reports() as reports:
        compiled(function)(x).backward()
    torch.testing.assert_close(x.grad, wanted)
    assert (reports.graphs[-1].stats.kernels, reports.graphs[-1].counts.external) == (1, {})


def test_a_slice_that_is_added_to_itself():
    def function(x: Any) -> Any:
        a = torch.zeros_like(x).select_scatter(x[0] + 1, 0, 1)
        b = torch.zeros_like(x).slice_scatter(x[2:3] * 2, 0, 2, 3)
        return a + a + b

    check(function, torch.randn(4, 5))
    check(function, torch.randn(4, 5, 2).to(memory_format=torch.contiguous_format).transpose(1, 2))


def test_many_tensors_are_joined_by_copies():
    def function(x: Any) -> Any:
        return torch.stack([x + k for k in range(9)], 1), torch.cat([x, x * 2], 1)

    assert external(check(function, torch.randn(3, 4))) == {"aten.stack.default": 1}
