"""How the script for a GPU machine measures, without one: what stands between two events, peers, data, and what is measured."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import gpu_measure
import pytest
from gpu_workloads import Torch, Workload, workloads


def bench(**attributes: Any) -> gpu_measure.Bench:
    """A bench without a device."""
    made = object.__new__(gpu_measure.Bench)
    made.__dict__.update({"dry": False, "torch": None, "peers": gpu_measure.PEERS, "cache": 50 << 20, **attributes})
    return made


def test_several_calls_stand_between_two_events_behind_a_sleep() -> None:
    said = list[str]()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            said.append("record")

        def elapsed_time(self, end: Event) -> float:
            return 15.0

    def synchronize() -> None:
        said.append("synchronize")

    def sleep(ticks: int) -> None:
        said.append(f"sleep of {ticks / 1.7e6:.1f}")

    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event, _sleep=sleep))
    driver = SimpleNamespace(Context=SimpleNamespace(synchronize=synchronize))
    made = bench(torch=torch, device=SimpleNamespace(driver=driver))
    calls: list[Callable[[], None]] = [lambda name=name: said.append(name) for name in "ab"]
    assert made.milliseconds(calls, together=5) == 3.0
    first = said.index("synchronize")
    turns, last = said[first + 1 : -1], said[-1]
    assert "synchronize" not in turns and last == "synchronize", "the host waits for nothing meanwhile"
    assert len(turns) == 30 * 8
    starts = [turns[8 * turn : 8 * turn + 8] for turn in range(30)]
    assert starts[0] == ["sleep of 1.0", "record", "a", "b", "a", "b", "a", "record"]
    assert starts[1] == ["sleep of 1.0", "record", "b", "a", "b", "a", "b", "record"]


def test_a_copy_moves_as_many_bytes_as_the_workload() -> None:
    sizes, copies, asked = list[int](), set[int](), list[int]()

    def allocate(size: int) -> int:
        sizes.append(size)
        return len(sizes)

    def copied(target: int, source: int, size: int, stream: None) -> None:
        copies.add(size)

    def milliseconds(calls: list[Callable[[], Any]], together: int) -> float:
        for call in calls:
            call()
        asked.append(together)
        return 1.0

    driver = SimpleNamespace(mem_alloc=allocate, memcpy_dtod_async=copied)
    made = bench(device=SimpleNamespace(driver=driver), milliseconds=milliseconds)
    assert made.copy_milliseconds(40 << 20, 5) == 1.0
    assert copies == {20 << 20} == {*sizes} and asked == [5]
    assert sum(sizes) > 2 * made.cache, "what is copied is not found in the cache"


def test_each_workload_is_compiled_anew_by_each_of_torchs_ways_and_what_is_not_is_said() -> None:
    torch: Any = pytest.importorskip("torch")
    modes = list[Any]()

    class Compiling:
        """Torch, whose compiler makes no code."""

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def compile(self, function: Any, dynamic: bool, mode: str | None) -> Any:
            modes.append(mode)
            return torch.compile(function, backend="eager", dynamic=dynamic)

    def milliseconds(calls: list[Callable[[], Any]], together: int) -> float:
        for call in calls:
            call()
        return 2.0

    # Triton, which comes with PyTorch for CUDA, needs a device.
    peers = [peer for peer in gpu_measure.PEERS if peer != "triton"]
    made = bench(torch=Compiling(), milliseconds=milliseconds, peers=peers)
    chosen = [w for w in workloads(1 << 16) if set(w.dtypes if isinstance(w.dtypes, tuple) else (w.dtypes,)) == {"f32"}]
    chosen = chosen[:10]
    assert len(chosen) == 10, "more than the 8 that torch compiles one function for"
    for workload in chosen:
        row: dict[str, Any] = {"ms": 1.0}
        arrays = [torch.from_numpy(x) for x in workload.inputs(0)]
        gpu_measure.measure_peers(made, workload, [arrays], 1, float("inf"), row)
        compiled = {key: row[key] for key in row if key.endswith("_graphs")}
        assert compiled == {"compile_graphs": 1, "graphs_graphs": 1, "autotune_graphs": 1}, (workload.name, row)
        assert row["speedup"] == 2.0 and not [key for key in row if key.endswith("_failed")], row
    assert modes == [None, "reduce-overhead", "max-autotune"] * len(chosen)

    class Giving(Compiling):
        """Torch, whose compiler gives back what it is given."""

        def compile(self, function: Any, dynamic: bool, mode: str | None) -> Any:
            return function

    made.torch = Giving()
    row = {"ms": 1.0}
    gpu_measure.measure_peers(made, chosen[0], [[torch.ones(8)]], 1, float("inf"), row)
    assert row["compile_failed"] == "torch compiled nothing: it ran as it is" and row["best"] == "eager"
    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = False


def test_what_torch_compiles_too_often_is_an_error() -> None:
    torch: Any = pytest.importorskip("torch")
    gpu_measure.forget_compiled(torch)

    def eager(x: Any) -> Any:
        return x + 1

    compiled = torch.compile(eager, backend="eager", dynamic=False)
    with pytest.raises(Exception, match="recompile_limit"):
        for extent in range(2, 20):
            compiled(torch.ones(extent))
    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = False


def test_data_is_made_and_compared_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")

    class OnDevice:
        """Torch, whose device is the processor."""

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def Generator(self, device: str) -> Any:
            assert device == "cuda"
            return torch.Generator()

        def randn(self, shape: Any, *, generator: Any, device: str) -> Any:
            assert device == "cuda"
            return torch.randn(shape, generator=generator)

        def rand(self, shape: Any, *, generator: Any, device: str) -> Any:
            assert device == "cuda"
            return torch.rand(shape, generator=generator)

    def leaves(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("an array leaves the device")

    made, functions = bench(torch=OnDevice()), Torch(torch)
    for name in ("numpy", "cpu", "tolist", "__array__"):
        monkeypatch.setattr(torch.Tensor, name, leaves)
    for workload in (w for w in workloads(4096) if w.source is None):
        body: Callable[..., Any] = workload.body
        error = gpu_measure.largest_error(made, workload, lambda *arrays, body=body: body(functions, *arrays))  # pyright: ignore[reportArgumentType]
        assert 0 <= error <= 3e-2, (workload.name, error)

    def wrong(x: Any) -> Any:
        return x

    assert gpu_measure.largest_error(made, workloads(4096)[0], wrong) > 0.1  # pyright: ignore[reportArgumentType]


def by_about(word: str) -> list[Workload]:
    return [workload for workload in workloads() if word in workload.about]


def test_what_was_asked_for_is_measured() -> None:
    norms = {w.shapes[0][1] for w in by_about("layer norm of") if w.dtype(0) == "bf16"}
    assert norms == {768, 1024, 1280, 1536, 2560, 5120, 771}
    rows = {w.shapes[0][1] for w in by_about("softmax of")}
    assert {16, 771, 1024, 4096, 32768, 50257, 131072} <= rows
    assert all(w.target is None or w.target <= 0.95 for w in workloads())
    pytest.importorskip("torch")
    ops = {case.name: case for case in import_module("gpu_ops").cases_of_ops()}
    assert {
        "embedding",
        "embedding_norm",
        "embedding_backward",
        "take_along",
        "index_select",
        "scatter_add",
    } <= ops.keys(), sorted(ops)
    assert any(given.behind for case in ops.values() for given in case.given), "views that begin anywhere"
