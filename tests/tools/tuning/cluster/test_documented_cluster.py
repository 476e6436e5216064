"""The commands of docs/tuning.md: a cluster of three processes on one machine, from two commands, and one that tunes on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import pytest

import fuse_opt
from fuse_opt.runtime.guard_pages import can_guard_pages
from fuse_opt.tools.compiler.builders import has_c_compiler

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "tuning.md"
START_SECONDS = 60.0

pytestmark = pytest.mark.skipif(not has_c_compiler() or not can_guard_pages, reason="programs are compiled and guarded")


def commands(port: int) -> tuple[list[str], list[str]]:
    """Those of the page that start the cluster, and those that use it, at another port."""
    (block,) = [
        found for found in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.S) if "dask scheduler" in found
    ]
    lines = [line.replace("8786", str(port)) for line in block.strip().splitlines()]
    return [line.removesuffix(" &") for line in lines if line.endswith(" &")], [
        x for x in lines if not x.endswith(" &")
    ]


@contextmanager
def running(lines: Sequence[str], folder: Path) -> Generator[None]:
    """The commands, until the end."""
    made: list[subprocess.Popen[bytes]] = []
    try:
        for line in lines:
            with (folder / f"{len(made)}.txt").open("wb") as out:
                made.append(
                    subprocess.Popen(["bash", "-c", line], cwd=folder, stdout=out, stderr=out, start_new_session=True)
                )
        yield
    finally:
        for process in reversed(made):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def measuring(address: str, count: int) -> int:
    """How many workers that measure the scheduler knows, once there are so many or time is up."""
    library, found, end = import_module("distributed"), 0, time.monotonic() + START_SECONDS
    with library.Client(address, timeout=START_SECONDS) as client:
        while found < count and time.monotonic() < end:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            found = sum("measure" in worker["resources"] for worker in workers)
            time.sleep(0.1)
    return found


def test_a_cluster_of_three_processes_from_two_commands(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="clusters are dask's")
    if shutil.which("dask") is None:
        pytest.skip("dask's command is not on the path")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start, (tune,) = commands(port)
    assert len(start) == 2 and tune.startswith("fuse-tune examples/softmax.mlir --minutes 1 --cluster ")
    words = tune.replace("--minutes 1", "--trials 3").split()[1:]
    words[0] = str(ROOT / words[0])
    with running(start, tmp_path):
        assert measuring(words[words.index("--cluster") + 1], 2) == 2
        command = [
            sys.executable,
            "-m",
            "fuse_opt.tools.tuning.fuse_tune_main",
            *words,
            "--records",
            str(tmp_path / "r"),
        ]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
    whole = json.loads((tmp_path / "tuned.json").read_text())
    assert whole["kernels"] and whole["device"].startswith("d:")
    lines = [json.loads(line) for file in (tmp_path / "r").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sum(line["state"] == "raced" for line in lines) >= 3, run.stderr
    fuse_opt.compile(words[0], tuned=tmp_path / "tuned.json")
