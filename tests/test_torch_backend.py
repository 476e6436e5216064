"""The torch.compile backend against eager PyTorch: results, gradients, views, mutation, layouts; nothing falls back whole."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="the torch backend needs PyTorch, which is not installed here")

from fuse_opt.frontends import torch_backend  # noqa: E402
from fuse_opt.frontends.torch import collect_reports, export, fuse_opt  # noqa: E402
from fuse_opt.frontends.torch_code import compile_call  # noqa: E402
from fuse_opt.frontends.torch_models import MODELS  # noqa: E402
from fuse_opt.frontends.torch_table import TABLE, claims  # noqa: E402
from fuse_opt.tools import api  # noqa: E402

functional: Any = torch.nn.functional


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=fuse_opt, fullgraph=True, **{"dynamic": False, **options})


def check(function: Callable[..., Any], *arguments: Any, tolerance: float = 1e-5) -> list[Any]:
    """Compares two calls with eager, and looks at the first results again after the second call; gives the reports."""
    fast = compiled(function)
    with collect_reports() as reports:
        first = fast(*arguments)
    kept = [value.clone() for value in leaves(first)]
    wanted = leaves(function(*arguments))
    second = leaves(fast(*arguments))
    assert reports.graphs, "the backend compiled nothing"
    for values in (leaves(first), second):
        for value, expected, before in zip(values, wanted, kept, strict=True):
            assert value.dtype == expected.dtype and value.shape == expected.shape
            assert value.stride() == expected.stride() or 1 in value.shape or value.numel() == 0
            torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
            torch.testing.assert_close(value, before, rtol=0, atol=0, equal_nan=True)
    return reports.graphs


def leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [item for part in value for item in leaves(part)]


def external(reports: list[Any]) -> dict[str, int]:
    return {name: count for report in reports for name, count in report.counts.external.items()}


def test_backend_is_found_by_name():
    assert "fuse_opt" in torch.compiler.list_backends()
    with collect_reports() as reports:
        fast = torch.compile(torch.exp, backend="fuse_opt", mode="default")
        torch.testing.assert_close(fast(x := torch.randn(4)), torch.exp(x))
    assert len(reports.graphs) == 1


def test_pointwise_reductions_and_views_need_no_call_of_pytorch():
    def function(x: Any, y: Any) -> Any:
        a = torch.softmax(x * 2 - y[:, :1], -1).transpose(0, 1)
        b = functional.layer_norm(functional.gelu(x), (8,)) + torch.where(y > 0, x, y).unsqueeze(0)
        return a, b[..., ::2].reshape(-1, 2), torch.cat([x, y], 1).flip(0), x.var(0), (x > y).any(1), x.argmax(1)

    assert external(check(function, torch.randn(6, 8), torch.randn(6, 8))) == {}


def test_products_are_calls_and_their_neighbours_are_not():
    def function(x: Any, w: Any, b: Any) -> Any:
        return torch.relu(functional.linear(x, w, b)) @ w + 1

    reports = check(function, torch.randn(4, 16), torch.randn(16, 16), torch.randn(16), tolerance=1e-4)
    assert external(reports) == {"aten.addmm.default": 1, "aten.mm.default": 1}
    assert reports[0].stats.kernels == 2
    assert "PyTorch's own kernel" in str(reports[0])


def test_unknown_operators_stay_calls_inside_the_program():
    def function(x: Any) -> Any:
        values, order = torch.sort(x + 1, dim=1)
        return torch.special.bessel_j0(values * 2).sum(), torch.linalg.inv(values @ values.T + torch.eye(4)), order

    found = external(check(function, torch.rand(4, 6), tolerance=1e-3))
    assert {"aten.sort.default", "aten.special_bessel_j0.default"} <= found.keys()


def test_shapes_that_depend_on_data():
    def function(x: Any) -> Any:
        return (x * 2)[x > 0] + 1

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        check(function, torch.randn(20))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_complex_numbers_are_left_to_pytorch():
    def function(x: Any) -> Any:
        z = torch.view_as_complex(x.reshape(-1, 4, 2) * 2)
        return torch.view_as_real(z * z.conj()) + 1, torch.fft.fft(x + 1)

    check(function, torch.randn(3, 8), tolerance=1e-4)


def test_results_that_are_views():
    def function(x: Any, y: Any) -> Any:
        z = x * y
        return x[1:], z.T, z[:, 1:3], z.expand(2, *z.shape), x, z.reshape(-1)

    check(function, torch.randn(4, 5), torch.randn(4, 5))
    first = compiled(function)(x := torch.randn(4, 5), torch.randn(4, 5))
    assert first[0].data_ptr() == x[1:].data_ptr() and first[4] is x


def test_mutation_of_arguments():
    def function(x: Any, y: Any) -> Any:
        x.mul_(2).add_(y)
        y[1:].fill_(3)
        return x + y

    x, y = torch.randn(5, 4), torch.randn(5, 4)
    a, b = x.clone(), y.clone()
    fast = compiled(function)
    for _ in range(3):
        torch.testing.assert_close(fast(x, y), function(a, b))
        torch.testing.assert_close(x, a)
        torch.testing.assert_close(y, b)


def test_a_result_that_is_stored_does_not_alias_the_argument():
    def function(x: Any) -> Any:
        x.add_(1)
        return x * 2, x.clone()

    x = torch.zeros(8)
    double, copy = compiled(function)(x)
    x.fill_(9)
    assert double.tolist() == [2.0] * 8 and copy.tolist() == [1.0] * 8


CHANGES: dict[str, Callable[[Any], Any]] = {
    "columns": lambda x: x[:, 1:5],
    "transposed": lambda x: x.T,
    "steps": lambda x: x[::2, ::3],
    "repeated": lambda x: x[:1].expand(6, 8),
    "one column": lambda x: x[:, 0],
    "windows": lambda x: x.unfold(1, 4, 2),
    "overlapping": lambda x: x.as_strided((3, 2), (2, 1), 5),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("change", CHANGES)
def test_arguments_of_any_strides(change: str):
    def function(x: Any) -> Any:
        return torch.exp(x) + 1, x.sum(-1)

    check(function, CHANGES[change](torch.randn(6, 8)))


def test_unusual_views_inside():
    def function(x: Any) -> Any:
        y = x + 1
        return y.unfold(1, 4, 2) * 2, torch.as_strided(y, (3, 2), (2, 1), 5) + 1, y.diagonal() * 2

    reports = check(function, torch.randn(6, 8))
    assert external(reports) == {"aten.clone.default": 1}, "only overlapping windows are copied"
    assert "reads a view that kernels cannot" in str(reports[0])


def test_group_norm_is_code_of_the_program():
    def function(x: Any, w: Any, b: Any) -> Any:
        return functional.silu(functional.group_norm(x, 4, w, b))

    assert external(check(function, torch.randn(2, 8, 5, 5), torch.randn(8), torch.randn(8))) == {}


def test_channels_last_is_kept():
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    with torch.no_grad():
        y = compiled(model)(x)
        assert y.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(y, model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64", "int64", "bool", "uint8"])
def test_element_types(name: str):
    dtype = getattr(torch, name)

    def function(x: Any, y: Any) -> Any:
        return torch.where(x > y, x, y), (x * 2 + 1).sum(0), x.to(torch.float32) * 0.1, x == 1

    if dtype.is_floating_point:
        x, y = torch.randn(6, 8).to(dtype), torch.randn(6, 8).to(dtype)
    else:
        x, y = torch.randint(0, 2, (6, 8)).to(dtype), torch.randint(0, 2, (6, 8)).to(dtype)
    check(function, x, y, tolerance=1e-2 if dtype.itemsize == 2 else 1e-5)


def test_numbers_and_promotion():
    def function(x: Any, i: Any, s: Any) -> Any:
        return x * i, i / 2, i + 0.5, x + s, x.half() * s, i * True, 2**x, x // 0.3, i % 3, -x

    check(function, torch.randn(5), torch.arange(5), torch.tensor(2.5), tolerance=1e-3)


def test_unknown_batch_sizes():
    def function(x: Any) -> Any:
        return torch.softmax(x * x.shape[0], -1)

    fast = compiled(function, dynamic=True)
    for batch in (3, 5, 8, 3):
        x = torch.randn(batch, 7)
        torch.testing.assert_close(fast(x), torch.softmax(x * batch, -1))


def test_no_more_programs_than_allowed_for_changing_sizes(caplog: pytest.LogCaptureFixture, monkeypatch: Any):
    monkeypatch.setattr("fuse_opt.frontends.torch_shapes._MOST", 2)

    def function(x: Any) -> Any:
        x.add_(1)
        return torch.tanh(x) * x.shape[0]

    fast = compiled(function, dynamic=True)
    with collect_reports() as reports:
        for batch in (3, 5, 3, 8, 9, 5):
            a, b = torch.ones(batch, 7), torch.ones(batch, 7)
            torch.testing.assert_close(fast(a), function(b))
            torch.testing.assert_close(a, b)
    assert len(reports.graphs) == 2
    assert caplog.text.count("others are run by PyTorch") == 1


def test_numbers_that_change():
    def function(x: Any, a: Any, n: Any) -> Any:
        return x * a + n

    fast = torch.compile(function, backend=fuse_opt)
    for a, n in ((0.5, 1), (1.5, 2), (2.5, 7), (3.5, -1)):
        torch.testing.assert_close(fast(x := torch.randn(4), a, n), function(x, a, n))


def code(function: Any, directory: Any, *arguments: Any) -> str:
    """The text of the function that runs the graph."""
    compiled(function, options={"dump": str(directory)})(*arguments)
    (path,) = directory.glob("*_call.py")
    return path.read_text()


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(1, 3),
    "slice": lambda x: x[:, 1:3],
    "repeated": lambda x: x[:, :1].expand(2, 4, 6, 6),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_is_copied(layout: str, dtype: str, tmp_path: Any):
    """Arguments are read, and results written, where they are: the call has no copy, and nothing but the kernel runs."""

    def function(x: Any) -> Any:
        return torch.exp(x) * 2

    x = LAYOUTS[layout](torch.randn(2, 4, 6, 6, dtype=getattr(torch, dtype)))
    text = code(function, tmp_path, x)
    assert "a0.data_ptr()" in text and "r0.data_ptr()" in text
    assert not any(word in text for word in ("copy_", "clone", "contiguous"))
    check(function, x, tolerance=2e-2 if dtype == "bfloat16" else 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arguments_are_overwritten_in_place(dtype: str, tmp_path: Any):
    def function(x: Any, y: Any) -> Any:
        x.mul_(2).add_(y)
        return x

    x, y = (torch.ones(64, dtype=getattr(torch, dtype)) for _ in range(2))
    address = x.data_ptr()
    assert "copy_" not in code(function, tmp_path, x, y)
    result = compiled(function)(x, y)
    assert result is x and x.data_ptr() == address and x.tolist() == [7.0] * 64


def doubled(name: str, function: Callable[[Any], Any], fake: Callable[[Any], Any]) -> Any:
    """A compiled call of an operator whose description (`fake`) says something else than what it does, times two."""
    schema = "(Tensor x) -> Tensor"
    operator = torch.library.custom_op(f"fuse_opt_test::{name}", function, mutates_args=(), schema=schema)
    operator.register_fake(fake)

    def twice(x: Any) -> Any:
        return operator(x) * 2

    return compiled(twice)


def test_results_of_foreign_kernels_are_checked():
    def strided(x: Any) -> Any:
        return x.t().clone(memory_format=torch.preserve_format)

    def transposed(x: Any) -> Any:
        return x.new_empty(x.shape[1], x.shape[0])

    def narrow(x: Any) -> Any:
        return (x + 1).to(torch.bfloat16)

    def short(x: Any) -> Any:
        return x[:2].clone()

    x = torch.arange(12.0).reshape(3, 4)
    torch.testing.assert_close(doubled("strided", strided, transposed)(x), x.t() * 2)
    torch.testing.assert_close(doubled("narrow", narrow, torch.empty_like)(x), (x + 1) * 2)
    with pytest.raises(RuntimeError, match=r"short.* returned the shape \(2, 4\), expected \(3, 4\)"):
        doubled("short", short, torch.empty_like)(x)


def test_random_numbers_are_those_of_eager():
    def function(x: Any) -> Any:
        a, b = torch.rand(5), torch.randn(6)
        return functional.dropout(x, 0.3), torch.bernoulli(torch.sigmoid(x)), a + 1, torch.randint(0, 9, (7,)) * 2, b

    fast, x = compiled(function), torch.randn(64)
    fast(x)
    for seed in range(3):
        torch.manual_seed(seed)
        wanted, state = function(x), torch.get_rng_state()
        torch.manual_seed(seed)
        for found, expected in zip(fast(x), wanted, strict=True):
            torch.testing.assert_close(found, expected)
        assert torch.equal(torch.get_rng_state(), state)


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


def test_upsampling_by_other_factors():
    def function(x: Any) -> Any:
        return functional.interpolate(x, size=(7, 9)), functional.interpolate(x, scale_factor=1.5)

    check(function, torch.randn(2, 3, 5, 7))


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

    for a, b in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "mobilenet", "lstm"])
def test_models(name: str):
    sample = MODELS[name](2)
    with torch.no_grad():
        check(sample.model, *sample.arguments, tolerance=1e-4)


def test_threads_may_call_at_once():
    from concurrent.futures import ThreadPoolExecutor

    def function(x: Any) -> Any:
        return torch.relu(x @ x) * 2

    fast = compiled(function)
    inputs = [torch.randn(32, 32) for _ in range(16)]
    fast(inputs[0])
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(inputs, pool.map(fast, inputs), strict=True):
            torch.testing.assert_close(y, function(x), rtol=1e-4, atol=1e-4)


def chain(x: Any) -> Any:
    return torch.tanh(torch.sin(torch.exp(x)))


def test_options(tmp_path: Any):
    fast = compiled(torch.exp, options={"dump": str(tmp_path), "pipeline": "unfused"})
    fast(torch.randn(4))
    names = {path.name.partition("_")[2] for path in tmp_path.iterdir()}
    assert {"inference.mlir", "inference.c", "inference_call.py", "inference_report.txt"} <= names
    torch._dynamo.reset()
    decisions = tmp_path / "decisions.txt"
    decisions.write_text("")
    with collect_reports() as reports:
        compiled(chain, options={"decisions": str(decisions)})(torch.randn(4))
    torch._dynamo.reset()
    with collect_reports() as fused:
        compiled(chain)(torch.randn(4))
    assert reports.graphs[0].stats.kernels == 3 and fused.graphs[0].stats.kernels == 1
    with pytest.raises(Exception, match="option 'size': expected one of target"):
        compiled(torch.exp, options={"size": 3})(torch.randn(4))


def test_graphs_are_logged(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "fuse_opt.torch"):
        compiled(torch.linalg.inv)(torch.eye(3))
    assert "external: 1 x aten.linalg_inv_ex.default: is in no record" in caplog.text


def test_export_is_a_program():
    sample = MODELS["mlp"](2)
    (text,) = export(sample.model, sample.arguments)
    assert "graph.matmul" in text and "torch.aten" not in text
    parameters = {name: p.detach().numpy() for name, p in sample.model.named_parameters()}
    x = sample.arguments[0].numpy()
    first, *others = parameters.values()
    y = api.compile(text)(first, others[0], x, *others[1:])
    torch.testing.assert_close(torch.from_numpy(y), sample.model(sample.arguments[0]).detach(), rtol=1e-4, atol=1e-4)


def test_claims_are_the_records():
    assert set(claims()) == {name for name, record in TABLE.items() if not record.library}
    for name in TABLE:
        namespace, packet, overload = name.split(".")
        assert getattr(getattr(getattr(torch.ops, namespace), packet), overload) is not None


@pytest.mark.parametrize(
    ("extents", "window", "expected"),
    [
        ((2, 4, 5, 3), (6, 4, 1, 1), {"aten.bmm.default": 1}),
        ((2, 4, 1, 1), (6, 4, 1, 1), {"aten.addmm.default": 1}),
        ((2, 4, 7), (6, 4, 1), {"aten.bmm.default": 1}),
        ((2, 4, 5, 3), (6, 4, 3, 1), {"aten.convolution.default": 1}),
        ((2, 4, 5, 3), (6, 2, 1, 1), {"aten.convolution.default": 1}),
    ],
)
def test_convolutions_of_single_positions_are_products(extents: Any, window: Any, expected: dict[str, int]):
    run = functional.conv2d if len(window) == 4 else functional.conv1d
    groups = extents[1] // window[1]

    def function(x: Any, w: Any, b: Any) -> Any:
        return torch.relu(run(x + 1, w, b, groups=groups))

    arguments = torch.randn(extents), torch.randn(window), torch.randn(window[0])
    assert external(check(function, *arguments)) == expected


def test_a_weight_that_is_used_often_has_its_gradient_from_one_product():
    weight = torch.nn.Parameter(torch.randn(40, 30))
    steps = torch.randn(5, 2, 30)

    def function(x: Any) -> Any:
        return sum(torch.tanh(x[k] @ weight.t()).sum() * (k + 1) for k in range(5)) + (weight * weight).sum()

    function(steps).backward()
    wanted, weight.grad = weight.grad, None
    with collect_reports() as reports:
        compiled(function)(steps).backward()
    assert reports.graphs[-1].counts.external == {"aten.cat.default": 2, "aten.mm.default": 1}
    torch.testing.assert_close(weight.grad, wanted, rtol=1e-5, atol=1e-5)


def test_many_tensors_are_joined_by_copies():
    def function(x: Any) -> Any:
        return torch.stack([x + k for k in range(6)], 1), torch.cat([x, x * 2], 1)

    assert external(check(function, torch.randn(3, 4))) == {"aten.stack.default": 1}


def test_a_view_that_several_calls_take_is_made_once(tmp_path: Any):
    def function(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = torch.tanh(x @ w.t())
        return x, w.t()

    check(function, torch.randn(4, 4), torch.randn(4, 4))
    fast = compiled(function, options={"dump": str(tmp_path)})
    torch._dynamo.reset()
    fast(torch.randn(4, 4), torch.randn(4, 4))
    assert next(tmp_path.glob("*_call.py")).read_text().count("strided(") == 1


def test_descriptions_of_results_that_nobody_reads_are_not_checked():
    offsets = torch.tensor([0, 3])

    def function(ids: Any, weight: Any) -> Any:
        return functional.embedding_bag(ids, weight, offsets, mode="sum") + 1

    arguments = torch.randint(0, 5, (6,)), torch.randn(5, 5).bfloat16()
    check(function, *arguments, tolerance=2e-2)


def test_kernels_that_turn_blocks_write_to_their_results(monkeypatch: Any):
    programs: list[Any] = []

    def kept(imported: Any, native: Any) -> Any:
        programs.append(native.program)
        return compile_call(imported, native)

    monkeypatch.setattr(torch_backend, "compile_call", kept)

    def function(x: Any) -> Any:
        return x.transpose(1, 2).contiguous()

    check(function, torch.randn(8, 64, 64))
    launches = [launch for step in programs[0].steps for launch in step.launches]
    assert launches and all(launch.stores for launch in launches)
