"""Tuning on a cluster of this machine alone: workers give what one process gives, and what dies with one is asked again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from math import log
from pathlib import Path
from typing import Any

import pytest

from fuse_opt.runtime.guard_pages import can_guard_pages
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.tuning.cluster import group, tasks
from fuse_opt.tools.tuning.cluster.bench import ClusterBench
from fuse_opt.tools.tuning.cluster.group import Cluster, ClusterLost, WorkerDied, connect, groups
from fuse_opt.tools.tuning.fuse_tune_main import main
from fuse_opt.tools.tuning.places import places
from fuse_opt.tools.tuning.search.candidates import Candidate
from fuse_opt.tools.tuning.search.records import Records
from fuse_opt.tools.tuning.search.sites import find_sites
from fuse_opt.tools.tuning.search.study import Measured
from fuse_opt.tools.tuning.search.tune_program import Options, Tuner

Capture = pytest.CaptureFixture[str]
TEXT = """
func.func @main(%x: tensor<33x70xf32>) -> tensor<33xf32> {
  %0 = graph.sum %x {axes = array<i64: 1>} : (tensor<33x70xf32>) -> tensor<33xf32>
  func.return %0 : tensor<33xf32>
}"""


def test_without_the_extra_or_a_scheduler(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    (source := tmp_path / "x.mlir").write_text(TEXT)
    words = [str(source), "-o", str(tmp_path / "t.json"), "--cluster", "tcp://127.0.0.1:1"]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "distributed", None)
        assert main(words) == 1
        assert "--cluster needs dask.distributed: pip install 'fuse-opt[tune-cluster]'" in capsys.readouterr().err
    assert main([*words[:-1], "localhost"]) == 2
    assert "--cluster: expected an address as in tcp://HOST:8786, got 'localhost'" in capsys.readouterr().err
    pytest.importorskip("distributed", reason="clusters are dask's")
    monkeypatch.setattr(group, "CONNECT_SECONDS", 0.5)
    assert main(words) == 1
    assert "no scheduler answers at 'tcp://127.0.0.1:1' within 0.5 s" in capsys.readouterr().err


@contextmanager
def local_cluster(*resources: dict[str, float]) -> Generator[Any]:
    """A scheduler and workers in this process, one for each set of resources."""
    pytest.importorskip("distributed", reason="clusters are dask's")
    library = import_module("distributed")
    workers = {k: worker_spec(each) for k, each in enumerate(resources)}
    scheduler = {"cls": library.Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard_address": ":0"}}
    with library.SpecCluster(scheduler=scheduler, workers=workers, silence_logs=50) as made:
        yield made


def worker_spec(resources: dict[str, float]) -> dict[str, Any]:
    options = {"nthreads": 2, "resources": resources, "host": "127.0.0.1", "dashboard": False}
    return {"cls": import_module("distributed").Worker, "options": options}


def quiet(line: str) -> None:
    """Nobody listens."""


@contextmanager
def connected(address: str) -> Generator[Cluster]:
    cluster = connect(address, 1, quiet)
    try:
        yield cluster
    finally:
        cluster.close()


by_machine = pytest.mark.skipif(not has_c_compiler() or not can_guard_pages, reason="programs are compiled and guarded")


@by_machine
def test_a_worker_measures_what_another_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    (site,) = find_sites(load(TEXT))
    with local_cluster({"measure": 1}, {"compile": 1}) as made, connected(made.scheduler_address) as cluster:
        (machine,) = groups(cluster)
        assert machine.compiler is not None and len(machine.workers()) == 1
        bench = ClusterBench(site, machine, 0)
        other = Candidate.of({"kind": "row", "lanes": 32}, False)
        found = dict(bench.together([(site.default, 0, 2), (other, 0, 1)]))
        bench.close()
    kept, changed = found[site.default, 0, 2], found[other, 0, 1]
    assert isinstance(kept, Measured) and isinstance(changed, Measured)
    assert (len(kept.pairs), kept.same_bits, len(changed.pairs)) == (2, True, 1) and kept.seconds > 0


def by_table(task: tasks.Task, *objects: bytes | None) -> Measured | str:
    """What a worker gives, by a table of times."""
    settings = task.candidate.settings
    if settings.get("lanes") == 8:
        return "crash: ended by SIGSEGV"
    factor = 0.8 if settings.get("lanes") == 32 or "tuned" in settings else 1.1
    return Measured((-log(factor),) * task.pairs, task.candidate.same_bits, 1e-3)


@by_machine
def test_the_same_comes_out_as_here_and_nothing_is_measured_twice(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "measured", by_table)
    monkeypatch.setenv("FUSE_OPT_DEVICE", "cpu")
    (source := tmp_path / "x.mlir").write_text(TEXT)
    words = [str(source), "-o", str(file := tmp_path / "t.json"), "--records", str(tmp_path / "r"), "--trials", "12"]
    with local_cluster({"measure": 1}, {"measure": 1}, {"else": 1}) as made:
        assert main([*words, "--cluster", made.scheduler_address]) == 0
        first = json.loads(file.read_text())
        monkeypatch.delattr(tasks, "measured")
        assert main([*words, "--cluster", made.scheduler_address]) == 0
        assert "; 0 measurements; written to" in capsys.readouterr().err
        with places(made.scheduler_address, 1, 0, quiet) as (place,):
            assert place.width == 8 and place.machine.device == first["device"]
    (kernel,), (again,) = first["kernels"], json.loads(file.read_text())["kernels"]
    assert again == {name: value for name, value in kernel.items() if name != "share"}
    assert kernel["schedule"] == {"kind": "row", "lanes": 32} and kernel["speedup"][1] == 1.25
    (site,) = find_sites(load(TEXT))

    class Table:
        def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
            found = by_table(tasks.Task(None, "", candidate, "", turn, pairs))  # pyright: ignore[reportArgumentType]
            if isinstance(found, str):
                raise tasks.TrialFailed(found)
            return found

        def look_again(self, candidate: Candidate) -> str:
            return ""

        def close(self) -> None: ...

    here = Tuner(
        [site], Records(tmp_path / "s", place.machine), lambda _: Table(), lambda: 0.0, Options(12, None), lambda: 1e-3
    )
    (line,) = here.run().lines.values()
    assert {name: line[name] for name in ("schedule", "speedup", "pairs", "same_bits")} == {
        name: kernel[name] for name in ("schedule", "speedup", "pairs", "same_bits")
    }


def slow(seconds: float) -> str:
    """A task."""
    time.sleep(seconds)
    return f"slept {seconds}"


def test_what_dies_with_a_worker_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(group, "LOST_SECONDS", 0.2)
    with local_cluster({"measure": 1}) as made, connected(made.scheduler_address) as cluster:
        (machine,) = groups(cluster)
        running = machine.run(slow, [(0.0,), (0.3,)])
        assert next(running) == (0, "slept 0.0")
        replace_worker(made, {"measure": 1})
        assert list(running) == [(1, "slept 0.3")]
        monkeypatch.setattr(group, "_RETRIES", 0)
        running = machine.run(slow, [(0.0,), (0.3,)])
        assert next(running) == (0, "slept 0.0")
        replace_worker(made, {"measure": 1})
        ((number, answer),) = running
        assert number == 1 and isinstance(answer, WorkerDied)
        replace_worker(made, {})
        with pytest.raises(ClusterLost, match="no worker that measures is left of device d:"):
            list(machine.run(slow, [(0.0,)]))


def replace_worker(made: Any, resources: dict[str, float]) -> None:
    """Ends all workers and starts another one."""
    for worker in made.workers.values():
        made.sync(worker.close, nanny=False)
    made.worker_spec.clear()
    made.worker_spec[f"after {time.monotonic()}"] = worker_spec(resources)
    made.sync(made._correct_state)  # as scaling does
