"""Gradients of gradients through the torch.compile backend: as eager's, or PyTorch's own refusal, never others."""

from collections.abc import Callable
from typing import Any

import pytest
from torch_testing import compiled, torch
from torch_testing import fresh as fresh

functional: Any = torch.nn.functional


class Critic(torch.nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        torch.nn.Module.__init__(self)
        self.first, self.last = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)
        self.norm, self.dropout = torch.nn.LayerNorm(16), torch.nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        return self.last(self.dropout(self.norm(functional.silu(self.first(x))))).softmax(-1), x.sin()


def penalty(call: Any, model: Any, x: Any) -> list[Any]:
    """A loss with the norm of its own gradient, as of critics; its gradients, and a random number drawn behind it."""
    model.zero_grad()
    x.grad = None
    torch.manual_seed(3)
    y, z = call(x)
    loss = y[:, 0].square().sum() + z.sum()
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + (slope.norm(dim=-1) - 1).square().mean()).backward()
    return [slope.detach(), x.grad, *(p.grad.clone() for p in model.parameters()), torch.rand(2)]


def check(model: Any, dynamic: bool, tolerance: float = 1e-5, extents: tuple[int, ...] = (4, 5, 4)) -> None:
    fast = compiled(model, dynamic=dynamic)
    for rows in extents if dynamic else extents[:1] * 2:
        x = torch.randn(rows, 6, requires_grad=True)
        for ours, wanted in zip(penalty(fast, model, x), penalty(model, model, x), strict=True):
            torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_penalty_of_a_gradient(dropout: float, dynamic: bool):
    check(Critic(dropout), dynamic)


def test_what_is_run_again_is_rounded_as_it_was():
    fast = compiled(model := Critic(), options={"emulate_precision_casts": True})
    x = torch.randn(4, 6, requires_grad=True)

    def mixed(call: Any) -> Callable[..., Any]:
        def run(given: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return call(given)

        return run

    found, wanted = penalty(mixed(fast), model, x), penalty(mixed(model), model, x)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-6, atol=1e-6)
    for ours, other in zip(found, wanted, strict=True):  # the loss itself has the backward graph's gradients
        assert (ours - other).norm() <= 1e-2 * other.norm()


def test_a_hessian():
    def value(x: Any) -> Any:
        return (torch.tanh(x).softmax(-1) * x.exp()).sum()

    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    ours, wanted = (torch.autograd.functional.hessian(call, x) for call in (compiled(value), value))
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_third_gradients():
    def value(x: Any) -> Any:
        return torch.sin(x) * x.exp()

    found: list[list[Any]] = []
    for call in (compiled(value), value):
        x = torch.linspace(-1, 1, 5, dtype=torch.float64).requires_grad_()
        slopes = [call(x)]
        for _ in range(3):
            slopes += torch.autograd.grad(slopes[-1].sum(), x, create_graph=True)
        found.append([slope.detach() for slope in slopes])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_gradients_that_are_not_differentiated_are_the_programs():
    def value(x: Any) -> Any:
        return torch.tanh(x).exp() * 2

    fast, x = compiled(value), torch.randn(5, requires_grad=True)
    y = fast(x).sum()
    torch.autograd.grad(y, x, retain_graph=True)
    with torch.autograd.profiler.profile() as profile:
        torch.autograd.grad(y, x)
    assert "aten::tanh" not in {event.name for event in profile.function_events}


def test_arguments_that_are_written_to_are_refused_as_by_pytorch():
    def written(x: Any, total: Any) -> Any:
        total.add_(x.detach())
        return torch.tanh(x) * total.sum()

    x = torch.randn(5, requires_grad=True)
    (slope,) = torch.autograd.grad(compiled(written)(x, torch.zeros(5)).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        slope.sum().backward()


def test_statistics_are_updated_once():
    """They are arguments that are written to, inside of the graph."""
    found: list[Any] = []
    for wrapped in (True, False):
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh())
        call, x = compiled(model) if wrapped else model, torch.randn(5, 6, requires_grad=True)
        torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        found.append([value.clone() for value in model.buffers()])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted)


def test_values_that_changed_since_are_refused():
    def value(x: Any, w: Any) -> Any:
        return torch.tanh(x * w)

    x, w = torch.randn(5, requires_grad=True), torch.randn(5)
    y = compiled(value)(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_an_argument_that_is_gone_is_no_other_one():
    def value(x: Any, w: Any) -> Any:
        return torch.tanh(x) * w.sum()

    x = torch.randn(5, requires_grad=True)
    y = compiled(value)(x, torch.ones(5))
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(slope.detach(), (1 - torch.tanh(x.detach()) ** 2) * 5)
    with pytest.raises(RuntimeError, match="double backward"):
        slope.sum().backward()
