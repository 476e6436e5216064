"""Mutated programs through the driver: whatever the text and the passes, it answers soon, with a status and no traceback.

    python tests/support/mutate_texts.py --cases 15000 --seed 0 --processes 2

Texts of examples, lit tests and random programs, some of them after passes, are changed as mutations.py does, and go with
random passes, options and targets through the command in this process. A fault is an exit status other than 0, 1 and 2, a
traceback, a refusal that names no place, or more than ten seconds. Each is printed with its seed, flags and text.
"""

from __future__ import annotations

import argparse
import io
import math
import multiprocessing
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import get_args, get_type_hints

from ir_testing import apply, parse, text_of
from mutations import mutated
from program_generator import dense_program, narrow_program, random_program
from xdsl.utils.exceptions import DiagnosticException

from fuse_opt.passes.devices.device import device_names
from fuse_opt.passes.memory.ordering.ordering import STRATEGIES as ORDERS
from fuse_opt.passes.memory.packing.packing import STRATEGIES as PACKINGS
from fuse_opt.tools.commands.fuse_opt_main import main as fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.compiler.registry import available_passes, available_targets

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10.0
"""Of processor time, as machines may be busy with other things."""
SILENCE = 300.0
"""After so many seconds a worker counts as one that hangs outside of Python."""
MEMORY = 6 << 30
LARGEST = 6000
"""Characters of the largest text."""
PREPARED = 60
"""Texts that have gone through passes before they are changed."""

_PLACED = re.compile(r"[^\n]*:\d+:\d+: error: [^\n]+")
_PREPARATIONS = (
    ",".join(DEFAULT_PIPELINE),
    "fuse-siblings,plan-memory",
    "fuse-row,wrap-kernels,schedule-kernels",
    "wrap-kernels,infer-inplace,plan-memory,bulk-launches",
    "unfused,convert-fused-to-loops",
    "unfused,convert-fused-to-gpu",
)


@dataclass(frozen=True)
class Case:
    """A text, and what the command is asked for."""

    seed: int
    text: str
    flags: tuple[str, ...]

    def report(self, fault: str) -> str:
        return f"seed {self.seed}: {fault}\n// fuse-opt {' '.join(self.flags)}\n{self.text}\n"


@cache
def corpus() -> tuple[tuple[str, ...], ...]:
    """Texts to change, the same in each process: of files, of random programs, and of both after passes."""
    written: list[str] = []
    for path in sorted([*ROOT.glob("examples/*.mlir"), *ROOT.glob("test_lit/**/*.mlir")]):
        for chunk in path.read_text().split("// -----"):
            lines = [line for line in chunk.split("\n") if not line.lstrip().startswith("//")]
            if any("{" in line for line in lines) and len(chunk) <= LARGEST:
                written.append("\n".join(lines).strip() + "\n")
    made = (random_program, dense_program, narrow_program)
    drawn = [text_of(made[seed % 3](seed, size=8)) + "\n" for seed in range(60)]
    rng, prepared = random.Random(0), list[str]()
    for number in range(PREPARED):
        try:
            text = text_of(apply(parse(rng.choice(drawn)), _PREPARATIONS[number % len(_PREPARATIONS)]))
        except (DiagnosticException, ValueError):
            continue  # it is one of those that are refused
        prepared += [text + "\n"] * (len(text) <= 2 * LARGEST)
    return tuple(written), tuple(drawn), tuple(prepared)


def case_of(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(f"mutate {seed}")
    text, deep = _drawn(rng), rng.random() < 0.7
    for _ in range(8 if deep else 0):
        if _verifies(text):
            break  # it comes as far as the passes
        text = _drawn(rng)
    return Case(seed, text, random_flags(rng))


def _drawn(rng: random.Random) -> str:
    texts = rng.choice(corpus())
    return mutated(rng, rng.choice(texts), texts)


def _verifies(text: str) -> bool:
    try:
        parse(text)
    except Exception:  # the command says what it is
        return False
    return True


def random_flags(rng: random.Random) -> tuple[str, ...]:
    """Passes with options, and a target."""
    names = list(available_passes())
    if (choice := rng.random()) < 0.35:
        flags = [f"--{rng.choice(names)}" for _ in range(rng.randint(0, 4))]
    elif choice < 0.7:
        flags = [f"--{name}" for name in DEFAULT_PIPELINE if rng.random() < 0.8]
    else:
        flags = [
            rng.choice(["--default", "--unfused", "--wrap-kernels"]),
            *(f"--{rng.choice(names)}" for _ in range(rng.randint(0, 2))),
        ]
    if flags and rng.random() < 0.2:
        changed = rng.randrange(len(flags))
        flags[changed] = _with_options(rng, flags[changed])
    if rng.random() < 0.7:
        flags += ["-t", rng.choice(list(available_targets()))]
    if rng.random() < 0.08:
        text = ",".join(rng.sample(names, 3))
        at = rng.randint(0, len(text))
        flags += [
            "-p",
            text[:at]
            + rng.choice(["", "{", "{x=1}", "{max-ops=2}", ",", "(", "é", '"'])
            + text[at + rng.randint(0, 2) :],
        ]
    if rng.random() < 0.05:
        flags += ["--fuel", rng.choice(["0", "1", "5", "-1", "x"])]
    extra = [
        "--print-debuginfo",
        "--print-op-generic",
        "--remarks",
        "--allow-unregistered-dialect",
        "--print-ir-after-change",
    ]
    return (*flags, *(flag for flag in extra if rng.random() < 0.06))


def _with_options(rng: random.Random, flag: str) -> str:
    """A pass with values of its options, most of them of the option's type."""
    make = available_passes().get(flag.removeprefix("--"))
    if make is None:
        return flag
    hints = get_type_hints(class_ := make())
    names = [field.name for field in fields(class_) if field.init and field.name != "name"]
    if not names:
        return flag
    name = rng.choice(names)
    wanted = {hints[name], *get_args(hints[name])}
    words = [
        *device_names(),
        *PACKINGS,
        *ORDERS,
        "gpu",
        "fast",
        "true",
        "graph.exp",
        "fuse-row",
        "none.pdl",
        "x",
        "-",
        "",
    ]
    numbers = ["0", "1", "2", "64", "-1", "1000000000000", "99999999999999999999999"]
    value = rng.choice(numbers if int in wanted and rng.random() < 0.8 else words)
    return f"{flag}={name.rstrip('_').replace('_', '-')}={value}"


class TooLong(BaseException):
    """The command did not answer in time; no handler of exceptions takes it for an error of the input."""


def _stop(*_: object) -> None:
    raise TooLong


def fault_of(case: Case) -> str | None:
    """What is wrong with the answer."""
    output, errors = io.StringIO(), io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".mlir", encoding="utf-8") as file:
        file.write(case.text)
        file.flush()
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                status = fuse_opt([file.name, *case.flags])
        except TooLong:
            return f"more than {SECONDS:g} s: {_place_of(sys.exc_info()[1])}"
        except BaseException as error:  # whatever comes out is a fault
            return f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return _fault_in(status, errors.getvalue())


