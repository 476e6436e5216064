"""Random programs on the CUDA device that is there, each called three times, against the reference.

    python tests/support/cuda_fuzz.py --cases 500 --processes 8 [--seed 0] [--seconds 100]

Case N of seed S is the program of `fuzz.program_of(S + N)`, by the default pipeline. Without a device the stand-in can be
asked, as the tests do it. Exit status 1 where a case differs; each of them is named with its seed and its text.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from cuda_running import listed
from fuzz import program_of
from ir_testing import parse, text_of
from laws import Subject, roughly_differs
from moved_values import open_elements

import fuse_opt
from fuse_opt.lowering.errors import EvaluationError


def fault(seed: int) -> str:
    """What differs on the device; empty where nothing does, or the program has no values."""
    text = text_of(program_of(seed))
    try:
        subject = Subject.of(text, seed)
    except EvaluationError:
        return ""
    try:
        program = fuse_opt.compile(text, target="cuda")
        for turn in range(3):
            found = listed(program(*(array.copy() for array in subject.arguments)))
            if differs := roughly_differs(found, subject.values):
                is_open = open_elements(parse(text), subject.arguments, subject.values)
                differs = roughly_differs(found, subject.values, is_open)
            if differs:
                return f"call {turn}: {differs}\n{text}"
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{text}"
    return ""


def faults(seeds: Sequence[int], ends: float) -> tuple[int, dict[int, str]]:
    """The cases there was time for, and what they say by their seed."""
    count, found = 0, dict[int, str]()
    for seed in seeds:
        if time.time() > ends:
            break
        count += 1
        if said := fault(seed):
            found[seed] = said
    return count, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    given = parser.parse_args()
    ends = time.time() + given.seconds
    parts = [range(given.seed + k, given.seed + given.cases, given.processes) for k in range(given.processes)]
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        results = list(pool.map(faults, parts, repeat(ends)))
    wrong = {seed: text for _, found in results for seed, text in found.items()}
    for seed, text in sorted(wrong.items())[:20]:
        print(f"seed {seed}: {text}\n", flush=True)
    print(f"{sum(count for count, _ in results)} programs, {len(wrong)} differ: {sorted(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
