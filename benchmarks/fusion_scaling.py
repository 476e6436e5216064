"""CPU seconds of all fusion passes on random DAGs, and the exponent of their growth: `python benchmarks/fusion_scaling.py`.

The programs have elementwise ops of one, two and three operands, broadcasts, transposes, row reductions and matrix
products over values drawn from the last few hundred, some read often. Passes run without verification between them.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import time

from xdsl.context import Context

from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, collection_paused, make_passes

FULL, THIN = "tensor<64x64xf32>", "tensor<64x1xf32>"
NEAR = 300
"""An operand is one of so many values before."""
FUSION = [name for name in DEFAULT_PIPELINE if name.startswith(("fuse-", "duplicate-", "explain-"))]


def random_dag(count: int, seed: int = 0) -> str:
    """A program of `count` ops; every result that nobody else reads is added up in the end."""
    rng = random.Random(seed)
    lines = [f"func.func @main(%a: {FULL}, %b: {FULL}) -> {FULL} {{"]
    full, unread = ["%a", "%b"], dict[str, None]()

    def pick() -> str:
        value = full[-1 - min(int(rng.expovariate(8 / NEAR)), len(full) - 1)]
        unread.pop(value, None)
        return value

    number = 0
    while number < count - len(unread):
        result, kind = f"%v{number}", rng.random()
        number += 1
        if kind < 0.35:
            op = rng.choice(("exp", "tanh", "negative", "sqrt", "relu"))
            lines.append(f"  {result} = graph.{op} {pick()} : ({FULL}) -> {FULL}")
        elif kind < 0.8:
            op = rng.choice(("add", "multiply", "subtract", "maximum"))
            lines.append(f"  {result} = graph.{op} {pick()}, {pick()} : ({FULL}, {FULL}) -> {FULL}")
        elif kind < 0.86:
            axes = "axes = array<i64: 1, 0>"
            lines.append(f"  {result} = graph.permute_dims {pick()} {{{axes}}} : ({FULL}) -> {FULL}")
        elif kind < 0.94:
            row, axes = f"%r{number}", "axes = array<i64: 1>, keepdims = true"
            lines.append(f"  {row} = graph.{rng.choice(('sum', 'max'))} {pick()} {{{axes}}} : ({FULL}) -> {THIN}")
            lines.append(f"  {result} = graph.subtract {pick()}, {row} : ({FULL}, {THIN}) -> {FULL}")
            number += 1
        else:
            lines.append(f"  {result} = graph.matmul {pick()}, {pick()} : ({FULL}, {FULL}) -> {FULL}")
        full.append(result)
        unread[result] = None
        del full[: max(len(full) - 4 * NEAR, 0)]
    last, *others = unread
    for k, value in enumerate(others):
        lines.append(f"  %s{k} = graph.add {last}, {value} : ({FULL}, {FULL}) -> {FULL}")
        last = f"%s{k}"
    return "\n".join([*lines, f"  func.return {last} : {FULL}", "}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000], help="ops of each program")
    parser.add_argument("--each", action="store_true", help="print the seconds of each pass")
    given = parser.parse_args()
    totals: list[float] = []
    for size in given.sizes:
        module = load(random_dag(size))
        gc.collect()
        total = 0.0
        for pass_ in make_passes(FUSION):
            start = time.process_time()
            with collection_paused():
                pass_.apply(Context(), module)
            seconds = time.process_time() - start
            total += seconds
            if given.each:
                print(f"    {pass_.name:<20} {seconds:7.2f} s")
        kernels = sum(op.name == "fused.kernel" for op in module.walk())
        totals.append(total)
        print(f"{size:>7} ops: {total:7.2f} CPU s, {kernels} kernels", flush=True)
    if len(totals) > 1:
        exponent = math.log(totals[-1] / totals[0]) / math.log(given.sizes[-1] / given.sizes[0])
        print(f"exponent from {given.sizes[0]} to {given.sizes[-1]} ops: {exponent:.3f}")


if __name__ == "__main__":
    main()
