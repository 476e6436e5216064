"""Graphs that are recorded and replayed as one: emulated, a replay repeats the call into the memory of the first results."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from fuse_opt.frontends.torch.codegen import device_wrapper  # noqa: E402
from fuse_opt.frontends.torch.recording import recorded as module  # noqa: E402
from fuse_opt.frontends.torch.recording.handed_out import HandedOut  # noqa: E402
from fuse_opt.frontends.torch.recording.recorded import Recorded  # noqa: E402
from fuse_opt.frontends.torch.recording.recorders import RepeatingRecorder  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="CUDA C is emulated by g++")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """The graphs that are recorded, in the order of compilation."""
    found: list[Recorded] = []
    begin = Recorded.begin

    def begun(self: Recorded, *arguments: Any) -> None:
        begin(self, *arguments)
        found.append(self)

    monkeypatch.setattr(Recorded, "begin", begun)
    torch._dynamo.reset()
    return found


def recorded(function: Any) -> Any:
    return torch.compile(
        function, backend="fuse_opt", options={"target": "emulated", "strict": True, "cuda_graphs": True}
    )


class Net(torch.nn.Module):
    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.first, self.norm, self.last = torch.nn.Linear(12, 24), torch.nn.BatchNorm1d(24), torch.nn.Linear(24, 64)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        z = torch.tanh(self.last(y))
        return z * 2, z[:, ::2]


def test_results_of_replays_are_the_callers_to_keep(made: list[Recorded]) -> None:
    torch.manual_seed(0)
    net = Net().eval()
    call = recorded(net)
    kept: list[Any] = []
    with torch.no_grad():
        for number in range(7):
            x = torch.randn(9, 12)  # elsewhere each time
            kept.append((call(x), net(x)))
            if number == 5:
                net.first.weight.data = net.first.weight + 1  # elsewhere: recorded anew where it is there twice
        for found, wanted in kept:
            torch.testing.assert_close(list(found), list(wanted), rtol=1e-5, atol=1e-5)
            assert (
                found[1].untyped_storage()._cdata == wanted[1].untyped_storage()._cdata or not found[1].is_contiguous()
            )
    assert len(made) == 1 and made[0].replays == 4


def test_a_step_of_training_is_replayed(made: list[Recorded]) -> None:
    """Values that autograd keeps stay where they are: beside two forward graphs before a backward one, nothing is overwritten."""
    torch.manual_seed(0)
    ours, eager = Net(), Net()
    eager.load_state_dict(ours.state_dict())
    call = recorded(ours)
    ahead = [2, 5, 6]
    for number in range(9):
        x = torch.randn(9, 12)
        for model, parameters in ((call, ours), (eager, eager)):
            losses = [model(x)[0].square().mean()]
            if number in ahead:
                losses.append(model(x + 1)[0].square().mean())
            for loss in losses:
                loss.backward()
            with torch.no_grad():
                for parameter in parameters.parameters():
                    parameter -= 0.1 * parameter.grad
                    if number % 2:
                        parameter.grad = None
    forward, backward = made
    assert forward.replays >= 5 and backward.replays >= 5
    torch.testing.assert_close(ours.state_dict(), eager.state_dict(), rtol=1e-4, atol=1e-5)
    for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_arguments_are_overwritten_and_returned(made: list[Recorded]) -> None:
    def update(x: Any, total: Any, w: Any) -> Any:
        y = torch.tanh(x @ w) @ w
        total.add_(y.exp())
        return total[1:], x, (y @ w).relu().t()

    call = recorded(update)
    w, total, wanted = torch.randn(20, 20), torch.zeros(8, 20), torch.zeros(8, 20)
    before = total._version
    with torch.no_grad():
        for number in range(8):
            x = torch.randn(8, 20)
            if number == 5:
                total = total.clone()
            found, expected = call(x, total, w), update(x, wanted, w)
            torch.testing.assert_close(list(found), list(expected), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-4)
            assert found[0].data_ptr() == total[1:].data_ptr() and found[1].data_ptr() == x.data_ptr()
    assert made[0].replays == 5 and total._version > before


def test_what_is_not_recorded(made: list[Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(x: Any, w: Any) -> Any:
        return torch.tanh((x @ w + torch.rand_like(x)) @ w) @ w

    def short(x: Any, w: Any) -> Any:
        return torch.relu(x @ w)

    x, w = torch.randn(8, 20), torch.randn(20, 20)
    for function in (noisy, short):
        for _ in range(3):
            recorded(function)(x, w)
    assert not made

    class Refusing(RepeatingRecorder):
        def record(self, call: Any, arguments: Any, overwritten: Any) -> Any:
            raise RuntimeError("the driver refuses it")

    monkeypatch.setattr(device_wrapper, "RepeatingRecorder", Refusing)

    def long(x: Any, w: Any) -> Any:
        return torch.tanh(torch.tanh(x @ w) @ w) @ w

    call = recorded(long)
    for _ in range(5):
        torch.testing.assert_close(call(x, w), long(x, w), rtol=1e-5, atol=1e-5)
    assert made[0].replays == 0


def test_results_of_one_memory_are_of_one_memory_again() -> None:
    memory, argument = torch.arange(24.0), torch.ones(4)
    results = [memory[4:8], memory.view(4, 6).t(), None, 3, argument[1:], torch.ones(3).expand(2, 3), memory[:2]]
    handed = HandedOut(results, [argument], 6)
    other = torch.zeros(4)
    first, second, *rest = handed.take([other])
    assert first.data_ptr() == second.data_ptr() + 16 != memory.data_ptr() + 16
    torch.testing.assert_close([first, second, rest[3]], [results[0], results[1], results[5]])
    assert rest[:2] == [None, 3] and rest[2].data_ptr() == other.data_ptr() + 4
    assert rest[4].data_ptr() == memory.data_ptr() and handed.in_use()
    del rest
    assert not handed.in_use()


def test_a_call_beside_another_one_runs_as_it_is() -> None:
    started, ended = threading.Event(), threading.Event()
    runs: list[str] = []

    def call(args: list[Any]) -> tuple[Any, ...]:
        name = threading.current_thread().name
        runs.append(name)
        if name == "slow":
            started.set()
            ended.wait(5)
        return (args[0] + 1,)

    recorded = Recorded((), (), None)
    recorded.begin(call, RepeatingRecorder())
    x = torch.ones(3)
    for _ in range(module.WARM + 1):
        recorded([x])
    slow = threading.Thread(target=lambda: recorded([x]), name="slow")
    slow.start()
    started.wait(5)
    replays = recorded.replays
    torch.testing.assert_close(recorded([x])[0], x + 1)
    assert recorded.replays == replays
    ended.set()
    slow.join()
    assert recorded.replays == replays + 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU to run on")
def test_scenarios_on_a_device() -> None:
    script = Path(__file__).parents[2] / "support" / "cuda_recording_scenarios.py"
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
