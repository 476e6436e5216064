"""Random programs through random passes: every law checked, every fault reduced and printed with its seed.

    python tests/support/fuzz.py --cases 5000 --processes 2

Case N of seed S is the program of `program_of(S + N)`. It goes through a random sequence of passes (laws.pass_fault), be it
through all decisions about kernels, memory and launches first and then through rewrites of what was decided about; its ops are
put in another order and fused again (laws.grouping_fault); with `--target c` every tenth case is compiled and compared, too,
and every fifth as its own passes leave it. In every fourth case values lie in random orders of memory. With `--backends` cases
are those of backend_fuzz.py, with `--sizes` those of sized_fuzz.py.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import repeat

from backend_fuzz import READS_ZEROS, backends_fault, switched
from ir_testing import graph_ops, parse, text_of
from laws import DECISIONS, FUSIONS, OPTIMIZATIONS, REWRITES, Subject, compiled_fault, grouping_fault, pass_fault
from program_generator import dense_program, narrow_program, random_program
from random_orders import with_orders
from sized_fuzz import SizedWork, sized_fault
from sized_programs import sized_program
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.reduce.search import isolated, reduce_failure

PREPARATIONS = ((), (), ("canonicalize", "cse", "dce"), ("decompose",), ("decompose", "canonicalize", "cse"))
"""What a program went through before its ops are put in another order."""

FUSION_OPTIONS = ("", "", "", "", "{max-ops=3}", "{max-operands=4}", "{max-results=1}")

SWITCHES = (
    'attach-backends{backends="-fuse"}',
    "attach-backends{backends=numpy}",
    "attach-backends{backends=none,numpy}",
    "select-implementation",
    "select-implementation{prefer=numpy}",
    "select-implementation{prefer=blas}",
)
"""What changes who may run ops, and who does."""

COMPILED = 10
"""One of so many cases is compiled by the default pipeline."""
NATIVE = 5
"""One of so many cases is compiled as its own passes leave it."""

ORDERED = 4
"""In one of so many cases values lie in random orders and panels."""

BACKENDS = "backends"
"""In place of a target: cases are switches of backends."""
SIZES = "sizes"
"""In place of a target: programs are over symbols."""

SHARE = 50
"""Cases that a process takes at once."""

SECONDS = 120.0
"""After which a compiled program counts as one that hangs."""


@dataclass(frozen=True)
class Mismatch:
    """A law that does not hold."""

    seed: int
    law: str
    kind: str
    text: str
    passes: tuple[str, ...]

    def fails(self, text: str, passes: Sequence[str]) -> str | None:
        """How a smaller program breaks the law; not at all where it has no values on the reference, or reads out of range."""
        try:
            return LAWS[self.law](text, passes, self.seed) or None
        except (EvaluationError, IndexError):
            return None

    def report(self) -> str:
        """The smallest program and pipeline that break the law in the same way."""
        found = reduce_failure(self.text, self.passes, self.fails)
        head = f"seed {self.seed}, {self.law}: {self.kind.strip()}"
        if found is None:  # pragma: no cover - not deterministic
            return f'{head}; not again\n// fuse-opt -p "{",".join(self.passes)}"\n{self.text}'
        return f'{head}\n// fuse-opt -p "{",".join(found.passes)}"\n{found.text}'


@dataclass
class Summary:
    """What was run, and what was found."""

    cases: int = 0
    ops: int = 0
    compiled: int = 0
    work: SizedWork = field(default_factory=SizedWork)
    mismatches: Counter[str] = field(default_factory=Counter[str])
    reports: list[str] = field(default_factory=list[str])
    left: int = 0
    """Cases that time was up for."""
    seconds: float = 0.0

    def add(self, other: Summary) -> None:
        self.cases += other.cases
        self.left += other.left
        self.ops += other.ops
        self.compiled += other.compiled
        self.work.passes += other.work.passes
        self.work.kernels += other.work.kernels
        self.work.sized += other.work.sized
        self.mismatches += other.mismatches
        self.reports += other.reports

    def line(self) -> str:
        compiled = f", {self.compiled} compiled" if self.compiled else ""
        compiled += f", {self.work.sized} for all sizes" if self.work.sized else ""
        left = f", {self.left} left at the limit" if self.left else ""
        kinds = ", ".join(f"{law} {count}" for law, count in sorted(self.mismatches.items()))
        return (
            f"fuzz: {self.cases} cases, {self.ops} ops, {self.work.passes} passes run, {self.work.kernels} kernels made"
            f"{compiled}, {self.mismatches.total()} mismatches{f' ({kinds})' if kinds else ''}{left}, {self.seconds:.1f} s"
        )


def _values_law(text: str, passes: Sequence[str], seed: int) -> str:
    return pass_fault(Subject.of(text, seed), passes)


def _grouping_law(text: str, passes: Sequence[str], seed: int) -> str:
    return grouping_fault(text, passes, range(seed, seed + 6))


def _compiled_law(text: str, passes: Sequence[str], seed: int) -> str:
    """The kind alone: the numbers change as the program does."""
    subject = Subject.of(text, seed)
    return (isolated(lambda: compiled_fault(subject), SECONDS) or "").partition(":")[0]


def _native_law(text: str, passes: Sequence[str], seed: int) -> str:
    """What passes in any order leave, some of them after memory was planned, is compiled as it is."""
    subject = Subject.of(text, seed | 1 if any(name in text for name in READS_ZEROS) else seed)
    chosen = [name for name in passes if name != "gpu-attach-device"]
    return (isolated(lambda: compiled_fault(subject, chosen), SECONDS) or "").partition(":")[0]


LAWS: dict[str, Callable[[str, Sequence[str], int], str]] = {
    "backends": backends_fault,
    "sizes": sized_fault,
    "passes": _values_law,
    "grouping": _grouping_law,
    "c": _compiled_law,
    "native": _native_law,
}


def random_sequence(rng: random.Random) -> tuple[str, ...]:
    """
    Passes with repeats: any of them, the default pipeline with some left out, doubled or exchanged, or every decision there
    is and then rewrites of what was decided about; with changes of who may run opaque ops anywhere.
    """
    if rng.random() < 0.5:
        names = decided_sequence(rng)
    elif rng.random() < 0.5:
        names = rng.choices(OPTIMIZATIONS, k=rng.randint(2, 10))
    else:
        names = [name for name in DEFAULT_PIPELINE for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        for _ in range(rng.randint(0, 3)):
            names.insert(rng.randint(0, len(names)), rng.choice(OPTIMIZATIONS))
    names = [fusion(rng, name) if name in FUSIONS else name for name in names]
    for switch in rng.sample(SWITCHES, rng.choice([0, 0, 1, 2, 3])):
        names.insert(rng.randint(0, len(names)), switch)
    return tuple(names)


def decided_sequence(rng: random.Random) -> list[str]:
    """
    Kernels, decisions about them, and passes of all kinds in any order, first of all those that rewrite what is no kernel;
    now and then every pass there is.
    """
    names = rng.choices(FUSIONS, k=rng.randint(0, 2))
    if not names or rng.random() < 0.3:  # else some ops stay bare
        names.append("wrap-kernels")
    decisions = [name for name in DECISIONS if rng.random() < 0.9]
    if rng.random() < 0.3:
        rng.shuffle(decisions)
    others = [name for name in REWRITES if name not in FUSIONS]
    after = rng.choices(others, k=rng.randint(1, 3)) + rng.sample(OPTIMIZATIONS, rng.randint(0, 4))
    if rng.random() < 0.1:
        rng.shuffle(after := list(OPTIMIZATIONS))
    return [*names, *decisions, *after]


def fusion(rng: random.Random, name: str) -> str:
    """A fusion pass, with a limit now and then that makes it choose."""
    return name + rng.choice(FUSION_OPTIONS)


def program_of(seed: int) -> ModuleOp:
    """The program of a case."""
    if seed % 6 in (1, 4):
        return narrow_program(seed)
    return dense_program(seed) if seed % 3 == 2 else random_program(seed)


def check_case(seed: int, target: str, summary: Summary) -> list[Mismatch]:
    """The laws that a case breaks."""
    rng = random.Random(f"fuzz {seed}")
    if target == SIZES:
        return _check_sizes(seed, rng, summary)
    module = program_of(seed)
    if seed % ORDERED == 3:
        with_orders(module, seed)
    text = text_of(module)
    subject = Subject.of(text, seed)
    summary.cases += 1
    summary.ops += len(graph_ops(parse(text)))
    passes = random_sequence(rng)
    if target == BACKENDS:
        summary.compiled += 1
        passes = switched(rng, passes)
        fault = backends_fault(text, passes, seed, summary.work)
        return [Mismatch(seed, "backends", fault, text, passes)] if fault else []
    found = [Mismatch(seed, "passes", pass_fault(subject, passes, summary.work), text, passes)]
    fusions = (*rng.choice(PREPARATIONS), *(fusion(rng, name) for name in rng.choices(FUSIONS, k=rng.randint(1, 3))))
    found.append(Mismatch(seed, "grouping", grouping_fault(text, fusions, [seed]), text, fusions))
    if target == "c" and seed % COMPILED == 1:
        summary.compiled += 1
        found.append(Mismatch(seed, "c", _compiled_law(text, (), seed), text, ()))
    if target == "c" and seed % NATIVE == 2:
        summary.compiled += 1
        found.append(Mismatch(seed, "native", _native_law(text, passes, seed), text, passes))
    return [mismatch for mismatch in found if mismatch.kind]


def _check_sizes(seed: int, rng: random.Random, summary: Summary) -> list[Mismatch]:
    text = text_of(sized_program(seed))
    passes = random_sequence(rng)
    summary.cases += 1
    summary.ops += len(graph_ops(parse(text)))
    summary.compiled += 1
    fault = sized_fault(text, passes, seed, summary.work)
    return [Mismatch(seed, "sizes", fault, text, passes)] if fault else []


def run(seeds: Sequence[int], target: str = "reference", reported: int = 1, until: float = math.inf) -> Summary:
    """A case for each seed, none begun after that time; of each law the first `reported` mismatches are reduced."""
    summary = Summary()
    for number, seed in enumerate(seeds):
        if time.time() > until:
            summary.left = len(seeds) - number
            break
        for mismatch in check_case(seed, target, summary):
            summary.mismatches[mismatch.law] += 1
            if summary.mismatches[mismatch.law] <= reported:
                summary.reports.append(mismatch.report())
            else:
                summary.reports.append(f"seed {seed}, {mismatch.law}: {mismatch.kind} (not reduced)")
    return summary


def run_processes(
    cases: int, seed: int, processes: int, target: str, reported: int, limit: float = math.inf
) -> Summary:
    """As `run`, with the cases shared out; reports go to stderr as they come, and after `limit` seconds no case is begun."""
    started, summary, until = time.perf_counter(), Summary(), time.time() + limit
    end = seed + cases
    parts = [range(first, min(first + SHARE, end)) for first in range(seed, end, SHARE)]
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        results = (map if pool is None else pool.map)(run, parts, repeat(target), repeat(reported), repeat(until))
        for part in results:
            for report in part.reports:
                print(report, file=sys.stderr, flush=True)
            summary.add(part)
    summary.seconds = time.perf_counter() - started
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", type=int, default=1000)
    add("--seed", type=int, default=0, help="of the first case")
    add("--processes", type=int, default=min(4, os.cpu_count() or 1), help="processes that share the work")
    add("--target", choices=("reference", "c"), default="reference", help="c: compile some of the cases, too")
    add("--backends", action="store_true", help="random switches of backends; every case is compiled")
    add(
        "--sizes",
        action="store_true",
        help="programs over symbols, at five sets of values each; every case is compiled",
    )
    add("--seconds", type=float, default=math.inf, help="begin no case after so many; the line says how many are left")
    add("--reduce", type=int, default=1, metavar="N", help=f"of {SHARE} cases reduce N mismatches of each law")
    given = parser.parse_args(argv)
    processes = max(1, min(given.processes, given.cases))
    target = BACKENDS if given.backends else SIZES if given.sizes else given.target
    summary = run_processes(given.cases, given.seed, processes, target, given.reduce, given.seconds)
    print(summary.line())
    return 1 if summary.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
