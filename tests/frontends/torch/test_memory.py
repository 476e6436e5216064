"""Where the torch.compile backend reads and writes: views, layouts, mutation; nothing is copied without need."""

from collections.abc import Callable
from typing import Any

import pytest
from torch_testing import check, code, compiled, external, torch
from torch_testing import fresh as fresh

from fuse_opt.frontends.torch import backend as torch_backend
from fuse_opt.frontends.torch.codegen.wrapper import compile_call


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


def test_bases_of_arguments_may_have_another_size() -> None:
    """Of two views of one tensor Dynamo guards the shapes, but not that of the tensor, which the graph is traced for."""

    def function(x: Any, y: Any) -> Any:
        x[1:].mul_(2)
        return x + y

    fast = compiled(function)
    for rows in (7, 9, 7):
        given, wanted = torch.arange(rows, dtype=torch.float32), torch.arange(rows, dtype=torch.float32)
        torch.testing.assert_close(fast(given[1:5], given[2:6]), function(wanted[1:5], wanted[2:6]))
        torch.testing.assert_close(given, wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_written_arguments_begin_where_these_do(dynamic: bool) -> None:
    """With symbols for extents AOTAutograd makes them by shape, strides and offset of what the graph returns."""

    def function(x: Any, y: Any) -> Any:
        wide, later, turned = x.unsqueeze(0).expand(3, *x.shape), x[1:], y.t()
        x[..., :1].fill_(1)
        y.mul_(2)
        return wide, later, turned, x * 2

    torch._dynamo.reset()
    fast = torch.compile(function, backend="fuse_opt", dynamic=dynamic)
    for rows, columns in ((7, 9), (5, 2), (4, 3)):
        start, count = 2 * columns, rows * columns
        bases = [torch.arange(count + 3 * columns), torch.randn(2 * count)]
        given, wanted = ([base.clone() for base in bases] for _ in range(2))
        got, eager = (
            run(a[start : start + count].view(rows, columns), b[1 : count + 1].view(rows, columns))
            for run, (a, b) in ((fast, given), (function, wanted))
        )
        for a, b in zip((*got, *given), (*eager, *wanted), strict=True):
            assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
            torch.testing.assert_close(a, b)
        for wide in (got[0], eager[0]):
            wide.fill_(5)
        torch.testing.assert_close(given, wanted)


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
        windows = y.unfold(1, 4, 2) * 2, torch.as_strided(y, (3, 4), (2, 1)) * 2
        return *windows, torch.as_strided(y, (3, 2), (2, 1), 5) + 1, y.diagonal() * 2

    reports = check(function, torch.randn(6, 8))
    assert external(reports) == {"aten.clone.default": 1}, "only windows that overlap by strides are copied"
    assert "reads a view that kernels cannot" in str(reports[0])


def test_channels_last_is_kept():
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    with torch.no_grad():
        y = compiled(model)(x)
        assert y.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(y, model(x), rtol=1e-5, atol=1e-5)


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


def test_kernels_that_turn_blocks_write_to_their_results(monkeypatch: Any):
    programs: list[Any] = []

    def kept(imported: Any, native: Any, *rest: Any) -> Any:
        programs.append(native.program)
        return compile_call(imported, native, *rest)

    monkeypatch.setattr(torch_backend, "compile_call", kept)

    def function(x: Any) -> Any:
        return x.transpose(1, 2).contiguous()

    check(function, torch.randn(8, 64, 64))
    launches = [launch for step in programs[0].steps for launch in step.launches]
    assert launches and all(launch.stores for launch in launches)
