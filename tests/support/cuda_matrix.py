"""The emitted CUDA C on the CPU, through `cuda_shim.h`: every op, every schedule, odd sizes, views, three orders of threads.

    python tests/support/cuda_matrix.py             # a sample, as the tests run it
    python tests/support/cuda_matrix.py --all       # the whole matrix; --groups ops,schedules,views,large for parts of it
    python tests/support/cuda_matrix.py --sanitize  # the same, built with gcc's sanitizers of addresses and undefined behaviour

Schedules are taken from the table of schedule-kernels: each kernel runs by every kind that can run it, a new one too. It
prints how many kernels, schedules and cases there were, and each fault. Exit status: 1 where there are faults.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from cuda_matrix_programs import FLOATS, INTEGERS, LARGE, OFFSETS, SIZES
from cuda_matrix_units import Unit, by_all, by_some, ops, sampled_ops, schedules, views
from cuda_on_cpu import CXX, ORDERS, CudaOnCpu
from ir_testing import apply, function
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

_TOGETHER = 48
"""Functions of one compilation."""


@dataclass
class Outcome:
    """What was run, and what went wrong."""

    kernels: int = 0
    cases: int = 0
    schedules: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.schedules.items()))
        run = f"{len(ORDERS)} orders of threads, {self.cases} cases, {len(self.faults)} faults"
        return f"{self.kernels} kernels, {len(self.schedules)} schedules ({kinds}), {run}"


Group = Callable[[], Iterator[Unit]]

GROUPS: dict[str, Group] = {
    "ops": ops,
    "schedules": lambda: by_all(schedules(SIZES, (*FLOATS, *INTEGERS))),
    "views": lambda: by_all(views(SIZES, OFFSETS, ("f32", "f16", "i8", "f64"))),
    "large": lambda: by_all(LARGE.items()),
}
"""The whole matrix."""

SAMPLES: dict[str, Group] = {
    "ops": lambda: sampled_ops(1),
    "schedules": lambda: by_some(schedules((3, 9, 513), ("f32", "f16", "i64")), 6, 4),
    "views": lambda: by_some(views((9, 513), OFFSETS, ("f32", "f16")), 18, 4),
    "large": lambda: by_some(LARGE.items(), 4, 3),
}
"""Parts of the matrix for every run of the tests."""

FEW: dict[str, Group] = {
    "schedules": lambda: by_some(schedules((9,), ("bf16",)), 1, 3),
    "views": lambda: by_some(views((9,), (3, 7), ("f32",)), 1, 3),
}
"""What is quick enough for every run of the tests when it is compiled with the sanitizers."""


def run_units(units: Iterator[Unit], outcome: Outcome, sanitize: bool = False) -> None:
    """Compiles and runs units, many at a time, and adds to the outcome."""
    gc.set_threshold(200_000, 20, 100)
    while together := list(islice(units, _TOGETHER)):
        try:
            _run_together(together, outcome, sanitize)
        except Exception:  # one of them is refused: each by itself shows which
            for unit in together:
                try:
                    _run_together([unit], outcome, sanitize)
                except Exception as error:
                    outcome.faults.append(f"{unit.name}: {_first_lines(error)}")


def _run_together(units: Sequence[Unit], outcome: Outcome, sanitize: bool) -> None:
    functions: list[Operation] = []
    for number, unit in enumerate(units):
        found = function(unit.module.clone())
        found.detach()
        found.sym_name = StringAttr(f"unit_{number}")
        functions.append(found)
    converted = apply(ModuleOp(functions), "convert-fused-to-gpu")
    on_cpu = CudaOnCpu(converted, sanitize)
    outcome.kernels += on_cpu.kernels
    for number, unit in enumerate(units):
        outcome.schedules.update(unit.kinds)
        arguments = unit.arguments()
        for name, order in ORDERS.items():
            outcome.cases += unit.cases
            if sanitize:
                print(f"{_NOW} {unit.name}, {name}", file=sys.stderr, flush=True)
            try:
                unit.check(on_cpu.run(f"unit_{number}", arguments, order))
            except Exception as error:
                outcome.faults.append(f"{unit.name}, {name}: {_first_lines(error)}")


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:6])[:600]}"


_NOW = "running:"
_FAULT = re.compile(r"runtime error: .*|AddressSanitizer: [\w-]+.*")
_PLACE = re.compile(r"#\d+ \S+ in (kernel\w*)\S* ")


def sanitizer_environment() -> dict[str, str]:
    """Of a process that can load what is built with SANITIZE, and goes on after a fault."""
    assert CXX is not None
    libraries: list[str] = []
    for name in ("libasan.so", "libubsan.so", "libstdc++.so"):
        asked = subprocess.run([CXX, f"-print-file-name={name}"], capture_output=True, text=True)
        libraries.append(asked.stdout.strip())
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:halt_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def sanitized_faults(arguments: Sequence[str]) -> tuple[int, str, list[str]]:
    """
    Runs this script under the sanitizers: its exit status, what it printed, and each fault that they reported, once with
    the first unit and kernel that showed it.
    """
    command = [sys.executable, __file__, "--inside", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=sanitizer_environment())
    faults: dict[str, str] = {}
    unit, fault = "", ""
    for line in done.stderr.splitlines():
        if line.startswith(_NOW):
            unit, fault = line.removeprefix(_NOW).strip(), ""
        elif match := _FAULT.search(line):
            fault = re.sub(r"0x[0-9a-f]+.*", "", match[0]).strip()
        elif fault and (match := _PLACE.search(line)):
            faults.setdefault(fault, f"{unit}, {match[1]}: {fault}")
            fault = ""
    if done.returncode and not faults and not done.stdout:
        faults[""] = done.stderr[-2000:]
    return done.returncode, done.stdout, list(faults.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--groups", help=f"of {', '.join(GROUPS)}, with commas between them")
    parser.add_argument("--few", action="store_true", help="less than the sample")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sanitize:
        given = [argument for argument in sys.argv[1:] if argument != "--sanitize"]
        status, output, faults = sanitized_faults(given)
        print(output, end="")
        for fault in faults:
            print(f"sanitizer: {fault}")
        print(f"sanitizers: {len(faults)} kinds of faults")
        return 1 if status or faults else 0
    os.environ.pop("LD_PRELOAD", None)  # the compiler needs no sanitizer
    whole, groups = Outcome(), GROUPS if options.all else FEW if options.few else SAMPLES
    for group in options.groups.split(",") if options.groups else groups:
        started, outcome = time.process_time(), Outcome()
        run_units(groups[group](), outcome, options.inside)
        print(f"{group}: {outcome}, {time.process_time() - started:.1f} s", flush=True)
        for fault in outcome.faults:
            print(f"  {fault}")
        whole.kernels += outcome.kernels
        whole.cases += outcome.cases
        whole.schedules += outcome.schedules
        whole.faults += outcome.faults
    print(f"cuda layer B (CUDA C on the CPU): {whole}")
    return 1 if whole.faults else 0


if __name__ == "__main__":
    sys.exit(main())
