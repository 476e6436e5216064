"""All that a GPU machine is needed for, in one call of less than 9 minutes: tests, sanitizers, and a benchmark.

    python benchmarks/gpu_run.py --wheels FOLDER [--out FOLDER] [--minutes 9] [--stages tests,sanitizer,bench]
    python benchmarks/gpu_run.py --dry-run --out FOLDER   # small, on whatever driver there is, the stand-in's too

It writes gpu-run.json and gpu-run.txt into --out, else $OUT, else benchmarks/results, after each stage anew: a run that is
cut off keeps what it has. FOLDER of wheels holds what the machine lacks of PyCUDA, xDSL, pytest and what they need.
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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("tests", "sanitizer", "bench")
NEEDED = ("pycuda", "xdsl", "numpy", "pytest")
SMALL_SET = ("examples", "twelve_kernels", "device_arrays", "results")
"""The scenarios that run under the sanitizers."""


class Run:
    """What is known so far, and where it is written."""

    def __init__(self, out: Path, minutes: float, dry: bool) -> None:
        self.out, self.dry = out, dry
        self.ends = time.monotonic() + 60 * minutes
        self.record: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": platform.node(),
            "python": platform.python_version(),
            "dry_run": dry,
        }

    @property
    def seconds_left(self) -> float:
        return max(self.ends - time.monotonic(), 1.0)

    def write(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu-run.json").write_text(json.dumps(self.record, indent=1) + "\n")
        (self.out / "gpu-run.txt").write_text(as_text(self.record))


def prepare(wheels: Path | None) -> dict[str, str]:
    """The environment of all stages: this checkout, and what is missing from the folder of wheels."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing and wheels is not None:
        target = Path(tempfile.gettempdir(), f"fuse-opt-wheels-{os.getuid()}")
        files = [str(path) for path in sorted(wheels.glob("*.whl"))]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--upgrade", "--target"]
        subprocess.run([*command, str(target), *files], check=True)
        paths.append(str(target))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_stage(run: Run, command: list[str], environment: dict[str, str], share: float = 1.0) -> tuple[int, str, float]:
    """The exit status (124: cut off), the output and the seconds of a command, which gets a share of the time left."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=run.seconds_left * share,
        )  # fmt: skip
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        status, output = (
            124,
            (error.stdout or b"").decode("utf-8", "replace") if isinstance(error.stdout, bytes) else "",
        )
    except OSError as error:
        status, output = 127, str(error)
    return status, output, round(time.monotonic() - started, 1)


def run_tests(run: Run, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-m", "gpu", "tests/test_gpu.py"]
    status, output, seconds = run_stage(run, command, environment, 0.4)
    said = re.findall(r"^(\w+): (.+)$", output, re.MULTILINE)
    last = output.strip().splitlines()[-1:] or [""]
    ran = bool(re.search(r"\d+ passed", last[0]))
    passed = status == 0 and (ran or run.dry)
    result: dict[str, Any] = {"passed": passed, "seconds": seconds, "summary": last[0].strip("= "), "said": dict(said)}
    return result if passed else {**result, "output": output[-6000:]}


def run_sanitizer(run: Run, environment: dict[str, str]) -> dict[str, Any]:
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    program = [sys.executable, str(ROOT / "tests" / "cuda_scenarios.py"), *SMALL_SET]
    tools: dict[str, Any] = {}
    for tool in ("memcheck", "racecheck"):
        if found is None and not run.dry:
            tools[tool] = {"passed": False, "summary": "there is no compute-sanitizer"}
            continue
        command = [] if found is None else [found, "--tool", tool, "--error-exitcode", "9"]
        status, output, seconds = run_stage(run, [*command, *program], environment, 0.35)
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
        command += ["--seconds", str(int(run.seconds_left - 5)), *(["--dry-run"] if run.dry else [])]
        status, output, seconds = run_stage(run, command, environment)
        found = json.loads(path.read_text()) if path.exists() else {}
    right = all(row.get("error_ok", False) for row in found.get("workloads", ()))
    result = {"passed": status == 0 and right and bool(found), "seconds": seconds, **found}
    return result if result["passed"] else {**result, "output": output[-6000:]}


def as_text(record: dict[str, Any]) -> str:
    """The table."""
    lines = [f"{key}: {record[key]}" for key in ("date", "machine", "python") if key in record]
    bench = record.get("bench", {})
    if "device" in bench:
        lines.append(f"device: {bench['device']}, copy rate {bench['copy_gb_s']} GB/s")
    for stage in STAGES[:2]:
        if stage in record:
            entries = record[stage] if stage == "sanitizer" else {stage: record[stage]}
            for name, entry in entries.items():
                if isinstance(entry, dict):
                    lines.append(f"{name}: {'passed' if entry['passed'] else 'FAILED'} {entry.get('summary', '')}")
    columns = (
        "ms",
        "gb_s",
        "of_copy",
        "target",
        "eager_ms",
        "compile_ms",
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
    run = Run(options.out, options.minutes, options.dry_run)
    environment = prepare(options.wheels)
    steps = {
        "tests": lambda: run_tests(run, environment),
        "sanitizer": lambda: run_sanitizer(run, environment),
        "bench": lambda: run_bench(run, environment, options.only),
    }
    passed = True
    for stage in options.stages.split(","):
        run.record[stage] = steps[stage]()
        passed &= run.record[stage]["passed"]
        run.write()
        print(f"{stage}: {'passed' if run.record[stage]['passed'] else 'FAILED'}", flush=True)
    print(as_text(run.record))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
