"""Calls of compiled graphs that fail run as they were traced, with one warning; arguments are as if ours had not been made."""

import ctypes
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch_testing import compiled, torch
from torch_testing import fresh as fresh

from fuse_opt.dialects.types.size import SizeRefusal
from fuse_opt.frontends.torch.codegen.attempts import generators
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.cpu.sized_frames import SizedFrame
from fuse_opt.runtime.host import c_compiler
from fuse_opt.tools.compiler import api

_fails = [0]
"""How many of the next calls of the operator fail."""


@torch.library.custom_op("fuse_opt_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:  # pyright: ignore
    if _fails[0]:
        _fails[0] -= 1
        raise NotImplementedError("not for these sizes")
    return x * 2  # pyright: ignore


def _twice_back(_: Any, gradient: Any) -> Any:
    return twice(gradient)


twice.register_fake(torch.empty_like)
twice.register_autograd(_twice_back)


@contextmanager
def one_warning(reason: str) -> Generator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    ours = [str(w.message) for w in caught if "fuse_opt" in str(w.message)]
    assert len(ours) == 1 and "first call" in ours[0] and reason in ours[0], ours


def compare(fast: Callable[..., Any], plain: Callable[..., Any], extents: tuple[int, ...], training: bool) -> None:
    """Results, arguments after the call, and gradients; both draw the same random numbers."""
    outcomes: list[list[Any]] = []
    for call in (fast, plain):
        torch.manual_seed(1)
        x, total = torch.randn(extents, requires_grad=training), torch.ones(extents)
        found = call(x, total)
        if training:
            (found**2).sum().backward()
        outcomes.append([found.detach(), total, x.grad if training else x, torch.rand(3)])
    for ours, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, wanted)


def adding(x: Any, total: Any) -> Any:
    """What is written to an argument comes before the call that fails, and so do random numbers."""
    total.add_(torch.dropout(x, 0.5, True).exp().detach())
    return twice(torch.sin(x) + total) * 3 + 1


def softmax(x: Any, total: Any) -> Any:
    return torch.softmax(torch.tanh(x) * 2 + total, -1) + 1


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_arguments_and_random_numbers_are_as_before_what_fails(dynamic: bool, training: bool):
    fast = compiled(adding, dynamic=dynamic)
    with one_warning("NotImplementedError: not for these sizes"):
        _fails[0] = 1
        compare(fast, adding, (3, 5), training)
        compare(fast, adding, (3, 5), training)
        compare(fast, adding, (4, 6), training) if dynamic else None
    assert not _fails[0]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_no_memory_for_what_a_call_needs(dynamic: bool, training: bool, monkeypatch: pytest.MonkeyPatch):
    fast = compiled(softmax, dynamic=dynamic)
    owner, name = (SizedFrame, "take") if dynamic else (CpuProgram, "bind")
    monkeypatch.setattr(owner, name, raising(MemoryError("no memory")))
    with one_warning("MemoryError: no memory"):
        for _ in range(2):
            compare(fast, softmax, (3, 5), training)


def test_a_backward_graph_that_fails_when_it_runs(monkeypatch: pytest.MonkeyPatch):
    def doubled(x: Any, total: Any) -> Any:
        return twice(torch.sin(x) + total).exp()

    x, y = (torch.linspace(-1, 1, 15).view(3, 5).requires_grad_() for _ in range(2))
    fast = compiled(doubled)
    found = fast(x, torch.ones(3, 5))
    with one_warning("the first call of its backward graph fails: NotImplementedError: not for these sizes"):
        _fails[0] = 1
        found.sum().backward()
    doubled(y, torch.ones(3, 5)).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    compare(fast, doubled, (3, 5), True)


@pytest.mark.parametrize("training", [False, True])
def test_sizes_that_are_refused_when_they_are_known(training: bool, monkeypatch: pytest.MonkeyPatch):
    fast = compiled(softmax, dynamic=True)
    compare(fast, softmax, (3, 5), training)
    take = SizedFrame.take

    def refusing(frame: SizedFrame, numbers: Sequence[int]) -> bool:
        if 7 in numbers:
            raise RuntimeError("more than fits")
        return take(frame, numbers)

    monkeypatch.setattr(SizedFrame, "take", refusing)
    with one_warning("RuntimeError: more than fits"):
        for extents in ((4, 6), (4, 7), (4, 7), (4, 6)):
            compare(fast, softmax, extents, training)


def test_arguments_are_as_before_what_fails_at_later_sizes():
    """Small ones that steps write to are kept for calls at new sizes; the memory of large ones may be most of what there is."""
    fast = compiled(adding, dynamic=True)
    compare(fast, adding, (3, 5), False)
    with one_warning("NotImplementedError: not for these sizes"):
        _fails[0] = 1
        compare(fast, adding, (4, 6), False)
    compare(fast, adding, (4, 7), False)
    fast = compiled(adding, dynamic=True)
    compare(fast, adding, (3, 5), False)
    _fails[0] = 1
    with pytest.raises(NotImplementedError, match="not for these sizes"):
        compare(fast, adding, (600, 500), False)
    compare(fast, adding, (4, 7), False)


