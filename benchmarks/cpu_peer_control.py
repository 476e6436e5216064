"""The processes of peers, as their parent sees them, and the lock that benchmarks of one machine share."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cpu_peer_kinds import PEERS

ROOT = Path(__file__).resolve().parent.parent
_HELD_S = 180.0


class PeerProcess:
    """A peer at work."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name = name
        caches = folder / f"{name}-{time.monotonic_ns()}"
        paths = [str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "CPU_PEERS_FOLDER": str(folder),
            "FUSE_OPT_CACHE_DIR": str(caches),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / f"{name}-inductor"),
            **PEERS[name].environment,
        }
        command = [python, str(ROOT / "benchmarks" / "cpu_peer_process.py"), name]
        self._log = (folder / f"{name}.log").open("a")
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def ask(self, command: dict[str, Any] | None = None) -> None:
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write((json.dumps(command) + "\n") if command else "")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"skipped": f"its process ended with status {self._process.wait()}"}

    def set_realtime(self, on: bool) -> None:
        """All threads that it has; those that it starts later inherit it. Raises PermissionError."""
        policy, priority = (os.SCHED_FIFO, 1) if on else (os.SCHED_OTHER, 0)
        for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class Lock:
    """A file's lock, on which other benchmarks wait; given back at the end of a workload from `_HELD_S` on."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("a")
        self._since: float | None = None

    def hold(self) -> None:
        if self._file is not None and self._since is None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._since = time.monotonic()

    def give_others_a_turn(self) -> None:
        if self._file is not None and self._since is not None and time.monotonic() - self._since > _HELD_S:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._since = None
            time.sleep(0.5)
