"""The script for a GPU machine, without one: stages, their time, wheels. That it runs as a whole: test_runtime_cuda.py."""

from __future__ import annotations

import json
import sys
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import gpu_counters
import gpu_measure
import gpu_run
import pytest


def test_each_stage_has_its_command_and_its_part_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[str]] = {}

    def stage(run: gpu_run.Run, name: str, command: list[str], environment: dict[str, str]) -> tuple[int, str, float]:
        asked[name] = command
        if name == "bench":
            row = {"name": "W1", "about": "chain", "error_ok": True}
            Path(command[command.index("--out") + 1]).write_text(json.dumps({"workloads": [row]}))
        if name == "profile":
            Path(command[command.index("--out") + 1]).write_text(json.dumps({"W4": 2_000_000, "W14": 4_000_000}))
            return 0, COUNTED, 1.0
        if name in ("ops", "jax", "sizes", "dynamic"):
            row = f"| softmax | 0.1 | {'False' if name == 'jax' else 'True'} |"
            return 0, f"| case | ms | right |\n|---|---|---|\n{row}\n", 1.0
        said = "ERROR SUMMARY: 1 error" if name == "racecheck" else "== 3 passed in 2 s =="
        return (9 if name == "racecheck" else 0), said, 1.0

    def which(name: str, path: str = "") -> str:
        return f"/cuda/{name}"

    monkeypatch.setattr(gpu_run, "run_stage", stage)
    monkeypatch.setattr("shutil.which", which)
    run = gpu_run.Run(tmp_path, 9, False)
    gpu_run.complete(run, "tests", lambda: gpu_run.run_tests(run, {}))
    gpu_run.complete(run, "models", lambda: gpu_run.run_models(run, {}))
    gpu_run.complete(run, "sanitizer", lambda: gpu_run.run_sanitizer(run, {}))
    gpu_run.complete(run, "profile", lambda: gpu_run.run_profile(run, {}, ""))
    for stage_of_rows in gpu_run.TABLES:
        gpu_run.complete(run, stage_of_rows, partial(gpu_run.run_table, run, {}, stage_of_rows))
    gpu_run.complete(run, "bench", lambda: gpu_run.run_bench(run, {}, ""))
    assert list(asked) == list(gpu_run.SHARES)
    assert asked["profile"][:3] == ["/cuda/ncu", "--profile-from-start", "off"]
    assert "gpu" in asked["tests"] and asked["racecheck"][:3] == ["/cuda/compute-sanitizer", "--tool", "racecheck"]
    written = json.loads((tmp_path / "gpu-run.json").read_text())
    assert [written[name]["passed"] for name in gpu_run.STAGES] == [
        True,
        True,
        False,
        True,
        True,
        True,
        False,
        True,
        True,
        True,
    ]
    assert not written["sanitizer"]["racecheck"]["passed"] and written["sanitizer"]["memcheck"]["passed"]
    report = (tmp_path / "gpu-run.md").read_text()
    assert "racecheck: FAILED in 1.0 s ERROR SUMMARY: 1 error" in report
    assert "ops: passed in 1.0 s 1 rows, 0 wrong" in report and "jax: FAILED in 1.0 s 1 rows, 1 wrong" in report
    assert "## Single ops\n\n| case | ms | right |" in report
    assert "- profile: passed in 1.0 s 3 kernels of 2 workloads" in report
    assert "| W14 | gemm | 2.0 | 3.0 | 1.0 | 40.5 | 30.0 | 128.0 |" in report


COUNTED = """==PROF== Profiling "softmax" - 0: 0%....50%....100% - 9 passes
a line of the program's
"ID","Kernel Name","Device","dram__bytes_read.sum","dram__bytes_write.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed",\
"gpu__time_duration.sum","launch__registers_per_thread","smsp__issue_active.avg.pct_of_peak_sustained_active"
"","","","byte","byte","%","ns","register/thread","%"
"0","workload_W4(float *)","0","0","0","0","900","16","1"
"1","softmax(const float *, float *)","0","1,000,000","1,100,000","91.25","1,500","40","60"
"2","workload_W14(float *)","0","0","0","0","900","16","1"
"3","gemm","0","3,000,000","0","40.5","2,000","128","30"
"4","gelu(float *)","0","1,000,000","0","n/a","1,000","32","20"
""".replace("\\\n", "")


def test_kernels_by_the_profiler() -> None:
    rows = gpu_counters.kernel_rows(gpu_counters.counted(COUNTED), {"W4": 2_000_000, "W14": 4_000_000})
    assert rows == [
        ["W4", "softmax", 1.5, 2.1, 1.05, 91.2, 60.0, 40.0],
        ["W14", "gemm", 2.0, 3.0, 1.0, 40.5, 30.0, 128.0],
        ["W14", "gelu", 1.0, 1.0, "", "-", 20.0, 32.0],
    ]
    assert gpu_counters.counted("==ERROR== ERR_NVGPUCTRPERM\n") == []
    with pytest.raises(ValueError, match="expected a kernel workload_NAME before those of a workload, got softmax"):
        gpu_counters.kernel_rows(gpu_counters.counted(COUNTED)[1:], {})