def test_arguments_that_are_written_to_at_the_end_are_not_kept():
    """They lie with gaps: what becomes their contents is copied to them."""

    def gaps(x: Any, total: Any) -> Any:
        part = total[:, ::2]
        found = twice(torch.sin(x[:, ::2]) + part) * 3
        part.add_(found)
        return found

    def run(call: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(1)
        x, total = torch.randn(600, 1000), torch.ones(600, 2000)[:, ::2]
        return [call(x, total), total]

    fast = compiled(gaps, dynamic=True)
    compare(fast, gaps, (3, 6), False)
    with one_warning("NotImplementedError: not for these sizes"):
        _fails[0] = 1
        found = run(fast)
    for ours, wanted in zip(found, run(gaps), strict=True):
        torch.testing.assert_close(ours, wanted)


class Generators:
    """A device whose random numbers are those of a generator."""

    def __init__(self) -> None:
        self.one = torch.Generator()

    def get_rng_state(self, device: Any) -> Any:
        return self.one.get_state()

    def set_rng_state(self, state: Any, device: Any) -> None:
        self.one.set_state(state)


def test_random_numbers_of_a_device_are_drawn_again(monkeypatch: pytest.MonkeyPatch):
    """A stand-in for the device: its numbers and the processor's are those of a call that was made once."""
    module = Generators()

    def module_of(_: Any) -> Generators:
        return module

    monkeypatch.setattr(torch, "get_device_module", module_of)
    kept = generators(torch.device("cuda", 0))
    states = [get() for get, _ in kept]
    wanted = [torch.rand(3), torch.rand(3, generator=module.one)]
    for state, (_, put) in zip(states, kept, strict=True):
        put(state)
    for ours, expected in zip([torch.rand(3), torch.rand(3, generator=module.one)], wanted, strict=True):
        assert torch.equal(ours, expected)
    assert len(generators(torch.device("cpu"))) == 1


def test_what_is_compiled_for_long_rows_only(monkeypatch: pytest.MonkeyPatch):
    def rows(x: Any, total: Any) -> Any:
        return torch.softmax(x * 2 + total, -1).cumsum(-1)

    fast = compiled(rows, dynamic=True)
    compare(fast, rows, (3, 5), False)
    monkeypatch.setattr(api, "compile_sized", raising(KeyError("lowering of long rows")))
    with one_warning("KeyError: 'lowering of long rows'"):
        for extents in ((2, 300_000), (2, 300_001), (3, 5)):
            compare(fast, rows, extents, False)


def test_long_rows_that_are_compiled_for_each_set_of_extents(monkeypatch: pytest.MonkeyPatch):
    """A call in which such a program cannot be made ended with an error of ours, which leaves graphs to PyTorch."""

    def rows(x: Any, total: Any) -> Any:
        return torch.softmax(x * 2 + total, -1).cumsum(-1)

    fast = compiled(rows, dynamic=True)
    compare(fast, rows, (3, 5), False)
    monkeypatch.setattr(api, "compile_sized", raising(SizeRefusal("not with long rows")))
    monkeypatch.setattr(api, "compile", raising(KeyError("no such thing")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for extents in ((2, 300_000), (2, 300_001), (3, 5)):
            compare(fast, rows, extents, False)
    ours = [str(w.message) for w in caught if "fuse_opt" in str(w.message)]
    assert len(ours) == 1 and "KeyError: 'no such thing'" in ours[0], ours


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_c_compiler_that_crashes_at_one_kernel(
    dynamic: bool, training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept, script = tmp_path / "source.c", tmp_path / "cc"
    script.write_text(
        f'#!/bin/sh\ncat > {kept}\nif grep -q tanh {kept}; then kill -SEGV $$; fi\nexec cc "$@" < {kept}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("FUSE_OPT_CC", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check_left(softmax, "was killed by signal 11", dynamic, training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_objects_that_cannot_be_loaded(dynamic: bool, training: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def not_ours(name: Any, *rest: Any, **more: Any) -> Any:
        if name is not None and str(tmp_path) in str(name):
            raise OSError("failed to map segment from shared object")
        return load(name, *rest, **more)

    c_compiler.find_c_compiler()  # was tried by loading an object
    load = ctypes.CDLL
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", not_ours)
    check_left(softmax, "failed to map segment from shared object", dynamic, training)


def check_left(function: Callable[..., Any], reason: str, dynamic: bool, training: bool) -> None:
    """Of a graph that cannot be compiled; also in a call after others."""
    fast = compiled(function, dynamic=dynamic)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for extents in ((3, 5), (3, 5), (4, 6)):
            compare(fast, function, extents, training)
    ours = [str(w.message) for w in caught if "fuse_opt" in str(w.message)]
    assert len(ours) == (1 if dynamic else 2) and all(reason in text for text in ours), ours


def test_calls_that_pytorch_refuses_too_leave_nothing():
    def looked_up(x: Any, at: Any) -> Any:
        return torch.sin(x)[at] * 2

    fast, x = compiled(looked_up), torch.randn(5, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IndexError):
            fast(x, torch.tensor([1, 9]))
        torch.testing.assert_close(fast(x, torch.tensor([1, 4])), looked_up(x, torch.tensor([1, 4])))
    with torch.autograd.profiler.profile() as profile:
        fast(x, torch.tensor([1, 4]))
    assert "aten::sin" not in {event.name for event in profile.function_events}


def test_strict_raises_what_fails():
    _fails[0] = 1
    with pytest.raises(NotImplementedError, match="not for these sizes"):
        compiled(adding, options={"strict": True})(torch.randn(3, 5), torch.ones(3, 5))
    assert not _fails[0]
