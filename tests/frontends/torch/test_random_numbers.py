"""Random numbers of compiled graphs under a seed: those of eager, in both directions, and as many of them."""

from typing import Any

import pytest
from torch_testing import compiled, torch
from torch_testing import fresh as fresh

functional: Any = torch.nn.functional


def layers(x: Any, w: Any) -> Any:
    y = functional.dropout(torch.relu(x @ w), 0.4)
    y = functional.dropout1d(y[:, None], 0.3)[:, 0] + functional.alpha_dropout(torch.tanh(x @ w), 0.2, True)
    return y * torch.bernoulli(torch.sigmoid(y.detach())) + torch.rand_like(y) * y.exp()


def kept(x: Any, w: Any) -> Any:
    """The mask is seen: what is dropped has no gradient."""
    return functional.dropout(x @ w, 0.5)


def again(x: Any, w: Any) -> Any:
    """Drawn anew in the backward graph, from the state that the forward graph had."""
    return torch.utils.checkpoint.checkpoint(kept, torch.sin(x), w, use_reentrant=False).exp()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [layers, kept, again])
def test_both_directions_have_eagers_numbers_and_state(function: Any, dynamic: bool):
    fast = compiled(function, dynamic=dynamic)
    for turn, rows in enumerate((4, 4, 6 if dynamic else 4)):
        outcomes: list[list[Any]] = []
        for call in (fast, function):
            torch.manual_seed(turn)
            x, w = torch.randn(rows, 5, requires_grad=True), torch.randn(5, 8, requires_grad=True)
            y = call(x, w)
            forward = torch.get_rng_state()
            y.square().sum().backward()
            outcomes.append([y.detach(), x.grad, w.grad, forward, torch.get_rng_state()])
        for ours, wanted in zip(*outcomes, strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_dropped_forwards_is_dropped_backwards():
    def dropped(x: Any) -> Any:
        return functional.dropout(x * 2, 0.5)

    fast, x = compiled(dropped), torch.ones(2000, requires_grad=True)
    y = fast(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach()) and 800 < int((y == 0).sum()) < 1200
    assert not torch.equal(fast(x) == 0, y == 0)
