"""Graphs of torch.compile that are recorded as CUDA graphs, on a device.

python tests/support/cuda_recording_scenarios.py NAME...   # the functions of these names, a line each; all without a name
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from typing import Any

from fuse_opt.frontends.torch import fuse_opt
from fuse_opt.frontends.torch.recording.recorded import Recorded

torch: Any = import_module("torch")
made: list[Recorded] = []
_begin = Recorded.begin


def _begun(self: Recorded, *arguments: Any) -> None:
    _begin(self, *arguments)
    made.append(self)


Recorded.begin = _begun  # pyright: ignore[reportAttributeAccessIssue]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.first, self.norm, self.last = torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.Linear(256, 96)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        return torch.tanh(self.last(y)) * 2, y.sum(0)


def compiled(model: Any) -> Any:
    torch._dynamo.reset()
    made.clear()
    return torch.compile(model, backend=fuse_opt, options={"cuda_graphs": True, "strict": True})


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def results_are_kept() -> str:
    """Each call's results are right after all calls, with other inputs each time, which lie elsewhere."""
    net = Net().eval().cuda()
    call = compiled(net)
    inputs = [torch.randn(33, 64, device="cuda") for _ in range(12)]
    with torch.no_grad():
        found = [call(x) for x in inputs]
        for x, results in zip(inputs, found, strict=True):
            close(results, net(x))
        assert len({results[0].data_ptr() for results in found}) == len(found)
    return f"{made[0].replays} replays, {made[0].recordings} recordings"


def streams_follow_one_another() -> str:
    net = Net().eval().cuda()
    call = compiled(net)
    streams = [torch.cuda.Stream(), torch.cuda.current_stream(), torch.cuda.Stream()]
    inputs = [torch.randn(4096, 64, device="cuda") for _ in range(30)]
    torch.cuda.synchronize()
    found: list[Any] = []
    with torch.no_grad():
        for number, x in enumerate(inputs):
            with torch.cuda.stream(streams[number % 3]):
                found.append(call(x))
        torch.cuda.synchronize()
        for x, results in zip(inputs, found, strict=True):
            close(results, net(x))
    return f"{made[0].replays} replays, {made[0].recordings} recordings"


def captures_of_the_caller() -> str:
    net = Net().eval().cuda()
    call = compiled(net)
    x = torch.randn(33, 64, device="cuda")
    with torch.no_grad():
        for _ in range(5):
            call(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = call(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        close(results, net(x))
        close(call(x), net(x))
    return f"{made[0].replays} replays"


def training() -> str:
    """With momentum, gradients that add up, and two forward graphs before a backward one."""
    ours = Net().cuda()
    eager = deepcopy(ours)
    call = compiled(ours)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in (ours, eager)]
    for number in range(14):
        x = torch.randn(33, 64, device="cuda")
        for model, optimizer in zip((call, eager), optimizers, strict=True):
            losses = [model(x)[0].square().mean()]
            if number in (4, 9, 10):
                losses.append(model(x + 1)[0].square().mean())
            for loss in losses:
                loss.backward()
            if number % 3:
                optimizer.step()
                optimizer.zero_grad(set_to_none=number % 2 == 0)
    close(ours.state_dict(), eager.state_dict())
    return ", ".join(f"{each.replays} replays, {each.recordings} recordings" for each in made)


def arguments_that_are_overwritten() -> str:
    def update(x: Any, total: Any, w: Any) -> Any:
        y = torch.tanh(x @ w) @ w
        total.add_(y.exp())
        return total[1:], x, (y @ w).relu().t()

    call = compiled(update)
    w = torch.randn(64, 64, device="cuda") / 8
    total, wanted = torch.zeros(2, 32, 64, device="cuda")
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(32, 64, device="cuda")
            close(list(call(x, total, w)), list(update(x, wanted, w)))
            close(total, wanted)
    return f"{made[0].replays} replays, {made[0].recordings} recordings"


SCENARIOS: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        results_are_kept,
        streams_follow_one_another,
        captures_of_the_caller,
        training,
        arguments_that_are_overwritten,
    )
}

if __name__ == "__main__":
    failed = False
    for name in sys.argv[1:] or SCENARIOS:
        try:
            print(f"{name}: {SCENARIOS[name]()}", flush=True)
        except Exception:
            failed = True
            print(f"{name} FAILED\n{traceback.format_exc()}", flush=True)
    sys.exit(failed)
