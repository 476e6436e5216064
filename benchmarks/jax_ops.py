"""Functions of JAX, one at a time, by `frontends.stablehlo` beside XLA: which are slower, and whether values agree.

    python benchmarks/jax_ops.py [--elements 250000 4000000] [--only TEXT ...] [--numbers 0 60] [--seconds 0.3] [--all]

Calls are in turn, one thread each; what adding 1 to nine numbers takes is taken away from both. Functions whose ratio is above
1.1, or whose results have other types, shapes or values than XLA's, are printed, worst first.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from function_table import Measured, arguments_of, chosen, difference, environment, in_turns, show

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np
from jax_op_cases import arguments, cases, function, jax

import fuse_opt
from fuse_opt.frontends import stablehlo


def results(found: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", found) if isinstance(found, list | tuple) else [found]


def measure(text: str, given: dict[str, Any], seconds: float) -> Measured:
    call, values = function(text, given)
    theirs = jax.jit(call, keep_unused=True)
    arrays = [jax.numpy.asarray(value) for value in values]
    ours = fuse_opt.compile(stablehlo.load(theirs.lower(*arrays)))
    mine = [np.asarray(array) for array in arrays]
    differing = difference(results(ours(*mine)), results(theirs(*arrays)))
    calls = {"XLA": lambda: jax.block_until_ready(theirs(*arrays)), "ours": lambda: ours(*mine)}
    return Measured(text, in_turns(calls, seconds), differing)


def main(given: Sequence[str] | None = None) -> None:
    options = arguments_of(__doc__, given)
    print(environment())
    jax.config.update("jax_enable_x64", True)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA has no other way to one thread
    warnings.simplefilter("ignore")
    fixed = measure("a + 1", {"a": np.ones((3, 3), np.float32)}, 0.2).times
    for elements in options.elements:
        one = partial(measure, given=dict(arguments(elements)), seconds=options.seconds)
        show(elements, chosen(cases(), options), lambda text, one=one: one(text).less(fixed), options.all)


if __name__ == "__main__":
    main()
