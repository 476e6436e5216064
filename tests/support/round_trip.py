"""Prints random programs of one op, reads them back, and says how many came back as they were.

    python tests/support/round_trip.py --cases 10000 --seed 0

The ops are of all records, on operands as in the rows of the op table or of other extents, `?` among them. The parser, the
printers and the verifier are those of `fuse-opt`; with `--processes` two processes of it read and print all programs.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from io import StringIO

from op_samples import single_ops
from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.utils.target import Target

from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.tools.commands.driver import Options, make_target
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import OpVerifyError, verify

PER_MODULE = 100
"""Functions of a module that goes through the library at once; where it differs, each of them alone."""

SEPARATOR = "// -----\n"


@dataclass
class Summary:
    """What became of the programs."""

    programs: int = 0
    ops: set[str] = field(default_factory=set[str])
    dynamic: int = 0
    characters: int = 0
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def line(self) -> str:
        return (
            f"round trip: {self.programs} programs of {len(self.ops)} ops, {self.dynamic} with unknown extents, "
            f"{self.characters} characters, {len(self.failures)} failures, {self.seconds:.1f} s"
        )


def function_of(op: GraphOp, name: str) -> FuncOp:
    """A function that computes the op of its arguments."""
    function = FuncOp(name, ([value.type for value in op.operands], [value.type for value in op.results]))
    block = function.body.block
    op.operands = block.args
    block.add_ops([op, ReturnOp(*op.results)])
    return function


class RoundTrip:
    """Text to text, as `fuse-opt` without passes does it."""

    def __init__(self) -> None:
        self.context: Context = make_context()
        self.pretty: Target = make_target(Options())
        self.generic: Target = make_target(Options(generic=True))

    def text(self, module: ModuleOp, target: Target) -> str:
        output = StringIO()
        target.emit(self.context, module, output)
        return output.getvalue()

    def parsed(self, text: str) -> ModuleOp:
        module = parse_module(text, "<round trip>", self.context)
        verify(module)
        return module

    def fault(self, text: str) -> str:
        """Why the text is not what comes back of it, by way of the generic form too; empty when it is."""
        try:
            module = self.parsed(text)
            if (once := self.text(module, self.pretty)) != text:
                return f"printed as\n{once}"
            generic = self.text(module, self.generic)
            again = self.parsed(generic)
            if (other := self.text(again, self.generic)) != generic:
                return f"its generic form\n{generic}is printed as\n{other}"
            if (other := self.text(again, self.pretty)) != text:
                return f"its generic form\n{generic}is in the other form\n{other}"
        except (InputError, OpVerifyError) as error:
            return f"refused: {error}"
        return ""


def run(turns: range, seed: int) -> tuple[Summary, str]:
    """The summary of a program for each turn, and the text of modules of all of them."""
    summary, trip, started = Summary(), RoundTrip(), time.perf_counter()
    functions: list[Operation] = []
    texts: list[str] = []
    for op in single_ops(random.Random(f"{seed} {turns}"), turns):
        summary.programs += 1
        summary.ops.add(op.name)
        summary.dynamic += any(DYNAMIC_INDEX in shape(value) for value in (*op.operands, *op.results))
        functions.append(function_of(op, f"p{summary.programs}"))
        if len(functions) == PER_MODULE or summary.programs == len(turns):
            texts.append(trip.text(ModuleOp(functions), trip.pretty))
            summary.failures += _faults(trip, texts[-1], functions)
            functions = []
    summary.characters = sum(map(len, texts))
    summary.seconds = time.perf_counter() - started
    return summary, SEPARATOR.join(texts)


def _faults(trip: RoundTrip, text: str, functions: Sequence[Operation]) -> list[str]:
    """The programs of a module that do not come back."""
    if not trip.fault(text):
        return []
    found: list[str] = []
    for function in functions:
        function.detach()
        alone = trip.text(ModuleOp([function]), trip.pretty)
        if fault := trip.fault(alone):
            found.append(f"{alone}{fault}")
    return found or [f"a module of several functions: {trip.fault(text)}"]


def processes_fault(text: str) -> str:
    """Why `fuse-opt | fuse-opt`, the first printing the generic form, does not give the text back; empty when it does."""
    command = [sys.executable, "-m", "fuse_opt.tools.commands.fuse_opt_main", "--split-input-file"]
    first = subprocess.run([*command, "--print-op-generic"], input=text, capture_output=True, text=True)
    second = subprocess.run(command, input=first.stdout, capture_output=True, text=True)
    if first.returncode or second.returncode:
        return first.stderr + second.stderr
    return "" if second.stdout == text else "fuse-opt | fuse-opt printed another text"


def run_jobs(cases: int, seed: int, jobs: int) -> tuple[Summary, str]:
    """As `run`, in so many processes, each with a part of the programs."""
    started = time.perf_counter()
    turns = [range(job, cases, jobs) for job in range(jobs)]
    with ProcessPoolExecutor(jobs) as pool:
        parts = list(pool.map(run, turns, [seed] * jobs))
    summary = Summary(seconds=time.perf_counter() - started)
    for part, _ in parts:
        summary.programs += part.programs
        summary.ops |= part.ops
        summary.dynamic += part.dynamic
        summary.characters += part.characters
        summary.failures += part.failures
    return summary, SEPARATOR.join(text for _, text in parts)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes that share the work")
    parser.add_argument("--processes", action="store_true", help="all programs through fuse-opt | fuse-opt besides")
    given = parser.parse_args(argv)
    jobs = max(1, min(given.jobs, given.cases))
    summary, text = run_jobs(given.cases, given.seed, jobs) if jobs > 1 else run(range(given.cases), given.seed)
    line = summary.line()
    faults = summary.failures
    if given.processes:
        difference = processes_fault(text)
        faults = [*faults, *([difference] if difference else [])]
        line += f"; fuse-opt | fuse-opt: {'another text' if difference else 'the same text'}"
    for fault in faults[:10]:
        print(fault, file=sys.stderr)
    print(line)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
