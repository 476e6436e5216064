"""Graphs for CUDA: imported from fake tensors of a device, and run by emulation, with PyTorch's calls on the processor."""

from __future__ import annotations

import shutil
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import fuse_opt  # noqa: E402
from fuse_opt.frontends.torch import collect_reports  # noqa: E402
from fuse_opt.frontends.torch.codegen import device_wrapper  # noqa: E402
from fuse_opt.frontends.torch.dynamic_shapes import metas_of  # noqa: E402
from fuse_opt.frontends.torch.importer.importer import Importer  # noqa: E402
from fuse_opt.frontends.torch.importer.memory_places import device_of  # noqa: E402
from fuse_opt.lowering.emit import build_cuda_program  # noqa: E402
from fuse_opt.runtime.cuda.caller_program import pieces_of  # noqa: E402

needs_cxx = pytest.mark.skipif(shutil.which("g++") is None, reason="CUDA C is emulated by g++")


def emulated(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="fuse_opt", options={"target": "emulated", "strict": True})


def traced(function: Callable[..., Any], device: str, *shapes: tuple[int, ...]) -> Any:
    fakes: Any = pytest.importorskip("torch._subclasses.fake_tensor")
    proxies: Any = pytest.importorskip("torch.fx.experimental.proxy_tensor")
    with fakes.FakeTensorMode() as mode:
        made = [torch.empty(shape, device=device) for shape in shapes]
        gm = proxies.make_fx(function)(*made)
    assert mode is not None
    return gm


def attended(x: Any, w: Any, b: Any) -> Any:
    y = torch.nn.functional.gelu(torch.addmm(b, x, w)).view(4, 8, 32)
    y = (y - y.mean(-1, keepdim=True)).transpose(1, 2)
    return y.clone(memory_format=torch.contiguous_format) * 2, y.relu() + torch.rand_like(y), torch.full_like(b, 3.0)


def test_a_graph_of_a_device_is_imported_as_one_of_the_processor() -> None:
    shapes = ((32, 64), (64, 32), (32,))
    texts: list[str] = []
    for device in ("cpu", "cuda"):
        gm = traced(attended, device, *shapes)
        importer = Importer(gm, metas_of(gm) or (lambda node: None), libraries=True)
        assert importer.device.type == device
        texts.append(str(importer.run().module).replace("cuda:0", "cpu"))
    assert texts[0] == texts[1]
    assert "aten.addmm" in texts[0] and "graph.gelu" in texts[0] and "aten.rand_like" in texts[0]


def stepped(x: Any, step: Any) -> Any:
    return (x * step).exp() + 1, step + 1


def grown(x: Any) -> Any:
    return x.exp() + 1


def test_numbers_of_the_processor_beside_tensors_of_a_device() -> None:
    fakes: Any = pytest.importorskip("torch._subclasses.fake_tensor")
    proxies: Any = pytest.importorskip("torch.fx.experimental.proxy_tensor")
    with fakes.FakeTensorMode():
        x, step = torch.empty(8, device="cuda"), torch.empty(())
        gm = proxies.make_fx(stepped)(x, step)
        other = torch.empty(2, device="cuda:1")
    imported = Importer(gm, metas_of(gm) or (lambda node: None)).run()
    assert imported.counts.external == {"aten.mul.Tensor": 1, "aten.add.Tensor": 1} and imported.counts.native == 2
    with pytest.raises(NotImplementedError, match="cuda:0, cuda:1: expected one CUDA device"):
        device_of([x, other])


class Block(torch.nn.Module):
    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.first = torch.nn.Linear(12, 24)
        self.norm = torch.nn.BatchNorm1d(24)
        self.last = torch.nn.Linear(24, 16)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        return torch.log_softmax(self.last(y), -1), y.t()


