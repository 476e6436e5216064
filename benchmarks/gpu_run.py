"""All that a GPU machine is needed for, in calls of less than 9 minutes: tests, sanitizers, and a benchmark.

    python benchmarks/gpu_run.py --wheels FOLDER [--out FOLDER] [--minutes 9] [--stages tests,ops,sizes,bench]
    python benchmarks/gpu_run.py --stages bench --only W4,W5 --out FOLDER   # alone, in all of the time; what is there stays
    python benchmarks/gpu_run.py --together --peers eager,compile,triton   # the checks side by side, where there are processors
    python benchmarks/gpu_run.py --dry-run --out FOLDER   # small, on whatever driver there is
    python benchmarks/gpu_run.py --stand-in --minutes 20 --out FOLDER   # the same on the stand-in for it, of the tests

It writes gpu-run.json and gpu-run.md into --out, else $OUT, else benchmarks/results, after each stage anew: with what earlier
calls wrote there of other stages, and of other workloads. A stage has its part of the time, alone all of it; one that fails or
is cut off takes nothing from the others, and keeps what it had.

FOLDER of wheels holds what the machine lacks of PyCUDA, xDSL, pytest and what they need; the machine needs no network.
`python tests/support/fake_cuda/build.py wheels FOLDER` makes it on another one, with the Python version of the GPU machine.
Exit status: 0 when all stages went well, 1 when something failed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from gpu_counters import COLUMNS as KERNELS
from gpu_counters import counted, kernel_rows, profiler

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""Of the sanitizer."""
SHARES = {
    "tests": 0.13,
    "models": 0.09,
    **{tool: 0.035 for tool in TOOLS},
    "profile": 0.04,
    "libraries": 0.06,
    "ops": 0.08,
    "jax": 0.04,
    "sizes": 0.04,
    "dynamic": 0.035,
    "bench": 1.0,
}
"""
By stage in the order in which they run: the most that it may take of the whole time; the last one takes what is left. Few stages
have all of the time in these parts.
"""
STAGES = ("tests", "models", "sanitizer", "profile", "libraries", "ops", "jax", "sizes", "dynamic", "bench")
TABLES: dict[str, tuple[str, list[str], list[str], str]] = {
    "libraries": ("Libraries", ["gpu_libraries.py"], ["gpu_libraries.py", "--dry-run"], "numpy"),
    "ops": ("Single ops", ["gpu_ops.py"], ["gpu_ops.py", "--texts"], "torch"),
    "jax": ("Programs of JAX", ["gpu_jax.py"], ["gpu_jax.py", "--texts"], "jax"),
    "sizes": ("Programs for all sizes", ["gpu_sizes.py"], ["gpu_sizes.py", "--texts"], "torch"),
    "dynamic": (
        "torch.compile over lengths that vary",
        ["torch_sizes.py", "--device", "cuda", "--lengths", "16"],
        ["torch_sizes.py", "--models", "mlp", "--modes", "inference", "--lengths", "6", "--rounds", "1"],
        "torch",
    ),
}
"""By stage that is one script with a table: its title, the script, how that runs without a GPU, and what it imports."""
TIMED = (*TABLES, "bench")
"""What has the device alone."""
_CHECKS = 0.55
"""Of the time, what all stages that are not timed have where they run side by side."""
_WARMING = 4
"""Processes that fill the compilers' caches beside the checks."""
NEEDED = ("pycuda", "xdsl", "numpy", "pytest")
SMALL_SET = (
    "examples",
    "twelve_kernels",
    "device_arrays",
    "odd_addresses",
    "results",
    "any_sizes",
    "donated_of_any_size",
)
"""The scenarios that run under the sanitizers."""


