"""Tuned programs against the defaults of another checkout, and against those of this one.

    git worktree add /tmp/before 898999e
    python benchmarks/tuning.py programs --keep /tmp/tuned
    python benchmarks/tuning_against.py --before /tmp/before --tuned /tmp/tuned [--only softmax] [--pairs 24]

Each version of a program runs in processes of its own, on one thread; their turns of 8 ms follow one another, so that what else
the machine does meets all of them. The least call of a turn counts, by the thread's processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil, exp, log
from pathlib import Path
from typing import Any

from tuning_programs import PROGRAMS, file_name

HERE = Path(__file__).resolve().parents[1]
_SLOT_SECONDS, _CALLS = 8e-3, 2
STARTS = 8
"""Of processes for each version."""


def serve(source: Path, tuned: str) -> None:
    """Answers each line with the seconds of the least call of a turn."""
    import numpy as np

    from fuse_opt import compile as compile_program

    text, drawn = source.read_text(), np.random.default_rng(0)
    header = text[text.index("func.func") : text.index("->")]
    arrays = [_drawn(drawn, *found) for found in re.findall(r"tensor<((?:\d+x)*)(\w+)>([^%]*)", header)]
    program: Any = compile_program(text, tuned=tuned) if tuned else compile_program(text)
    once = min(_seconds(program, arrays) for _ in range(5))
    count = max(round(_SLOT_SECONDS / max(once, 1e-7)), _CALLS)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(min(_seconds(program, arrays) for _ in range(count)), flush=True)


def _drawn(drawn: Any, extents: str, element: str, rest: str) -> Any:
    """An argument: numbers, some of them true where they are i1, and small ones where the program bounds what is drawn."""
    shape = [int(extent) for extent in extents.split("x") if extent]
    if element == "i1":
        return drawn.random(shape) < 0.5
    return drawn.standard_normal(shape, dtype="f4") * (0.02 if "graph.range" in rest else 1.0)


def _seconds(program: Any, arrays: Sequence[Any]) -> float:
    start = time.thread_time()
    program(*arrays)
    return time.thread_time() - start


class Version:
    """A program as a checkout makes it."""

    def __init__(self, checkout: Path, source: Path, tuned: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "FUSE_OPT_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(source), "--tuned", tuned]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        if self._line() != "ready":
            raise RuntimeError(f"{checkout} cannot run {source}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def turn(self) -> float:
        """Seconds of the least call of a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """Ends its process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def in_turns(start: Callable[[], Mapping[str, Version]], pairs: int) -> dict[str, list[float]]:
    """
    Seconds of the least call of each turn, who is first changing every time. Versions are started anew a few times: where memory
    happens to lie makes one of them faster or slower in all turns of a process alike.
    """
    turns: dict[str, list[float]] = {}
    for begun in range(STARTS):
        versions = start()
        for number in range(ceil((pairs - begun) / STARTS)):
            for each in list(versions)[:: 1 if (begun + number) % 2 else -1]:
                turns.setdefault(each, []).append(versions[each].turn())
        for version in versions.values():
            version.close()
    return turns


def compared(name: str, text: str, given: argparse.Namespace, folder: Path) -> None:
    """A line for a program: medians of ratios of turns side by side, each with its quartiles."""
    (source := folder / "p.mlir").write_text(text)
    tuned = Path(given.tuned) / f"{file_name(name)}.json"
    won = tuned.exists() and any("speedup" in kernel for kernel in json.loads(tuned.read_text())["kernels"])
    places = {"before": (Path(given.before), ""), "default": (HERE, "")} | (
        {"tuned": (HERE, str(tuned))} if won else {}
    )

    def start() -> dict[str, Version]:
        return {name: Version(checkout, source, file) for name, (checkout, file) in places.items()}

    turns = in_turns(start, given.pairs)
    best = "tuned" if won else "default"
    shown = [f"{each}: {text_of(ratio(turns[each], turns[best]))}" for each in places if each != best]
    print(f"{name:40s} {1e6 * min(turns[best]):9.1f} us {best:8s} {'; '.join(shown)}", flush=True)


def ratio(slower: list[float], faster: list[float]) -> tuple[float, float, float]:
    """The median of ratios of turns, between their quartiles."""
    logs = sorted(log(a / b) for a, b in zip(slower, faster, strict=True))
    low, middle, high = (exp(each) for each in statistics.quantiles(logs, n=4))
    return low, middle, high


def text_of(ratio: tuple[float, float, float]) -> str:
    low, middle, high = ratio
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="CHECKOUT")
    parser.add_argument("--tuned", default="", metavar="FOLDER")
    parser.add_argument("--only", default="")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(Path(given.serve), given.tuned)
        return
    print(
        f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())}, one thread, {given.pairs} turns; over the last's time"
    )
    with tempfile.TemporaryDirectory(prefix="tuning-") as folder:
        for name, text in PROGRAMS.items():
            if not given.only or any(word in name for word in given.only.split(",")):
                compared(name, text(), given, Path(folder))


if __name__ == "__main__":
    main()
