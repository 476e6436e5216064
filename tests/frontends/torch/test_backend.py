"""The torch.compile backend against eager PyTorch: results and what becomes of graphs; nothing falls back whole."""

import logging
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from torch_testing import check, compiled, external, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch import collect_reports, export, fuse_opt
from fuse_opt.frontends.torch.models import MODELS
from fuse_opt.frontends.torch.operators.table import TABLE, claims
from fuse_opt.runtime.host import thread_pool
from fuse_opt.tools.compiler import api

functional: Any = torch.nn.functional


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


def test_products_are_generated():
    def function(x: Any, w: Any, b: Any) -> Any:
        return torch.relu(functional.linear(x, w, b)) @ w + 1

    reports = check(function, torch.randn(4, 16), torch.randn(16, 16), torch.randn(16), tolerance=1e-4)
    assert external(reports) == {} and reports[0].stats.library_calls == 0
    reports = check(function, torch.randn(40, 16), torch.randn(16, 16), torch.randn(16), tolerance=1e-4)
    assert external(reports) == {} and reports[0].stats.library_calls == 0
    reports = check(function, *(torch.randn(*n).bfloat16() for n in ((40, 16), (16, 16), (16,))), tolerance=0.5)
    assert "which is faster for products of bf16" in str(reports[0])
    reports = check(function, *(torch.randn(*n).bfloat16() for n in ((4, 16), (16, 16), (16,))), tolerance=0.5)
    assert external(reports) == {} and reports[0].stats.library_calls == 0, "few rows read weights where they lie"
    reports = check(function, *(torch.randn(*n).half() for n in ((40, 16), (16, 16), (16,))), tolerance=0.05)
    assert external(reports) == {} and reports[0].stats.library_calls == 0


def test_products_of_bytes_are_generated():
    def function(x: Any, w: Any) -> Any:
        return torch._int_mm(x, w) + 1

    reports = check(function, *(torch.randint(-128, 128, n, dtype=torch.int8) for n in ((40, 16), (16, 24))))
    assert external(reports) == {} and reports[0].stats.library_calls == 0


def test_programs_use_no_more_threads_than_pytorch_may():
    before, own = torch.get_num_threads(), thread_pool.num_threads()

    def function(x: Any) -> Any:
        return torch.sin(x) * 2

    fast, x = compiled(function), torch.randn(1000)
    try:
        thread_pool.set_num_threads(3)
        for allowed, expected in ((1, 1), (2, 2), (8, 3)):
            torch.set_num_threads(allowed)
            torch.testing.assert_close(fast(x), function(x))
            assert thread_pool.num_threads() == expected
    finally:
        torch.set_num_threads(before)
        thread_pool.set_num_threads(own)


def test_unknown_operators_stay_calls_inside_the_program():
    def function(x: Any) -> Any:
        values, order = torch.topk(x + 1, 3, dim=1)
        return torch.linalg.det(values[:3] * 2).sum(), torch.linalg.inv(values @ values.T + torch.eye(4)), order

    found = external(check(function, torch.rand(4, 6), tolerance=1e-3))
    assert {"aten.topk.default", "aten._linalg_det.default"} <= found.keys()


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


def specialised(*_: Any) -> None:
    """In the place of a program for all extents."""


@pytest.mark.parametrize(("most", "expected"), [(2, 2), (3, 3)])
def test_programs_for_changing_sizes(most: int, expected: int, caplog: pytest.LogCaptureFixture, monkeypatch: Any):
    monkeypatch.setattr("fuse_opt.frontends.torch.fallback._AT_ONCE", 2)
    monkeypatch.setattr("fuse_opt.frontends.torch.backend.compile_sized_graph", specialised)

    def function(x: Any) -> Any:
        x.add_(1)
        return torch.tanh(x) * x.shape[0]

    fast = compiled(function, dynamic=True, options={"programs": most})
    with collect_reports() as reports:
        for batch in (3, 5, 3, 8, 9, 5, 8, 8, 8, 8, 9):
            a, b = torch.ones(batch, 7), torch.ones(batch, 7)
            torch.testing.assert_close(fast(a), function(b))
            torch.testing.assert_close(a, b)
    assert len(reports.graphs) == expected
    assert caplog.text.count("PyTorch runs it for others") == 1


def test_numbers_that_change():
    def function(x: Any, a: Any, n: Any) -> Any:
        return x * a + n

    fast = torch.compile(function, backend=fuse_opt)
    for a, n in ((0.5, 1), (1.5, 2), (2.5, 7), (3.5, -1)):
        torch.testing.assert_close(fast(x := torch.randn(4), a, n), function(x, a, n))