class Run:
    """What is known so far, and where it is written."""

    def __init__(self, out: Path, minutes: float, dry: bool, stages: tuple[str, ...] = STAGES) -> None:
        self.out, self.dry, self.seconds, self.stages = out, dry, 60 * minutes, stages
        self.together, self.lock = False, Lock()
        self.ends = time.monotonic() + self.seconds
        self.record: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": platform.node(),
            "python": platform.python_version(),
            "dry_run": dry,
        }
        self.before = self._earlier()
        self.record |= {stage: self.before[stage] for stage in STAGES if stage in self.before}

    def _earlier(self) -> dict[str, Any]:
        """What an earlier call on this machine, of the same kind, has written."""
        try:
            found: dict[str, Any] = json.loads((self.out / "gpu-run.json").read_text())
        except (OSError, ValueError):
            return {}
        same = all(found.get(key) == self.record[key] for key in ("machine", "dry_run"))
        return found if same else {}

    def seconds_of(self, stage: str) -> float:
        left = max(self.ends - time.monotonic(), 1.0)
        if self.together and stage not in TIMED:
            return min(left, self.seconds * _CHECKS)
        asked = [each for one in self.stages for each in (TOOLS if one == "sanitizer" else (one,))]
        of_all = sum(SHARES[each] for each in asked if each in TIMED or not self.together)
        return min(left, self.seconds * SHARES[stage] / min(1.0, of_all or 1.0))

    def write(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu-run.json").write_text(json.dumps(self.record, indent=1) + "\n")
        (self.out / "gpu-run.md").write_text(as_markdown(self.record))


def prepare(run: Run, wheels: Path | None) -> dict[str, str]:
    """The environment of all stages: this checkout, and behind all that is installed what is in the folder of wheels."""
    paths = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    run.record["missing"] = missing
    if missing and wheels is not None:
        target = Path(tempfile.mkdtemp(prefix="fuse-opt-wheels-"))
        run.record["wheels"] = [unpack(wheel, target) for wheel in sorted(wheels.glob("*.whl")) if fits(wheel)]
        paths.append(str(target))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def fits(wheel: Path) -> bool:
    """Whether a wheel is for this Python, and for any package that is not there."""
    name, *_, python, abi, _ = wheel.stem.split("-")
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if here not in python.split(".") and "py3" not in python.split(".") and abi != "abi3":
        return False
    return importlib.util.find_spec(name.lower().replace("-", "_")) is None


def unpack(wheel: Path, target: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return wheel.name


def run_stage(run: Run, stage: str, command: list[str], environment: dict[str, str]) -> tuple[int, str, float]:
    """The exit status (124: cut off), the output and the seconds of a command with all that it starts."""
    started = time.monotonic()
    with (
        tempfile.TemporaryFile() as output
    ):  # a file, which a process that outlives its parent does not keep open for us
        try:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                status = process.wait(run.seconds_of(stage))
            except subprocess.TimeoutExpired:
                status = 124
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        except OSError as error:
            return 127, str(error), round(time.monotonic() - started, 1)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return status, text, round(time.monotonic() - started, 1)


def run_tests(run: Run, environment: dict[str, str]) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        "tests/runtime/cuda/test_device.py",
    ]
    status, output, seconds = run_stage(run, "tests", command, environment)
    said = re.findall(r"^(\w+): (.+)$", output, re.MULTILINE)
    last = output.strip().splitlines()[-1:] or [""]
    ran = bool(re.search(r"\d+ passed", last[0]))
    passed = status == 0 and (ran or run.dry)
    result: dict[str, Any] = {"passed": passed, "seconds": seconds, "summary": last[0].strip("= "), "said": dict(said)}
    failures = output.partition("= FAILURES =")[2].partition("= PASSES =")[0]
    return result if passed else {**result, "output": (failures or output)[-20000:]}


def run_models(run: Run, environment: dict[str, str]) -> dict[str, Any]:
    """Small models on the device against the reference; one of them in a dry run, where what they need may be missing."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_models.py"), "--device"]
    command += ["--models", "llama"] if run.dry else []
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if run.dry and missing:
        return {"passed": True, "summary": f"no {missing[0]}"}
    status, output, seconds = run_stage(run, "models", command, environment)
    rows = re.findall(r"^\| (\w+) \| (\w+) \|(.*)\|$", output, re.MULTILINE)
    summary = "; ".join(f"{name} {cells.split('|')[-1].strip()}" for name, graph, cells in rows if graph != "graph")
    result: dict[str, Any] = {"passed": status == 0, "seconds": seconds, "summary": summary}
    return result if status == 0 else {**result, "output": output[-6000:]}


def run_table(run: Run, environment: dict[str, str], stage: str) -> dict[str, Any]:
    """A script that prints rows; a case that is not there is said in its row, one that is wrong or ends early is a failure."""
    _, script, dry, needed = TABLES[stage]
    name, *options = dry if run.dry else script
    if run.dry and importlib.util.find_spec(needed) is None:
        return {"passed": True, "summary": f"no {needed}"}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *options]
    command += ["--seconds", str(int(run.seconds_of(stage) * 0.7))]
    status, output, seconds = run_stage(run, stage, command, environment)
    lines = output.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    wrong = [row for row in rows if "| False |" in row or "failed" in row]
    summary = f"{len(rows) - 2} rows, {len(wrong)} wrong" if rows else f"{len(lines)} lines"
    result: dict[str, Any] = {
        "passed": status == 0 and not wrong, "seconds": seconds, "summary": summary, "rows": rows
    }  # fmt: skip
    return result if result["passed"] else {**result, "output": output[-6000:]}


def warm(run: Run, environment: dict[str, str], only: str, peers: str) -> None:
    """Compiles what the benchmark is about to run, in processes of their own; whatever goes wrong, it will say itself."""
    names = only.split(",") if only else workload_names(environment)
    with ThreadPoolExecutor(_WARMING) as pool, tempfile.TemporaryDirectory() as folder:
        for number in range(_WARMING):
            if part := names[number::_WARMING]:
                command = [
                    sys.executable,
                    str(ROOT / "benchmarks" / "gpu_measure.py"),
                    "--compile-only",
                    "--peers",
                    peers,
                ]
                command += ["--out", f"{folder}/{number}", "--only", ",".join(part)]
                pool.submit(
                    run_stage, run, "warm", [*command, "--seconds", str(int(run.seconds_of("warm")))], environment
                )


def workload_names(environment: dict[str, str]) -> list[str]:
    script = "from gpu_workloads import workloads; print(*(w.name for w in workloads(4096)))"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    return done.stdout.split()


def run_sanitizer(run: Run, environment: dict[str, str]) -> dict[str, Any]:
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    program = [sys.executable, str(ROOT / "tests" / "support" / "cuda_scenarios.py"), *SMALL_SET]

    def result_of(tool: str) -> dict[str, Any]:
        if found is None and not run.dry:
            return {"passed": False, "summary": "there is no compute-sanitizer"}
        command = [] if found is None else [found, "--tool", tool, "--error-exitcode", "9"]
        status, output, seconds = run_stage(run, tool, [*command, *program], environment)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
        result = {"passed": status == 0, "seconds": seconds, "summary": (summary or [f"status {status}"])[-1]}
        return {**result, "output": output[-6000:]} if status else result

    with ThreadPoolExecutor(len(TOOLS) if run.together else 1) as pool:
        tools = dict(zip(TOOLS, pool.map(result_of, TOOLS), strict=True))
    return {"passed": all(tool["passed"] for tool in tools.values()), **tools}


def run_profile(run: Run, environment: dict[str, str], only: str) -> dict[str, Any]:
    """Bytes and issue slots of each kernel of the workloads, by Nsight Compute."""
    ncu = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if ncu is None and not run.dry:
        return {"passed": False, "summary": "there is no ncu"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "needed.json")
        command = [] if ncu is None else profiler(ncu)
        command += [sys.executable, str(ROOT / "benchmarks" / "gpu_profile.py"), "--out", str(path), "--only", only]
        command += ["--seconds", str(int(run.seconds_of("profile") * 0.7)), *(["--dry-run"] if run.dry else [])]
        status, output, seconds = run_stage(run, "profile", command, environment)
        needed: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    rows = [] if ncu is None or status else kernel_rows(counted(output), needed)
    refused = re.findall(r"^==ERROR== .*", output, re.MULTILINE)  # counters are not for everybody's eyes, say
    summary = (refused or [f"{len(rows)} kernels of {len(needed)} workloads"])[0]
    passed = status == 0 and bool(needed) and bool(rows or ncu is None)
    result: dict[str, Any] = {"passed": passed, "seconds": seconds, "summary": summary, "rows": rows}
    return result if passed else {**result, "output": output[-6000:]}


def run_bench(run: Run, environment: dict[str, str], only: str, peers: str = "") -> dict[str, Any]:
    """In a process of its own, which writes what it has after each workload."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.json")
        command = [sys.executable, str(ROOT / "benchmarks" / "gpu_measure.py"), "--out", str(path), "--only", only]
        command += ["--seconds", str(int(run.seconds_of("bench") - 5)), *(["--dry-run"] if run.dry else [])]
        command += ["--peers", peers] if peers else []
        status, output, seconds = run_stage(run, "bench", command, environment)
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    right = all(row.get("error_ok", False) for row in found.get("workloads", ()))
    names = {row["name"] for row in found.get("workloads", ())}
    earlier = [row for row in run.before.get("bench", {}).get("workloads", ()) if row["name"] not in names]
    if found:
        found["workloads"] = [*earlier, *found.get("workloads", ())]
    result = {"passed": status == 0 and right and bool(found), "seconds": seconds, **found}
    return result if result["passed"] else {**result, "output": output[-6000:]}


