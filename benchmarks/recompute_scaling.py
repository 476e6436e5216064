"""CPU seconds of `rematerialize` on large programs: `python benchmarks/recompute_scaling.py [--sizes 10000 100000]`.

`deep` is a chain of products and pointwise ops with its backward half, over whose middle a value of each layer is kept. In
`tangled` ops of both halves read values of the last few hundred, and those of the backward half one of the forward half besides:
nearly all of that is alive at once, and what may be computed again hangs together. Passes: the default one, without a limit of
time, with reductions too, and those that search which products to keep.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable

from xdsl.context import Context

from fuse_opt.dialects.fused import RECOMPUTED
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.pipeline import collection_paused, make_passes

FULL = "tensor<128x256xf32>"
SQUARE = "tensor<256x256xf32>"
NEAR = 100
PASSES = ("", "{slower=1000.0}", "{slower=1000.0 rows=true}", "{slower=1000.0 rows=true products=1 target=67108864}")


def _line(result: str, op: str, *operands: str) -> str:
    types = ", ".join(SQUARE if name == "%w" else FULL for name in operands)
    return f"  {result} = graph.{op} {', '.join(operands)} : ({types}) -> {FULL}"


def _function(lines: list[str], last: str) -> str:
    head = f"func.func @main(%x: {FULL}, %w: {SQUARE}) -> {FULL} {{"
    return "\n".join([head, *lines, f"  func.return {last} : {FULL}", "}"])


def deep(count: int) -> str:
    """Layers of a product and two pointwise ops; two pointwise ops and a product for each in the backward half."""
    lines: list[str] = []
    last, layers = "%x", count // 6
    for k in range(layers):
        lines += [_line(f"%p{k}", "matmul", last, "%w"), _line(f"%h{k}", "exp", f"%p{k}")]
        last = f"%x{k}"
        lines.append(_line(last, "tanh", f"%h{k}"))
    for k in reversed(range(layers)):
        lines += [_line(f"%a{k}", "multiply", last, f"%h{k}"), _line(f"%b{k}", "multiply", f"%a{k}", f"%x{k}")]
        last = f"%d{k}"
        lines.append(_line(last, "matmul", f"%b{k}", "%w"))
    return _function(lines, last)


def tangled(count: int, seed: int = 0) -> str:
    """Random ops, one in sixteen of them a product."""
    rng = random.Random(seed)
    lines: list[str] = []
    forward, values = ["%x"], ["%x"]
    for number in range(count):
        near = values[-1 - min(int(rng.expovariate(8 / NEAR)), len(values) - 1)]
        result = f"%v{number}"
        if number % 16 == 15:
            lines.append(_line(result, "matmul", values[-1], "%w"))
        elif number < count // 2 and rng.random() < 0.5:
            lines.append(_line(result, rng.choice(("exp", "tanh", "abs", "negative")), near))
        else:
            late = number >= count // 2
            other = forward[max(count - number - rng.randrange(8), 0) % len(forward)] if late else values[-1]
            lines.append(_line(result, rng.choice(("add", "multiply", "maximum")), near, other))
        values.append(result)
        if number < count // 2:
            forward.append(result)
    return _function(lines, values[-1])


PROGRAMS: dict[str, Callable[[int], str]] = {"deep": deep, "tangled": tangled}


def main() -> None:
    """Prints a line for each program, size and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000], help="ops of each program")
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS))
    parser.add_argument("--passes", nargs="+", default=list(PASSES), help="options of the pass")
    given = parser.parse_args()
    for name in given.programs:
        for size in given.sizes:
            module = load(PROGRAMS[name](size))
            for options in given.passes:
                copy = module.clone()
                gc.collect()
                start = time.process_time()
                with collection_paused():
                    make_passes(f"rematerialize{options}")[0].apply(Context(), copy)
                seconds = time.process_time() - start
                again = sum(RECOMPUTED in op.attributes for op in copy.walk())
                print(f"{name:8} {size:7} ops {seconds:7.2f} CPU s, {again:6} ops again  {options}", flush=True)


if __name__ == "__main__":
    main()