def doubled(name: str, function: Callable[[Any], Any], fake: Callable[[Any], Any], **options: Any) -> Any:
    """A compiled call of an operator whose description (`fake`) says something else than what it does, times two."""
    schema = "(Tensor x) -> Tensor"
    operator = torch.library.custom_op(f"fuse_opt_test::{name}", function, mutates_args=(), schema=schema)
    operator.register_fake(fake)

    def twice(x: Any) -> Any:
        return operator(x) * 2

    return compiled(twice, **options)


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
    said = r"short.* returned the shape \(2, 4\), expected \(3, 4\)"
    with pytest.warns(RuntimeWarning, match=f"its first call fails: .*{said}"):
        torch.testing.assert_close(doubled("short", short, torch.empty_like)(x), x[:2] * 2)
    with pytest.raises(RuntimeError, match=said):
        doubled("short", short, torch.empty_like, options={"strict": True})(x)


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_what_dropout_draws_is_in_the_order_of_memory(axes: tuple[int, ...]):
    """Found by random modules: an encoder's layer drops elements of a transposed tensor."""

    def function(x: Any) -> Any:
        return torch.nn.functional.dropout(x.permute(axes) * 2, 0.5)

    x, results = torch.rand(5, 6, 7) + 1, list[Any]()
    for call in (compiled(function), function):
        torch.manual_seed(4)
        results.append(call(x))
    assert torch.equal(*results)


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
    dumped = next(tmp_path.glob("*_inference.mlir"))
    assert str(api.optimize(str(dumped), ())) in dumped.read_text()  # it can be read again
    torch._dynamo.reset()
    decisions = tmp_path / "decisions.txt"
    decisions.write_text("")
    with collect_reports() as reports:
        compiled(chain, options={"decisions": str(decisions)})(torch.randn(4))
    torch._dynamo.reset()
    with collect_reports() as fused:
        compiled(chain)(torch.randn(4))
    assert reports.graphs[0].stats.kernels == 3 and fused.graphs[0].stats.kernels == 1
    for wrong, message in (({"size": 3}, "'size': expected one of target"), ({"dump": [1]}, "'dump': expected a text")):
        with pytest.raises(Exception, match=f"option {message}"):
            compiled(torch.exp, options=wrong)(torch.randn(4))


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
    import_module("torch._inductor.inductor_prims")  # some of the ops are known from then on
    assert set(claims()) == set(TABLE)
    for name in TABLE:
        namespace, packet, overload = name.split(".")
        assert getattr(getattr(getattr(torch.ops, namespace), packet), overload) is not None


def test_descriptions_of_results_that_nobody_reads_are_not_checked():
    offsets = torch.tensor([0, 3])

    def function(ids: Any, weight: Any) -> Any:
        return functional.embedding_bag(ids, weight, offsets, mode="sum") + 1

    arguments = torch.randint(0, 5, (6,)), torch.randn(5, 5).bfloat16()
    check(function, *arguments, tolerance=2e-2)


def test_tuned_files_are_given_on(tmp_path: Path):
    softmax = torch.nn.Softmax(-1)
    (tmp_path / "t.json").write_text('{"fuse-opt-tuned": 9}')
    with pytest.raises(Exception, match='t.json:1:1: error: expected "fuse-opt-tuned": 1, got 9'):
        options = {"tuned": str(tmp_path / "t.json"), "strict": True}
        torch.compile(softmax, backend="fuse_opt", options=options)(torch.ones(8, 16))
    with pytest.raises(Exception, match="option 'tuned': there is no 'none.json'; fuse-tune writes such a file"):
        torch.compile(softmax, backend="fuse_opt", options={"tuned": "none.json"})(torch.ones(8, 16))


def test_a_budget_holds_for_what_is_saved_and_what_is_not():
    def deep(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = functional.gelu(x @ w)
        return x.sum()

    def needed(options: dict[str, Any]) -> tuple[int, int]:
        torch.compiler.reset()
        x, w = (torch.full((64, 64), 0.01, requires_grad=True) for _ in range(2))
        with collect_reports() as reports:
            torch.compile(deep, backend="fuse_opt", options={**options, "strict": True})(x, w).backward()
        assert w.grad is not None
        grads.append(w.grad)
        assert [graph.kind for graph in reports.graphs] == ["forward", "backward"]
        saved = reports.graphs[0].saved
        return saved, saved + max(graph.stats.arena_bytes for graph in reports.graphs)

    grads: list[Any] = []
    saved, free = needed({})
    assert needed({"budget": "1MiB"}) == (saved, free)
    kept, within = needed({"budget": f"{free - 1}B"})
    assert kept < saved and within < free
    torch.testing.assert_close(grads[-1], grads[0])
    with pytest.raises(Exception, match="of 1000 bytes .* take [0-9]+; .*; with those [0-9]+B") as refused:
        needed({"budget": "1000B"})
    found = re.search(r"with those (\d+)B", str(refused.value))
    assert found is not None
    least = int(found[1])
    assert sum(needed({"budget": f"{least}B"})[1:]) <= least < within
    with pytest.raises(Exception, match=f"with those {least}B"):
        needed({"budget": f"{least - 1}B"})
    with pytest.raises(Exception, match="budget: expected a number with one of the units"):
        torch.compile(deep, backend="fuse_opt", options={"budget": "48"})(torch.ones(2, 2), torch.ones(2, 2))