def _stage_lines(stage: str, result: dict[str, Any]) -> list[str]:
    """How a stage went, or each of its parts."""
    parts: dict[str, Any] = {name: result[name] for name in SHARES if name in result} or {stage: result}
    lines: list[str] = []
    for name, part in parts.items():
        word = "passed" if part["passed"] else "FAILED"
        lines.append(f"{name}: {word} in {part.get('seconds', 0)} s {part.get('summary', '')}".rstrip())
    return lines


COLUMNS = (
    "ms", "gb_s", "copy_ms", "of_copy", "target", "fast_ms", "eager_ms", "compile_ms", "compile_graphs", "graphs_ms",
    "autotune_ms", "triton_ms", "best", "speedup", "unbound_ms", "launches", "registers", "spills", "error",
)  # fmt: skip
"""Of the table of workloads; `speedup` is the time of the best peer over ours."""


def as_markdown(record: dict[str, Any]) -> str:
    """The report."""
    lines = ["# Run on a GPU", ""]
    lines += [f"- {key}: {record[key]}" for key in ("date", "machine", "python", "dry_run") if key in record]
    bench = record.get("bench", {})
    if "device" in bench:
        lines.append(f"- device: {bench['device']}, copy rate {bench['copy_gb_s']} GB/s, torch {bench.get('torch')}")
    lines += ["", "## Stages", ""]
    for stage in STAGES:
        if stage in record:
            lines += [f"- {line}" for line in _stage_lines(stage, record[stage])]
    for stage, (title, *_) in TABLES.items():
        if rows := record.get(stage, {}).get("rows", []):
            lines += ["", f"## {title}", "", *rows]
    if rows := record.get("profile", {}).get("rows", []):
        lines += ["", "## Kernels by Nsight Compute", "", f"| {' | '.join(KERNELS)} |", "|---" * len(KERNELS) + "|"]
        lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    if rows := bench.get("workloads", []):
        lines += [
            "",
            "## Workloads",
            "",
            "| workload | " + " | ".join(COLUMNS) + " |",
            "|---" * (len(COLUMNS) + 1) + "|",
        ]
        for row in rows:
            cells = ("-" if row.get(name) is None else str(row[name]) for name in COLUMNS)
            lines.append(f"| {row['name']} {row['about']} | " + " | ".join(cells) + " |")
        failed = [f"- {row['name']}: {key} {row[key]}" for row in rows for key in row if key.endswith("_failed")]
        lines += ["", "## Peers that failed", "", *failed] if failed else []
    lines.append("")
    for key in ("geomean_over_best", "launch_us", "left_out"):
        if bench.get(key):
            lines.append(f"- {key}: {bench[key]}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results"))
    parser.add_argument("--minutes", type=float, default=8.7)
    parser.add_argument("--stages", default=",".join(STAGES), help="in this order")
    parser.add_argument("--only", default="", help="workloads, with commas between them")
    parser.add_argument("--peers", default="", help="of the benchmark, with commas between them")
    parser.add_argument("--together", action="store_true", help="what is not timed side by side")
    parser.add_argument("--dry-run", action="store_true", help="small sizes; nothing that is missing is a failure")
    parser.add_argument("--stand-in", action="store_true", help="a dry run on the stand-in driver of the tests")
    options = parser.parse_args()
    if options.stand_in:
        sys.path.insert(0, str(ROOT / "tests" / "support"))
        import_module("stand_in_driver").restart()
        options.dry_run = True
    stages = options.stages.split(",")
    if unknown := [stage for stage in stages if stage not in STAGES]:
        parser.error(f"--stages: expected some of {', '.join(STAGES)}, got {', '.join(unknown)}")
    run = Run(options.out, options.minutes, options.dry_run, tuple(stages))
    run.together = options.together
    environment = prepare(run, options.wheels)
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "tests": lambda: run_tests(run, environment),
        "models": lambda: run_models(run, environment),
        "sanitizer": lambda: run_sanitizer(run, environment),
        "profile": lambda: run_profile(run, environment, options.only),
        **{stage: partial(run_table, run, environment, stage) for stage in TABLES},
        "bench": lambda: run_bench(run, environment, options.only, options.peers),
    }
    checks = [stage for stage in stages if stage not in TIMED]
    with ThreadPoolExecutor(1 + len(stages) if options.together else 1) as pool:
        if options.together and "bench" in stages:
            pool.submit(warm, run, environment, options.only, options.peers or "compile")
        passed = list(pool.map(lambda stage: complete(run, stage, steps[stage]), checks))
    passed += [complete(run, stage, steps[stage]) for stage in stages if stage in TIMED]
    print(as_markdown(run.record))
    return 0 if all(passed) else 1


def complete(run: Run, stage: str, step: Callable[[], dict[str, Any]]) -> bool:
    """Runs a stage and writes all that is known then; whatever goes wrong in it stays in it."""
    result: dict[str, Any]
    try:
        result = step()
    except Exception as error:
        result = {"passed": False, "summary": f"{type(error).__name__}: {error}", "output": traceback.format_exc()}
    with run.lock:
        run.record[stage] = result
        run.write()
    print(f"{stage}: {'passed' if result['passed'] else 'FAILED'}", flush=True)
    return bool(result["passed"])


if __name__ == "__main__":
    sys.exit(main())
