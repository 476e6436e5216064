"""Random ONNX graphs, judged by onnxruntime and ONNX's reference node by node; every fault reduced, with its seed.

    python tests/support/onnx_fuzz.py --cases 2000 --seed 0 [--target reference] [--length 6] [--refusals]

Values, extents, element types, arguments after the call, that a second call gives the same in other memory, with one thread and
two, and, where extents have names, a call with others. A refusal (UnsupportedError) is counted by its text, which
`--refusals` prints; any other exception is a fault. So is a value that neither implementation gives; where the two differ
and ours is one of them, that is counted, too.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import reduction
from onnx_makers import MAKERS as PLAIN
from onnx_programs import Array, Builder, Program, is_float
from onnx_window_makers import MAKERS as WINDOWS

from fuse_opt.frontends.onnx import UnsupportedError, load
from fuse_opt.runtime.host import thread_pool

TOLERANCES = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 2e-4, "float64": 1e-7}


def random_graph(seed: int, length: int = 6) -> Program:
    builder = Builder(seed)
    return builder.program(seed, (*PLAIN, *WINDOWS), builder.rng.randint(1, length))


def value_fault(name: str, found: Array, wanted: Array, rough: bool = False) -> str | None:
    """How an array differs; relative to its largest element, as sums of terms of any sign are not exact by element."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{name}: {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    if not is_float(wanted):
        far = np.abs(found.astype(np.int64) - wanted.astype(np.int64)) if rough else found != wanted
        return None if not (far > rough).any() else f"{name}: {_short(found)}, expected {_short(wanted)}"
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    tolerance = TOLERANCES[wanted.dtype.name]
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        return None
    return f"{name}: by {np.nanmax(np.abs(a - b)):.3g}, {_short(found)}, expected {_short(wanted)}"


def _short(array: Array) -> str:
    return str(array.tolist())[:300]


def call_fault(program: Program, model: Any, target: str, again: bool) -> str | None:
    """What is wrong with one call, or with a second one."""
    given = program.inputs()
    arrays = [array.copy() for array in given.values()]
    results = model(*arrays, target=target)
    for name, found in zip(program.outputs, results, strict=True):
        if fault := value_fault(name, found, program.expected[name], name in program.rough):
            return fault
    for (name, before), after in zip(given.items(), arrays, strict=True):
        if before.tobytes() != after.tobytes():
            return f"argument {name}: changed by the call"
    if not again:
        return None
    kept = [found.copy() for found in results]
    second = model(*arrays, target=target)
    for name, found, other, before in zip(program.outputs, results, second, kept, strict=True):
        if other.tobytes() != before.tobytes() or found.tobytes() != before.tobytes():
            return f"{name}: another value after a second call"
        if any(np.shares_memory(found, array) for array in (*second, *arrays) if array.size and found.size):
            return f"{name}: shares memory with another result or an argument"
    return None


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
            f"{self.refused.total()} refused, {self.disputed.total()} disputed, {len(self.reports)} faults"
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
    parser = argparse.ArgumentParser(description="Random ONNX graphs, judged by onnxruntime and ONNX's reference.")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=6, help="nodes of a graph, at most")
    parser.add_argument("--target", choices=("cpu", "reference"), default="cpu")
    parser.add_argument("--refusals", action="store_true", help="print what is refused, and how often")
    options = parser.parse_args(given)
    started = time.perf_counter()
    summary = check_cases(range(options.seed, options.seed + options.cases), options.target, options.length)
    if options.refusals:
        for text, count in summary.refused.most_common():
            print(f"  {count} x {text}")
        print(f"  disputed: {dict(summary.disputed)}")
    print(f"{summary.line()}, {time.perf_counter() - started:.1f} s")
    return 1 if summary.reports else 0


if __name__ == "__main__":
    sys.exit(main())