@needs_cxx
def test_a_step_of_training() -> None:
    torch.manual_seed(0)
    ours, eager, x = Block(), Block(), torch.randn(9, 12)
    eager.load_state_dict(ours.state_dict())
    call = emulated(ours)
    with collect_reports() as reports:
        for model in (call, eager):
            for _ in range(2):
                y, image = model(x)
                (y[:, 0].sum() + image.square().mean()).backward()
    assert [graph.kind for graph in reports.graphs] == ["forward", "backward"]
    assert all(graph.left is None and graph.counts.native > 3 for graph in reports.graphs)
    for (name, a), b in zip(ours.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(ours.state_dict(), eager.state_dict(), rtol=1e-5, atol=1e-6)


class Living:
    """What makes tensors, and knows the bytes of those that are still there."""

    def __init__(self) -> None:
        self.made: list[tuple[weakref.ref[Any], int]] = []
        self.most = 0

    def maker(self, device: Any) -> Callable[..., Any]:
        return self.empty

    def empty(self, shape: Any, strides: Any, dtype: Any) -> Any:
        tensor = torch.empty_strided(shape, strides, dtype=dtype)
        self.made.append((weakref.ref(tensor), tensor.nbytes))
        self.most = max(self.most, sum(nbytes for found, nbytes in self.made if found() is not None))
        return tensor


@needs_cxx
def test_gradients_take_the_place_of_what_was_kept_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    living = Living()
    monkeypatch.setattr(device_wrapper, "empty_maker", living.maker)
    model = torch.nn.Sequential(*(m for _ in range(8) for m in (torch.nn.Linear(64, 64, bias=False), torch.nn.Tanh())))
    call, x = emulated(model), torch.randn(64, 64)
    call(x).sum().backward()
    model.zero_grad()
    living.made.clear()
    y = call(x).sum()
    living.most = 0
    y.backward()
    gradients = sum(parameter.nbytes for parameter in model.parameters())
    assert gradients == 8 * 64 * 64 * 4
    assert living.most < 1.5 * gradients, living.most  # both at once are twice as much


def sorted_rows(*given: Any) -> Any:
    return tuple(x.exp().sort(1)[0].exp() for x in given)


def test_pieces_end_where_results_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = traced(sorted_rows, "cuda", *[(8, 64)] * 4)
    imported = Importer(gm, metas_of(gm) or (lambda node: None), libraries=True).run()
    program = build_cuda_program(fuse_opt.optimize(imported.module))
    steps = frozenset(range(len(program.steps)))
    native = SimpleNamespace(program=program, steps=program.steps, compiled_calls=(steps, False), is_captured=True)
    monkeypatch.setattr(device_wrapper, "_SMALLEST_PART", 1)
    for parts in (1, 2, 4):
        writer = device_wrapper.DeviceCallWriter(imported, native, torch.device("cpu"), parts)
        text = writer.write()
        assert text.count("(stream)\n") - 1 == len(pieces_of(program, frozenset(), writer.cuts)) == parts, text
        before = text.partition("p0(stream)")[0]
        assert before.count("= empty(") * parts == 4


@needs_cxx
def test_arguments_in_place_views_and_lifetimes() -> None:
    def update(x: Any, y: Any) -> Any:
        x.mul_(2).add_(y.t())
        order = torch.argsort(x, dim=1)
        return x[1:], torch.gather(x, 1, order), y.sum(0), x.t() @ y.t().contiguous()

    call = emulated(update)
    with torch.no_grad():
        results: list[Any] = []
        for seed in range(2):
            x, y = torch.randn(24, 40, generator=torch.manual_seed(seed)), torch.randn(40, 24)
            mine, wanted = x.clone(), update(x, y)
            found = call(mine, y)
            results.append((found, [item.clone() for item in wanted]))
            torch.testing.assert_close(mine, x)
            assert found[0].data_ptr() == mine[1:].data_ptr()
            assert [item.stride() for item in found] == [item.stride() for item in wanted]
    for found, wanted in results:  # after the second call, too
        torch.testing.assert_close(list(found), wanted, rtol=1e-5, atol=1e-5)


def test_where_nothing_can_run_pytorch_does() -> None:
    torch._dynamo.reset()
    call = torch.compile(grown, backend="fuse_opt", options={"target": "cuda"})
    x = torch.randn(4)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.testing.assert_close(call(x), x.exp() + 1)
    assert [str(w.message) for w in said if "fuse_opt" in str(w.message)] == [
        "fuse_opt leaves a graph to PyTorch, as compiling it fails: NotImplementedError: tensors on cpu: option 'target' is "
        "'cuda', which takes those on 'cuda'"
    ]


def test_a_first_call_that_fails_is_pytorchs_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuse_opt.frontends.torch import backend

    def failing(imported: Any, *given: Any) -> Any:
        def call(args: list[Any]) -> Any:
            args[imported.placeholders.index(imported.stored[0].argument)].fill_(7)
            args.clear()
            raise RuntimeError("the driver refuses it")

        return call, ""

    def added(x: Any, total: Any) -> Any:
        total.add_(x.exp())
        return total * 2

    monkeypatch.setattr(backend, "compile_device_call", failing)
    torch._dynamo.reset()
    function = torch.compile(added, backend="fuse_opt", options={"target": "emulated"})
    x, total, wanted = torch.randn(4, 8), torch.ones(4, 8), torch.ones(4, 8)
    with pytest.warns(RuntimeWarning, match="leaves a graph to PyTorch, as its first call fails: .*refuses it"):
        found = function(x, total)
    torch.testing.assert_close(found, added(x, wanted))
    torch.testing.assert_close(total, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(function(x, total), added(x, wanted))
    torch._dynamo.reset()
