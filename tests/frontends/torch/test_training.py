"""Training through the torch.compile backend: gradients, statistics, dropout and optimisers as eager's."""

from typing import Any

import pytest
from torch_testing import compiled, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch import collect_reports, fuse_opt

functional: Any = torch.nn.functional


def test_dropout_in_training():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.4), torch.nn.GELU(), torch.nn.Linear(16, 4))
    fast, x = compiled(model), torch.randn(5, 8)
    found: list[list[Any]] = []
    with collect_reports() as reports:
        for call in (fast, model):
            model.zero_grad()
            torch.manual_seed(5)
            y = call(x)
            (y * y).sum().backward()
            found.append([y.detach(), *(p.grad.clone() for p in model.parameters())])
    assert [report.kind for report in reports.graphs] == ["forward", "backward"]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.out = torch.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        y = functional.max_pool2d(functional.silu(self.norm(self.conv(x))), 2)
        return functional.log_softmax(self.out(y.mean((2, 3))), -1)


def test_training_steps():
    """Three steps: parameters, gradients and running statistics follow eager's."""
    torch.manual_seed(1)
    models = [Net(), Net()]
    models[1].load_state_dict(models[0].state_dict())
    calls = [models[0], compiled(models[1])]
    x, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    steps = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    with collect_reports() as reports:
        for _ in range(3):
            losses = [functional.nll_loss(call(x), labels) for call in calls]
            for loss, step in zip(losses, steps, strict=True):
                step.zero_grad()
                loss.backward()
                step.step()
            torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    assert [report.kind for report in reports.graphs] == ["forward", "backward"]
    for a, b in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)


