"""All that a GPU machine is needed for, in one call of less than 9 minutes: tests, sanitizers, and a benchmark.

    python benchmarks/gpu_run.py --wheels FOLDER [--out FOLDER] [--minutes 9] [--stages tests,sanitizer,bench]
    python benchmarks/gpu_run.py --dry-run --out FOLDER   # small, on whatever driver there is, the stand-in's too

It writes gpu-run.json and gpu-run.txt into --out, else $OUT, else benchmarks/results, after each stage anew. A stage has its
part of the time; one that fails or is cut off takes nothing from the others, and keeps what it had.

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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARES = {"tests": 0.25, "memcheck": 0.15, "racecheck": 0.15, "bench": 1.0}
"""By stage in the order in which they run: the most that it may take of the whole time; the last one takes what is left."""
STAGES = ("tests", "sanitizer", "bench")
NEEDED = ("pycuda", "xdsl", "numpy", "pytest")
SMALL_SET = ("examples", "twelve_kernels", "device_arrays", "odd_addresses", "results")
"""The scenarios that run under the sanitizers."""


class Run:
    """What is known so far, and where it is written."""

    def __init__(self, out: Path, minutes: float, dry: bool) -> None:
        self.out, self.dry, self.seconds = out, dry, 60 * minutes
        self.ends = time.monotonic() + self.seconds
        self.record: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": platform.node(),
            "python": platform.python_version(),
            "dry_run": dry,
        }

    def seconds_of(self, stage: str) -> float:
        return min(max(self.ends - time.monotonic(), 1.0), self.seconds * SHARES[stage])

    def write(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu-run.json").write_text(json.dumps(self.record, indent=1) + "\n")
        (self.out / "gpu-run.txt").write_text(as_text(self.record))


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
    return result if passed else {**result, "output": output[-6000:]}


def run_sanitizer(run: Run, environment: dict[str, str]) -> dict[str, Any]:
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    program = [sys.executable, str(ROOT / "tests" / "support" / "cuda_scenarios.py"), *SMALL_SET]
    tools: dict[str, Any] = {}
    for tool in ("memcheck", "racecheck"):
        if found is None and not run.dry:
            tools[tool] = {"passed": False, "summary": "there is no compute-sanitizer"}
            continue
        command = [] if found is None else [found, "--tool", tool, "--error-exitcode", "9"]
        status, output, seconds = run_stage(run, tool, [*command, *program], environment)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
        tools[tool] = {"passed": status == 0, "seconds": seconds, "summary": (summary or [f"status {status}"])[-1]}
        if status:
            tools[tool]["output"] = output[-6000:]
    return {"passed": all(tool["passed"] for tool in tools.values()), **tools}


def run_bench(run: Run, environment: dict[str, str], only: str) -> dict[str, Any]:
    """In a process of its own, which writes what it has after each workload."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.json")
        command = [sys.executable, str(ROOT / "benchmarks" / "gpu_measure.py"), "--out", str(path), "--only", only]
        command += ["--seconds", str(int(run.seconds_of("bench") - 5)), *(["--dry-run"] if run.dry else [])]
        status, output, seconds = run_stage(run, "bench", command, environment)
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    right = all(row.get("error_ok", False) for row in found.get("workloads", ()))
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


def as_text(record: dict[str, Any]) -> str:
    """The table."""
    lines = [f"{key}: {record[key]}" for key in ("date", "machine", "python") if key in record]
    bench = record.get("bench", {})
    if "device" in bench:
        lines.append(f"device: {bench['device']}, copy rate {bench['copy_gb_s']} GB/s")
    for stage in STAGES:
        if stage in record:
            lines += _stage_lines(stage, record[stage])
    columns = (
        "ms",
        "gb_s",
        "of_copy",
        "target",
        "fast_ms",
        "eager_ms",
        "compile_ms",
        "triton_ms",
        "speedup",
        "graphs_ms",
        "unbound_ms",
        "launches",
        "error",
    )
    rows = bench.get("workloads", [])
    if rows:
        lines += ["", f"{'workload':<46}" + "".join(f"{name:>11}" for name in columns)]
        for row in rows:
            cells = "".join(f"{'-' if row.get(name) is None else row[name]:>11}" for name in columns)
            lines.append(f"{row['name'] + ' ' + row['about']:<46.46}{cells}")
    for key in ("geomean_over_compile", "launch_us", "left_out"):
        if bench.get(key):
            lines.append(f"{key}: {bench[key]}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results"))
    parser.add_argument("--minutes", type=float, default=8.7)
    parser.add_argument("--stages", default=",".join(STAGES), help="in this order")
    parser.add_argument("--only", default="", help="workloads, with commas between them")
    parser.add_argument("--dry-run", action="store_true", help="small sizes; nothing that is missing is a failure")
    options = parser.parse_args()
    stages = options.stages.split(",")
    if unknown := [stage for stage in stages if stage not in STAGES]:
        parser.error(f"--stages: expected some of {', '.join(STAGES)}, got {', '.join(unknown)}")
    run = Run(options.out, options.minutes, options.dry_run)
    environment = prepare(run, options.wheels)
    steps = {
        "tests": lambda: run_tests(run, environment),
        "sanitizer": lambda: run_sanitizer(run, environment),
        "bench": lambda: run_bench(run, environment, options.only),
    }
    passed = [complete(run, stage, steps[stage]) for stage in stages]
    print(as_text(run.record))
    return 0 if all(passed) else 1


def complete(run: Run, stage: str, step: Callable[[], dict[str, Any]]) -> bool:
    """Runs a stage and writes all that is known then; whatever goes wrong in it stays in it."""
    result: dict[str, Any]
    try:
        result = step()
    except Exception as error:
        result = {"passed": False, "summary": f"{type(error).__name__}: {error}", "output": traceback.format_exc()}
    run.record[stage] = result
    run.write()
    print(f"{stage}: {'passed' if result['passed'] else 'FAILED'}", flush=True)
    return bool(result["passed"])


if __name__ == "__main__":
    sys.exit(main())
