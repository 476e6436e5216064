"""Random ONNX graphs, judged by onnxruntime and ONNX's reference node by node; every fault reduced, with its seed.

    python tests/support/onnx_fuzz.py --cases 2000 --seed 0 [--target reference] [--length 6] [--refusals]

Values, extents, element types, arguments after the call, that a second call gives the same in other memory, with one thread and
two, and, where extents have names, a call with others. A refusal (UnsupportedError) is counted by its text, which
`--refusals` prints; any other exception is a fault. So is a value that neither implementation gives; where the two differ
and ours is one of them, that is counted, too.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import reduction
from fuzzing import memory_fault, run, value_fault
from onnx_makers import MAKERS
from onnx_programs import Builder, Program

from fuse_opt.frontends.onnx import UnsupportedError, load
from fuse_opt.runtime.host import thread_pool

TOLERANCES = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 2e-4, "float64": 1e-7}


def random_graph(seed: int, length: int = 6) -> Program:
    builder = Builder(seed)
    return builder.program(seed, MAKERS, builder.rng.randint(1, length))


def call_fault(program: Program, model: Any, target: str, again: bool) -> str | None:
    """What is wrong with one call, or with a second one."""
    given = program.inputs()
    arrays = [array.copy() for array in given.values()]
    results = model(*arrays, target=target)
    for name, found in zip(program.outputs, results, strict=True):
        wanted = program.expected[name]
        tolerance = TOLERANCES.get(wanted.dtype.name, 0.0)
        if fault := value_fault(name, found, wanted, tolerance, name in program.rough):
            return fault
    if not again:
        return None
    named = {f"argument {name}": array for name, array in given.items()}
    given_again = dict(zip(program.outputs, results, strict=True))
    return memory_fault(lambda arrays: model(*arrays, target=target), named, arrays, given_again)


def fault(program: Program, target: str) -> str | None:
    """What is wrong with a graph; raises UnsupportedError where it is refused."""
    try:
        model = load(program.model(), numerics="finite" if program.seed % 2 else "strict", strict=True)
        thread_pool.set_num_threads(1 + program.seed % 2)
        if (found := call_fault(program, model, target, again=True)) or not program.dims:
            return found
        named = sorted({n for name in program.inputs() for n in program.dims.get(name, ()) if isinstance(n, str)})
        rng = np.random.default_rng(program.seed)
        other = program.again({name: int(rng.integers(1, 12)) for name in named}, rng)
        found = None if other is None else call_fault(other, model, target, again=False)
        return None if found is None else f"at other extents, {found}"
    except UnsupportedError:
        raise
    except Exception as error:
        return f"exception {type(error).__name__}: {' '.join(str(error).split())[:600]}"


def reduced(program: Program, text: str, target: str) -> tuple[Program, str]:
    """A smaller graph with a fault of the same kind."""
    return reduction.reduced(program, text, lambda smaller: fault(smaller, target))


def _is_disputed(program: Program, target: str) -> bool:
    """Whether the other implementation gives the values that ours does."""
    opinion = program.second_opinion()
    try:
        return opinion is not None and fault(replace(opinion, dims={}), target) is None
    except UnsupportedError:
        return False


@dataclass
class Summary:
    """What was run, and what was found."""

    cases: int = 0
    nodes: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    disputed: Counter[str] = field(default_factory=Counter[str])
    reports: list[str] = field(default_factory=list[str])

    def line(self) -> str:
        return (
            f"onnx fuzz: {self.cases} cases, {self.nodes.total()} nodes of {len(self.nodes)} operators, "
            f"{self.refused.total()} refused, disputed {dict(self.disputed)}, {len(self.reports)} faults"
        )


def check_cases(seeds: Sequence[int], target: str = "cpu", length: int = 6) -> Summary:
    summary, threads = Summary(), thread_pool.num_threads()
    for seed in seeds:
        program = random_graph(seed, length)
        summary.cases += 1
        summary.nodes.update(node.op_type for node in program.needed())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                text = fault(program, target)
            except UnsupportedError as error:
                summary.refused[re.sub(r"'[^']*'|\d+", "_", str(error))[:150]] += 1
                continue
            if text is None:
                continue
            program, text = reduced(program, text, target)
            if _is_disputed(program, target):
                summary.disputed[program.needed()[0].op_type] += 1
                continue
        summary.reports.append(f"seed {seed}: {text[:700]}\n{program.shown()}")
        print(summary.reports[-1], flush=True)
    thread_pool.set_num_threads(threads)
    return summary


def main(given: Sequence[str] | None = None) -> int:
    return run("Random ONNX graphs, judged by onnxruntime and ONNX's reference.", check_cases, given)


if __name__ == "__main__":
    sys.exit(main())
