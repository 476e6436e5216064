"""Random programs of large and odd extents: right, the same bits for every number of threads, and no byte beside an array.

    python tests/support/large_fuzz.py --cases 500 --seed 0 [--passes]

A case is a program of large_programs.py, by the default pipeline for all sizes, called at several draws of its extents: tasks of
several threads, panels, parts of rows and tables are of tensors that others of our fuzzers are too small for. A call that is
refused (an extreme value of no elements) is left out. With `--passes` a case is compiled by a random sequence of passes
instead, half of which rewrite what was planned: bits on the reference stay, and arguments that are not donated.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Sequence

import numpy as np
from fuzz import random_sequence
from graph_op_table import Array
from ir_testing import apply, assert_same_bits, evaluate, parse, text_of
from large_programs import calls, large_program
from laws import Subject, called_fault
from narrow_floats import decode
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.storage import DONATED
from fuse_opt.lowering.errors import EvaluationError
from fuse_opt.tools.reduce.search import isolated, reduce_failure

SECONDS = 600.0
"""After which a case counts as one that hangs."""
THREADS = (1, 2, 3, 8)


def large_fault(text: str, seed: int) -> str:
    """What is wrong with a compiled program; the kind comes first, as numbers change when the program does."""
    program = fuse_opt.compile(text, "cpu")
    for arguments in calls(text, seed):
        try:
            values = evaluate(parse(text), arguments)
            found = by_threads(lambda given=arguments: program(*(a.copy() for a in given)), THREADS)
        except (EvaluationError, IndexError, fuse_opt.InputError):
            continue
        single, *others = [[each] if len(values) == 1 else list(each) for each in found]
        if any(_other_bits(single, other) for other in others):
            return "threads: other bits"
        subject = Subject(text, arguments, [_near(a, b) for a, b in zip(single, values, strict=True)])
        if fault := called_fault(program, subject):
            return f"{fault.partition(' differs: ')[0]}: {fault}"
    return ""


def passes_fault(text: str, passes: Sequence[str], seed: int) -> str:
    """The same of one that is compiled by a sequence of passes, which is right on the reference, too."""
    program, module = fuse_opt.compile(text, "cpu", list(passes)), apply(parse(text), list(passes))
    for arguments in calls(text, seed)[:2]:
        try:
            values = evaluate(parse(text), arguments)
            assert_same_bits(evaluate(module, arguments), values)
        except (EvaluationError, IndexError):
            continue
        except AssertionError as error:
            return f"other bits on the reference: {error}"
        given = [array.copy() for array in arguments]
        found = program(*given)
        if DONATED not in text and any(a.tobytes() != b.tobytes() for a, b in zip(given, arguments, strict=True)):
            return "an argument is written to"
        single = [found] if len(values) == 1 else list(found)
        subject = Subject(text, arguments, [_near(a, b) for a, b in zip(single, values, strict=True)])
        if fault := called_fault(program, subject):
            return f"{fault.partition(' differs: ')[0]}: {fault}"
    return ""


def _other_bits(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Every NaN is every other one."""
    pairs = [(decode(a), decode(b)) for a, b in zip(one, other, strict=True) if a.tobytes() != b.tobytes()]
    return not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _near(found: Array, wanted: Array) -> Array:
    """What is wanted, but what was found where it is as near as sums of terms of any sign are, by the largest element."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape) or decode(wanted).dtype.kind != "f":
        return wanted
    a, b = (decode(each).astype(np.float64) for each in (found, wanted))
    largest = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    near = np.array(wanted)  # a copy, of no axes, too
    np.copyto(near, found, where=np.isclose(a, b, 0, 1e-3 * largest, equal_nan=True))
    return near


def check_case(seed: int, with_passes: bool = False) -> str:
    """A report of what is wrong with the case of a seed, reduced; empty where nothing is."""
    text, passes = text_of(large_program(seed)), list[str]()
    if with_passes:
        passes += [name for name in random_sequence(random.Random(f"late {seed}")) if name != "gpu-attach-device"]

    def fault_of(text: str, passes: Sequence[str]) -> str:
        return isolated(lambda: _kind(text, passes if with_passes else None, seed), SECONDS) or ""

    def kind(text: str, passes: Sequence[str]) -> str | None:
        return fault_of(text, passes).partition(": ")[0] or None

    if not (fault := fault_of(text, passes)):
        return ""
    reduced = reduce_failure(text, passes, kind)
    text, passes = (text, passes) if reduced is None else (reduced.text, list(reduced.passes))
    return f'seed {seed}: {fault[:600]}\n// fuse-opt -p "{",".join(passes)}"\n{text}'


def _kind(text: str, passes: Sequence[str] | None, seed: int) -> str:
    try:
        with np.errstate(all="ignore"):
            return large_fault(text, seed) if passes is None else passes_fault(text, passes, seed)
    except Exception as error:  # a fault is reported and reduced, whatever it is
        return f"{type(error).__name__}: {traceback.format_exc()[-400:]}"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Random programs of large and odd extents, on several numbers of threads."
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", action="store_true", help="compiled by random sequences of passes")
    options = parser.parse_args(given)
    started, faults = time.perf_counter(), 0
    for seed in range(options.seed, options.seed + options.cases):
        if report := check_case(seed, options.passes):
            faults += 1
            print(report, flush=True)
    print(f"large fuzz: {options.cases} cases, {faults} faults, {time.perf_counter() - started:.1f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
