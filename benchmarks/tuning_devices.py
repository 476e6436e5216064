"""Two devices on one machine, by flags of its compiler: what one confirmed is tried first on the other, and never applied."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuning_programs import PROGRAMS, file_name

TUNE = [sys.executable, "-m", "fuse_opt.tools.tuning.fuse_tune_main"]
NAMES = ("mean, var over axis 0 2039x509", "softmax 12001x771")
"""Programs in which something is mostly faster than the default."""
_FLAGS = ("", "-mno-avx512f -mprefer-vector-width=256")
_APPLIED = """\
import sys
from fuse_opt import compile
from fuse_opt.passes.remarks import collect
for folder in sys.argv[2:]:
    with collect() as remarks:
        compile(sys.argv[1], tuned=folder)
    print(sum(each.code == "tuned" and "runs as" in each.message for each in remarks), end=" ")
    print(sum(each.code == "untuned" and "of another machine" in each.message for each in remarks))
"""


def devices(given: argparse.Namespace, folder: Path) -> None:
    """For each program: what each device confirms, how much of the other's is applied, and whether that is tried first."""
    for name in NAMES:
        if not given.only or any(word in name for word in given.only.split(",")):
            _one(name, given, folder / file_name(name))


def _one(name: str, given: argparse.Namespace, folder: Path) -> None:
    folder.mkdir()
    (source := folder / "p.mlir").write_text(PROGRAMS[name]())
    both, alone = folder / "records", [folder / "first", folder / "second"]
    for number, flags in enumerate(_FLAGS):
        environment = _device(flags)
        words = ["--trials", str(given.trials), "--threads", "1", "-o", str(folder / f"{number}.json")]
        before = {path.name for path in both.glob("*.jsonl")}
        applied = _applied(source, [both], environment) if number else ""
        run = subprocess.run(
            [*TUNE, str(source), *words, "--records", str(both)], env=environment, capture_output=True, text=True
        )
        if run.returncode:
            print(f"{name}: {run.stderr.strip().splitlines()[-1]}")
            return
        alone[number].mkdir()
        for path in both.glob("*.jsonl"):
            if path.name not in before:
                (alone[number] / path.name).write_bytes(path.read_bytes())
        kernel = json.loads((folder / f"{number}.json").read_text())
        (found,) = kernel["kernels"]
        print(
            f"{name}, {flags or 'as it is'}: {kernel['device']}, {json.dumps(found['schedule'])} {found.get('speedup', '')}"
        )
        if number:
            print(f"  kernels that the first device's records are applied to, and refused to, on the second: {applied}")
            first = next((json.dumps(line["schedule"]) for line in _opened(alone[1], found["default"])), "none")
            print(f"  tried first on the second: {first}")
    for number, flags in enumerate(_FLAGS):
        print(
            f"  by its own records, on the {('first', 'second')[number]}: {_applied(source, [alone[number]], _device(flags))}"
        )


def _device(flags: str) -> Mapping[str, str]:
    """The environment of runs whose programs are compiled with these flags, too."""
    given = " ".join(filter(None, (os.environ.get("FUSE_OPT_CFLAGS"), flags)))
    return {**os.environ, "FUSE_OPT_CFLAGS": given, "FUSE_OPT_NUM_THREADS": "1"}


def _applied(source: Path, folders: list[Path], environment: Mapping[str, str]) -> str:
    run = subprocess.run(
        [sys.executable, "-c", _APPLIED, str(source), *map(str, folders)],
        env=environment,
        capture_output=True,
        text=True,
    )
    return " and ".join(run.stdout.split()) or run.stderr.strip().splitlines()[-1]


def _opened(folder: Path, default: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of first turns, in the order in which they were measured."""
    for path in folder.glob("*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["state"] == "raced" and line["turn"] == 0 and line["schedule"] != default:
                yield line