def test_without_a_profiler_or_its_counters_the_stage_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(run: gpu_run.Run, name: str, command: list[str], environment: dict[str, str]) -> tuple[int, str, float]:
        return 1, "==ERROR== ERR_NVGPUCTRPERM - no permission to access counters", 1.0

    monkeypatch.setattr(gpu_run, "run_stage", stage)
    for found, summary in (("/cuda/ncu", "==ERROR== ERR_NVGPUCTRPERM - no permission"), (None, "there is no ncu")):

        def which(name: str, path: str = "", found: str | None = found) -> str | None:
            return found

        monkeypatch.setattr("shutil.which", which)
        result = gpu_run.run_profile(gpu_run.Run(tmp_path, 9, False), {}, "")
        assert not result["passed"] and result["summary"].startswith(summary)


def test_parts_leave_the_benchmark_most_of_the_time() -> None:
    run = gpu_run.Run(Path(), 9, False)
    parts = [run.seconds_of(stage) for stage in gpu_run.SHARES]
    assert sum(parts[:-1]) <= 0.66 * run.seconds and 539 < parts[-1] <= 540
    run.ends = time.monotonic() + 20
    assert all(run.seconds_of(stage) <= 20 for stage in gpu_run.SHARES)


def test_stages_and_workloads_one_by_one_keep_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"W1": 1.0}

    def stage(run: gpu_run.Run, name: str, command: list[str], environment: dict[str, str]) -> tuple[int, str, float]:
        rows = [{"name": name, "about": "chain", "error_ok": True, "ms": ms} for name, ms in measured.items()]
        Path(command[command.index("--out") + 1]).write_text(json.dumps({"workloads": rows}))
        return 0, "", 1.0

    monkeypatch.setattr(gpu_run, "run_stage", stage)
    first = gpu_run.Run(tmp_path, 9, False, ("tests",))
    gpu_run.complete(first, "tests", lambda: {"passed": True, "summary": "3 passed"})
    assert first.seconds_of("tests") > 530
    for times in ({"W1": 1.0, "W2": 2.0}, {"W2": 3.0}):
        measured = times
        run = gpu_run.Run(tmp_path, 9, False, ("bench",))
        gpu_run.complete(run, "bench", lambda run=run: gpu_run.run_bench(run, {}, ""))
    written = json.loads((tmp_path / "gpu-run.json").read_text())
    assert written["tests"]["summary"] == "3 passed"
    assert {row["name"]: row["ms"] for row in written["bench"]["workloads"]} == {"W1": 1.0, "W2": 3.0}
    assert gpu_run.Run(tmp_path, 9, True).before == {}, "what a dry run has is its own"


def test_the_fastest_peer_is_the_peer() -> None:
    row: dict[str, Any] = {"ms": 2.0, "compile_ms": 3.0, "graphs_ms": 2.5, "triton_failed": "no"}
    gpu_measure.add_best(row)
    assert (row["best"], row["speedup"]) == ("graphs", 1.25)
    without: dict[str, Any] = {"ms": 2.0}
    gpu_measure.add_best(without)
    assert "speedup" not in without


def test_torch_compiles_each_workload_anew() -> None:
    torch = pytest.importorskip("torch")
    for number in range(10):  # more than the 8 that torch compiles one function for
        gpu_measure.forget_compiled(torch)

        def eager(x: Any, factor: int = number) -> Any:
            return x * factor

        torch.compile(eager, backend="eager", dynamic=False)(torch.ones(3))
        assert gpu_measure.compiled_graphs(torch) == 1, number
    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = False


def test_a_stage_that_fails_stays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> dict[str, Any]:
        raise RuntimeError("no such device")

    def fine(*arguments: Any) -> dict[str, Any]:
        return {"passed": True, "summary": "1 passed"}

    monkeypatch.setattr(gpu_run, "run_tests", broken)
    monkeypatch.setattr(gpu_run, "run_models", fine)
    monkeypatch.setattr(gpu_run, "run_table", fine)
    monkeypatch.setattr(gpu_run, "run_sanitizer", fine)
    monkeypatch.setattr(gpu_run, "run_profile", fine)
    monkeypatch.setattr(gpu_run, "run_bench", fine)
    monkeypatch.setattr(sys, "argv", ["gpu_run.py", "--out", str(tmp_path), "--dry-run"])
    assert gpu_run.main() == 1
    written = json.loads((tmp_path / "gpu-run.json").read_text())
    assert written["tests"]["summary"] == "RuntimeError: no such device"
    assert written["sanitizer"]["passed"] and written["bench"]["passed"]


def test_a_stage_is_cut_off_with_all_that_it_started(tmp_path: Path) -> None:
    run = gpu_run.Run(tmp_path, 0.05, False)
    child = "import time; print('in the child', flush=True); time.sleep(60)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    started = time.monotonic()
    status, output, _ = gpu_run.run_stage(run, "tests", [sys.executable, "-c", program], {})
    assert status == 124 and "in the child" in output and time.monotonic() - started < 20


def test_wheels_of_other_pythons_and_of_what_is_there_are_left_out(tmp_path: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    fitting = ["absent_a-1.0-py3-none-any.whl", f"absent_b-1.0-{tag}-{tag}-linux_x86_64.whl"]
    for name in (*fitting, "absent_c-1.0-cp39-cp39-linux_x86_64.whl", "numpy-2.0-py3-none-any.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"{name.partition('-')[0]}.py", "x = 1\n")
    found = [wheel for wheel in sorted(tmp_path.glob("*.whl")) if gpu_run.fits(wheel)]
    assert [gpu_run.unpack(wheel, tmp_path / "target") for wheel in found] == fitting
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["absent_a.py", "absent_b.py"]
