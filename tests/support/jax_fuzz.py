"""Random functions of jax, lowered to StableHLO, read and compiled, judged by jax itself; every fault reduced, with its seed.

    python tests/support/jax_fuzz.py --cases 2000 --seed 0 [--target reference] [--length 6] [--refusals]

Values, extents, element types, arguments after the call, that a second call gives the same in other memory, with one thread and
two; of functions, their gradients, and both mapped over a batch. A refusal (StableHLOError) is counted by its text, which
`--refusals` prints; any other exception is a fault.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reduction
from fuzzing import memory_fault, run, value_fault
from jax_functions import Array, Builder, Program, is_float, jax
from jax_makers import MAKERS

import fuse_opt
from fuse_opt.frontends.stablehlo import StableHLOError, load
from fuse_opt.runtime.host import thread_pool

TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 5e-4, "float64": 1e-8}


def random_function(seed: int, length: int = 6) -> Program:
    builder = Builder(seed)
    return builder.program(seed, MAKERS, builder.rng.randint(1, length))


def fault(program: Program, target: str) -> str | None:
    """What is wrong with a function; raises StableHLOError where it is refused."""
    function, arguments = program.function()
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arguments))]
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    narrow = [str(v.dtype) for v in program.values.values() if is_float(v)]
    tolerance = max((TOLERANCES[name] for name in narrow), default=TOLERANCES["float32"])
    try:
        compiled = fuse_opt.compile(load(lowered), target)
        thread_pool.set_num_threads(1 + program.seed % 2)
        return calls_fault(compiled, arguments, wanted, tolerance)
    except StableHLOError:
        raise
    except Exception as error:
        return f"exception {type(error).__name__}: {' '.join(str(error).split())[:600]}"


def calls_fault(compiled: Any, arguments: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> str | None:
    given = [np.array(array) for array in arguments]
    results = {f"result {k}": found for k, found in enumerate(_tuple(compiled(*given)))}
    for (name, found), expected in zip(results.items(), wanted, strict=True):
        if fault := value_fault(name, found, expected, tolerance):
            return fault
    named = {f"argument {k}": np.asarray(array) for k, array in enumerate(arguments)}
    return memory_fault(lambda arrays: _tuple(compiled(*arrays)), named, given, results)


def _tuple(results: Any) -> tuple[Array, ...]:
    listed: list[Array] = [*results] if isinstance(results, tuple) else [results]  # pyright: ignore[reportUnknownVariableType]
    return tuple(listed)


def reduced(program: Program, text: str, target: str) -> tuple[Program, str]:
    """A smaller function with a fault of the same kind."""
    return reduction.reduced(program, text, lambda smaller: fault(smaller, target))


@dataclass
class Summary:
    """What was run, and what was found."""

    cases: int = 0
    lines: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    reports: list[str] = field(default_factory=list[str])
    left: int = 0
    """Those that jax refuses as a whole: gradients of what has none."""

    def line(self) -> str:
        return (
            f"jax fuzz: {self.cases} cases, {self.lines} lines, {self.refused.total()} refused, {self.left} left out, "
            f"{len(self.reports)} faults"
        )


def check_cases(seeds: Sequence[int], target: str = "cpu", length: int = 6) -> Summary:
    summary, threads = Summary(), thread_pool.num_threads()
    for seed in seeds:
        with jax.enable_x64(True):
            program = random_function(seed, length)
        if summary.cases % 20 == 19:
            jax.clear_caches()  # programs that are called once fill memory
        summary.cases += 1
        summary.lines += len(program.needed())
        with warnings.catch_warnings(), jax.enable_x64(True):
            warnings.simplefilter("ignore")
            try:
                text = fault(program, target)
            except StableHLOError as error:
                summary.refused[re.sub(r"tensor<[^>]*>|\d+", "_", str(error))[:150]] += 1
                continue
            except Exception:  # of jax
                summary.left += 1
                continue
            if text is None:
                continue
            program, text = reduced(program, text, target)
        summary.reports.append(f"seed {seed}: {text[:900]}\n{program.shown()}")
        print(summary.reports[-1], flush=True)
    thread_pool.set_num_threads(threads)
    return summary


def main(given: Sequence[str] | None = None) -> int:
    return run("Random functions of jax by way of StableHLO, judged by jax.", check_cases, given)


if __name__ == "__main__":
    sys.exit(main())
