"""
Peers in processes of their own that take turns: all threads of who has no turn are stopped.

Threads of OpenMP, MKL and others wait in loops for a while after each call. With several threads in one process, those of one
peer take the processors from the next.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rotation import Timer, timed

FLAG = "--serve"
"""The option of a benchmark with which it is the process of one peer; its value is the peer's name."""

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""


class Apart:
    """Processes of the benchmark that runs, one for each peer: the same command with `--serve NAME`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._processes = {name: self._started(name) for name in names}

    def _started(self, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, *sys.argv, FLAG, name]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer(process)
        process.send_signal(signal.SIGSTOP)
        return process

    def load(self, key: str, names: Iterable[str] | None = None) -> dict[str, Timer]:
        """
        By name, those (of all that are there) that can make the calls that `serve` knows by this key. Others are named, with
        the reason.
        """
        found: dict[str, Timer] = {}
        for name in self._processes if names is None else names:
            answer = self._ask(name, f"load {key}")
            if answer == "ready":
                found[name] = partial(self._time, name)
            else:
                print(f"  {name}: {answer}")
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes.values():
            process.wait()

    def _time(self, name: str, repeat: int) -> float:
        return float(self._ask(name, f"time {repeat}"))

    def _ask(self, name: str, line: str) -> str:
        process = self._processes[name]
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        try:
            return self._answer(process)
        finally:
            process.send_signal(signal.SIGSTOP)

    def _answer(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of a peer ended with status {process.wait()}: {process.args}")
        return line.strip()


def serve(load: Callable[[str], Callable[[], object]], clock: Callable[[], float]) -> None:
    """Answers what `Apart` asks, a line each, until there is nothing more to read."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)  # else a stopped process outlives a benchmark that is killed
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what packages print is no answer
    print("started", file=answers)
    timer: Timer | None = None
    for line in sys.stdin:
        what, _, value = line.strip().partition(" ")
        if what == "load":
            try:
                timer = timed(load(value), clock)
                print("ready", file=answers)
            except Exception as failure:  # a peer that cannot is a peer less
                print(" ".join(f"{type(failure).__name__}: {failure}".split())[:160], file=answers)
        else:
            assert timer is not None
            print(timer(int(value)), file=answers)
