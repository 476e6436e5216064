"""What the torch.compile backend does not take runs by PyTorch, as it was traced, with one warning; `strict` raises."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from torch_testing import compiled, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch import backend as torch_backend
from fuse_opt.frontends.torch import collect_reports, last_coverage, sized_graphs
from fuse_opt.frontends.torch.fx.handler import Handler
from fuse_opt.frontends.torch.operators.table import TABLE
from fuse_opt.runtime.host.c_compiler import CCompiler, CompileError
from fuse_opt.tools.compiler import api


def operators(call: Callable[..., Any], *arguments: Any) -> set[str]:
    """The operators that a call runs."""
    with torch.no_grad():
        call(*arguments)  # compiles what is to be compiled
        with torch.autograd.profiler.profile() as profile:
            call(*arguments)
    return {event.name for event in profile.function_events if event.name.startswith("aten::")}


def function(x: Any) -> Any:
    return torch.softmax(x * 2, -1) + 1


def assert_gradients_of_eager(fast: Callable[..., Any], extents: tuple[int, int]) -> None:
    x, y = (torch.linspace(-1, 1, extents[0] * extents[1]).view(extents).requires_grad_() for _ in range(2))
    for call, argument in ((fast, x), (function, y)):
        (call(argument) ** 2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def waves(x: Any) -> Any:
    return torch.sin(x) * 2 + 1


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def specialised(*_: Any) -> None:
    """In the place of a program for all extents."""


def check_left(reason: str, *, dynamic: bool = False) -> None:
    """The function is right and undecomposed, with one warning that names the reason; `strict` raises it."""
    x = torch.randn(3, 4)
    fast = compiled(function, dynamic=dynamic)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.testing.assert_close(fast(x), function(x), rtol=0, atol=0)
    ours = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    assert len(ours) == 1 and reason in ours[0], ours
    assert "PyTorch" in ours[0]
    torch._dynamo.reset()
    with pytest.raises(Exception, match=reason):
        compiled(function, dynamic=dynamic, options={"strict": True})(x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("place", ["rewrite", "Importer", "compile_call", "api.compile"])
def test_what_fails_in_any_part(place: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch):
    error = raising(KeyError("no such thing"))
    monkeypatch.setattr(sized_graphs, "SizedText", error)
    if place == "api.compile":
        monkeypatch.setattr(api, "compile", error)
    else:
        monkeypatch.setattr(torch_backend, place, error)
        monkeypatch.setattr(sized_graphs, place, error, raising=False)
    check_left("no such thing", dynamic=dynamic)


def test_without_a_c_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "/bin/false")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("FUSE_OPT_CC", raising=False)
    check_left("no C compiler works here")


def test_with_a_c_compiler_that_was_named_and_does_not_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FUSE_OPT_CC", "/bin/false")
    check_left("/bin/false")


def test_a_c_compiler_that_refuses_a_kernel(monkeypatch: pytest.MonkeyPatch):
    for name in ("compile_shared", "compile_units"):
        monkeypatch.setattr(CCompiler, name, raising(CompileError("internal compiler error")))
    check_left("internal compiler error")


def test_graphs_that_are_left_are_not_decomposed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "compile", raising(ValueError("refused")))
    x = torch.randn(3, 4)
    fast = compiled(function)
    with pytest.warns(RuntimeWarning, match="refused"):
        found = operators(fast, x)
    assert found == operators(function, x) and "aten::_softmax" in found


def test_a_record_at_fault_is_a_call_of_pytorch(monkeypatch: pytest.MonkeyPatch):
    name = "aten.sin.default"
    monkeypatch.setitem(TABLE, name, Handler(name, raising(AttributeError("oops"))))
    with collect_reports() as reports:
        torch.testing.assert_close(compiled(waves)(x := torch.randn(5)), waves(x))
    assert "its record fails with AttributeError: oops" in str(reports.graphs[0])


def test_graphs_that_no_run_on_fake_tensors_takes():
    """Functionalisation makes a difference of truth values of this, which PyTorch refuses when extents are known."""

    def write(x: Any) -> Any:
        x[:1].expand(3, *x.shape[1:])[..., 0].zero_()

    x, y = (torch.ones(6, 8, dtype=torch.bool) for _ in range(2))
    with pytest.warns(RuntimeWarning, match="compiling it fails: .*Error: Subtraction"):
        compiled(write, dynamic=True)(x)
    write(y)
    assert torch.equal(x, y)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_graph_that_fails(dynamic: bool, monkeypatch: pytest.MonkeyPatch):
    compile_one = torch_backend._compile  # pyright: ignore[reportPrivateUsage]

    def forward_only(graph_module: Any, kind: str, *rest: Any) -> Any:
        if kind == "backward":
            raise ValueError("no backward")
        return compile_one(graph_module, kind, *rest)

    monkeypatch.setattr(torch_backend, "_compile", forward_only)
    monkeypatch.setattr(torch_backend, "compile_sized_graph", specialised)
    fast = compiled(function, dynamic=dynamic)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert_gradients_of_eager(fast, (3, 4))
    ours = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    assert len(ours) == 1 and "compiling its backward graph fails: ValueError: no backward" in ours[0], ours
    with torch.autograd.profiler.profile() as profile:
        fast(torch.randn(3, 4, requires_grad=True))
    assert "aten::_softmax" in {event.name for event in profile.function_events}, "it is not PyTorch's from now on"


def test_extents_beyond_the_limit_run_as_they_were_traced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_backend, "compile_sized_graph", specialised)
    fast, x = compiled(function, dynamic=True, options={"programs": 1}), torch.randn(5, 4)
    assert "aten::_softmax" not in operators(fast, torch.randn(3, 4))
    assert operators(fast, x) == operators(function, x)
    torch.testing.assert_close(fast(x), function(x), rtol=0, atol=0)


def test_extents_beyond_the_limit_have_gradients(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_backend, "compile_sized_graph", specialised)
    fast = compiled(function, dynamic=True, options={"programs": 1})
    for extents in ((3, 4), (5, 4), (5, 6)):
        assert_gradients_of_eager(fast, extents)


def test_graphs_of_nothing_but_pytorchs_calls_are_left_without_a_warning(recwarn: pytest.WarningsRecorder):
    def transform(x: Any) -> Any:
        return torch.fft.fft(torch.linalg.matrix_exp(x)) @ torch.fft.fft(x)

    x = torch.eye(4)
    fast = compiled(transform)
    last_coverage()
    torch.testing.assert_close(fast(x), transform(x))
    native, left = last_coverage()
    assert native == 0 and left >= 3 and last_coverage() == (0, 0)
    assert operators(fast, x) == operators(transform, x)
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_coverage_counts_nodes_apart_from_views(monkeypatch: pytest.MonkeyPatch):
    def exponential(x: Any) -> Any:
        return torch.linalg.matrix_exp(torch.sin(x).t()) * 2

    last_coverage()
    compiled(exponential)(torch.randn(4, 4))
    assert last_coverage() == (2, 1)
    monkeypatch.setattr(api, "compile", raising(ValueError("refused")))
    with pytest.warns(RuntimeWarning):
        compiled(waves)(torch.randn(3, 4))
    assert last_coverage() == (0, 3)


def test_integers_have_no_softmax():
    agree = compiled(function, options={"strict": True})
    assert agree(torch.zeros(3, 0, dtype=torch.int64)).dtype == function(torch.zeros(3, 0, dtype=torch.int64)).dtype
    for call in (compiled(function), function):
        with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
            call(torch.ones(3, 4, dtype=torch.int64))


def test_strict_is_true_or_false():
    with pytest.raises(Exception, match="option 'strict': expected True or False, got 1"):
        compiled(function, options={"strict": 1})(torch.randn(3))


def test_operators_on_tensors_that_kernels_cannot_take_are_not_taken_apart():
    def signs(x: Any) -> Any:
        return torch.sgn(torch.fft.fft(x)).abs() + 1

    x = torch.randn(3, 4)
    fast = compiled(signs, options={"strict": True})
    assert "aten::sgn" in operators(fast, x)
    torch.testing.assert_close(fast(x), signs(x))