class Convolutions(torch.nn.Module):
    """Those whose gradients are generated: strided, of one position, of groups, transposed."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.first = torch.nn.Conv2d(3, 16, 3, 2, 1)
        self.single = torch.nn.Conv2d(16, 32, 1, 2, bias=False)
        self.groups = torch.nn.Conv2d(32, 32, 3, 1, 1, groups=2)
        self.back = torch.nn.ConvTranspose2d(32, 16, 3, 2, 1, 1)

    def forward(self, x: Any) -> Any:
        return self.back(functional.relu(self.groups(self.single(functional.relu(self.first(x))))))


@pytest.mark.parametrize("kind", ["all", "depthwise", "narrow"])
def test_gradients_of_convolutions_are_part_of_the_program(kind: str):
    torch.manual_seed(2)
    dtype = torch.bfloat16 if kind == "narrow" else torch.float32
    tolerance = {"all": 1e-4, "depthwise": 1e-5, "narrow": 3e-2}[kind]
    model, shape = Convolutions(), (2, 3, 19, 17)
    if kind != "all":
        model, shape = torch.nn.Conv2d(16, 16, 3, groups=16 if kind == "depthwise" else 1).to(dtype), (2, 16, 9, 9)
    x, found = torch.randn(shape, dtype=dtype, requires_grad=True), list[Any]()
    with collect_reports() as reports:
        for call in (compiled(model), model):
            model.zero_grad()
            x.grad = None
            call(x).square().sum().backward()
            found.append([x.grad, *(p.grad.clone() for p in model.parameters())])
    backward = next(report for report in reports.graphs if report.kind == "backward")
    assert "aten.convolution_backward.default" not in backward.counts.external
    assert backward.stats.library_calls == 0
    for a, b in zip(*found, strict=True):
        scale = 1.0 if kind == "all" else float(b.abs().max())
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * scale)


def test_two_forwards_before_one_backward():
    w = torch.randn(6, 6, requires_grad=True)

    def function(x: Any) -> Any:
        return torch.tanh(x @ w).exp()

    fast = compiled(function)
    x, y = torch.randn(3, 6), torch.randn(3, 6)
    (fast(x).sum() * fast(y).sum()).backward()
    found, w.grad = w.grad, None
    (torch.tanh(x @ w).exp().sum() * torch.tanh(y @ w).exp().sum()).backward()
    torch.testing.assert_close(found, w.grad, rtol=1e-4, atol=1e-4)


def test_optimiser_step():
    def run(compile_step: bool) -> list[Any]:
        torch.manual_seed(3)
        parameters = [torch.randn(5, 4, requires_grad=True), torch.randn(7, requires_grad=True)]
        adam = torch.optim.Adam(parameters, lr=0.1)
        for p in parameters:
            p.grad = torch.randn_like(p)
        adam.step()
        step = torch.compile(adam.step, backend=fuse_opt) if compile_step else adam.step
        step()
        step()
        return [p.detach() for p in parameters]

    with collect_reports() as reports:
        compiled_step = run(True)
    assert [dict(report.counts.external) for report in reports.graphs] == [{}]
    for a, b in zip(compiled_step, run(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_gradient_of_gelu_is_of_its_own_precision(approximate: str) -> None:
    """Found by random modules: that of f64 was computed in f32."""

    def function(x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate=approximate)

    x = torch.linspace(-4, 4, 101, dtype=torch.float64, requires_grad=True)
    wanted, found = (torch.autograd.grad(f(x).sum(), x)[0] for f in (function, compiled(function)))
    torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-14)


class Mixed(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        torch.nn.Module.__init__(self)
        torch.manual_seed(seed)
        self.table, self.wide, self.narrow = (
            torch.nn.Embedding(11, 12),
            torch.nn.Linear(12, 36),
            torch.nn.Linear(12, 12),
        )
        self.norm, self.cell, self.out = torch.nn.LayerNorm(12), torch.nn.GRUCell(12, 12), torch.nn.Linear(12, 3)

    def forward(self, x: Any, ids: Any, labels: Any) -> Any:
        x = self.norm(x + self.table(ids))
        q, k, v = (part.unflatten(-1, (2, 6)).transpose(1, 2) for part in self.wide(x).chunk(3, -1))
        x = x + self.narrow(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = self.cell(functional.gelu(x.flatten(0, 1)), x.flatten(0, 1))
        return functional.cross_entropy(self.out(x), labels.flatten(), label_smoothing=0.1)


def one_step(model: Any, call: Any, given: list[Any], narrow: bool) -> list[list[Any]]:
    """Gradients, and parameters after a step with them, in f64."""
    step = torch.optim.Adam(model.parameters(), lr=1e-2)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
        loss = call(*given)
    loss.backward()
    gradients = [p.grad.double() for p in model.parameters()]
    step.step()
    return [gradients, [p.detach().double() for p in model.parameters()]]


@pytest.mark.parametrize("seed", range(3))
def test_a_step_under_autocast_is_as_near_to_that_of_f64_as_eagers(seed: int):
    """A first step of Adam is as large where a gradient is next to nothing, whose sign rounding decides: both are far then."""
    models = [Mixed(seed) for _ in range(3)]
    x, ids, labels = torch.randn(4, 7, 12), torch.randint(0, 11, (4, 7)), torch.randint(0, 3, (4, 7))
    exact = one_step(models[0].double(), models[0], [x.double(), ids, labels], False)
    eager = one_step(models[1], models[1], [x, ids, labels], True)
    ours = one_step(models[2], compiled(models[2]), [x, ids, labels], True)
    for found, wanted, values in zip(ours, eager, exact, strict=True):
        errors = [[(a - b).norm() for a, b in zip(each, values, strict=True)] for each in (found, wanted)]
        assert torch.stack(errors[0]).norm() <= 1.2 * torch.stack(errors[1]).norm()
        largest = torch.stack([value.norm() for value in values]).max()
        for mine, other in zip(*errors, strict=True):
            assert mine <= 2 * other + 1e-2 * largest


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_that_is_kept_has_a_second_backward(dynamic: bool):
    """PyTorch refused it, where the backward graph was given what nobody needed any more otherwise."""
    found: list[list[Any]] = []
    for wrapped in (True, False):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4), torch.nn.Softmax(-1))
        call, x = compiled(model, dynamic=dynamic) if wrapped else model, torch.randn(2, 5, 4, requires_grad=True)
        call(x).sum().backward()
        y = call(x)
        y.square().sum().backward(retain_graph=True)
        (y * 3).exp().sum().backward()
        found.append([x.grad, *(p.grad for p in model.parameters())])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)