def _place_of(error: BaseException | None) -> str:
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-6:]))


def _fault_in(status: int, errors: str) -> str | None:
    if "Traceback" in errors or status not in (0, 1, 2):
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        frames = [line for line in lines if line.startswith("File ")]
        place = re.sub(r'File ".*/([\w/]+\.py)", line (\d+), in (\w+)', r"\1:\2 \3", frames[-1]) if frames else ""
        return f"status {status}: {lines[-1] if lines else ''} [{place}]"
    if status == 1 and not any(_PLACED.fullmatch(line) for line in errors.splitlines()):
        return f"a refusal that names no place: {errors.strip()[-300:]}"
    if re.search(r"error: '(?:graph|fused|gpu)\.\w+' is not valid: its verifier ends with", errors):
        return f"a verifier of ours that raises: {errors.strip()[-300:]}"
    return None


def run(seeds: Sequence[int]) -> Iterator[tuple[int, str | None]]:
    """Seeds and the reports of their faults."""
    for seed in seeds:
        case = case_of(seed)
        fault = fault_of(case)
        yield seed, None if fault is None else case.report(fault)


def _work(seeds: Sequence[int], pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for found in run(seeds):
        pipe.send(found)
    pipe.close()


def run_processes(cases: int, seed: int, processes: int, seconds: float) -> tuple[int, list[str]]:
    """
    How many cases were run, all or those of so many seconds, and the reports; a worker that hangs or dies is replaced by one
    for the seeds behind.
    """
    shares = [list(range(seed + first, seed + cases, processes)) for first in range(processes)]
    reports: list[str] = []
    done = 0
    workers = [_Worker(share) for share in shares if share]
    end = time.monotonic() + seconds
    while workers and time.monotonic() < end:
        for worker in list(workers):
            found = worker.answer()
            if found is None:
                workers.remove(worker)
                continue
            for report in found:
                done += 1
                if report is not None:
                    reports.append(report)
                    print(report, file=sys.stderr, flush=True)
    return done, reports


class _Worker:
    """A process with seeds to go through."""

    def __init__(self, seeds: list[int]) -> None:
        self.seeds = seeds
        self._start()

    def _start(self) -> None:
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.Process(target=_work, args=(self.seeds, other), daemon=True)
        self.process.start()
        other.close()
        self.heard = time.monotonic()

    def answer(self) -> list[str | None] | None:
        """What has come since; None at the end."""
        found: list[str | None] = []
        try:
            while self.pipe.poll(0.05):
                seed, report = self.pipe.recv()
                self.seeds = self.seeds[self.seeds.index(seed) + 1 :]
                self.heard = time.monotonic()
                found.append(report)
        except EOFError:
            self.process.join()
            if not self.seeds:
                return found or None
            return [*found, self._replaced(f"the process ended with status {self.process.exitcode}")]
        if self.seeds and time.monotonic() - self.heard > SILENCE:
            self.process.kill()
            self.process.join()
            found.append(self._replaced(f"no answer in {SILENCE:g} s"))
        return found

    def _replaced(self, fault: str) -> str:
        seed, self.seeds = self.seeds[0], self.seeds[1:]
        self._start()
        return case_of(seed).report(fault)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    given = parser.parse_args(argv)
    started = time.perf_counter()
    done, reports = run_processes(given.cases, given.seed, max(1, given.processes), given.seconds)
    tracebacks = sum("more than" not in report and "no answer" not in report for report in reports)
    hangs = len(reports) - tracebacks
    seconds = time.perf_counter() - started
    print(
        f"mutate_texts: {done} texts, {tracebacks} tracebacks or other faults, {hangs} hangs above {SECONDS:g} s, {seconds:.0f} s"
    )
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main())
