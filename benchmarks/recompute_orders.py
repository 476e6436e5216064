"""Whether passes undo recomputation: `python benchmarks/recompute_orders.py [--cases 500] [--seed 0]`.

Random programs with a forward and a backward half go through `rematerialize`, then through registered passes in a random order,
and get kernels and a plan. No arena may be larger than with the same passes without `rematerialize`, and no value another one.
Prints what is, and at the end how many, and the arenas as parts of those without: least, median, largest.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fuse_opt
from fuse_opt.tools.compiler.registry import available_passes

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

S = "tensor<64x64xf32>"
FIRST = "rematerialize{slower=1.0 smallest-bytes=0}"
LAST = ("wrap-kernels", "order-for-memory", "infer-inplace", "plan-memory")
OPS = ("exp", "tanh", "abs", "negative", "sigmoid")


def program(choose: random.Random) -> str:
    """Layers of a product and pointwise ops, and their backward half, which reads the forward half's values again."""

    def line(name: str, op: str, *operands: str) -> str:
        types = ", ".join([S] * len(operands))
        return f"%{name} = graph.{op} {', '.join(f'%{one}' for one in operands)} : ({types}) -> {S}"

    lines: list[str] = []
    kept: list[list[str]] = []
    last = "x"
    for layer in range(choose.randint(2, 5)):
        lines.append(line(f"p{layer}", "matmul", last, "w"))
        last, inner = f"p{layer}", list[str]()
        for step in range(choose.randint(1, 3)):
            lines.append(line(f"h{layer}_{step}", choose.choice(OPS), last))
            last = f"h{layer}_{step}"
            inner.append(last)
        kept.append(inner)
    for layer, inner in reversed(list(enumerate(kept))):
        for step, value in enumerate(reversed(inner)):
            lines.append(line(f"g{layer}_{step}", choose.choice(("multiply", "subtract")), last, value))
            last = f"g{layer}_{step}"
        lines.append(line(f"d{layer}", "matmul", last, "w"))
        last = f"d{layer}"
    body = "\n  ".join([*lines, f"func.return %{last} : {S}"])
    return f"func.func @main(%x: {S}, %w: {S}) -> {S} {{\n  {body}\n}}\n"


def passes_between(choose: random.Random) -> list[str]:
    """Registered passes in a random order: those that need nothing before them."""
    names = sorted(
        name for name in available_passes() if not name.startswith(("convert-", "gpu-", FIRST.partition("{")[0]))
    )
    return choose.sample(names, choose.randint(1, 8))


def arena(text: str, passes: Sequence[str], inputs: Sequence[np.ndarray]) -> tuple[int, bytes]:
    """The arena of a program after passes, and its value's bytes on the reference."""
    from ir_testing import evaluate, text_of

    module = fuse_opt.optimize(text, passes)
    found = text_of(module).partition("fused.arena = {")[2].partition("size = ")[2].partition(" ")[0]
    (value,) = evaluate(module, list(inputs))
    return int(found or 0), np.asarray(value).tobytes()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the cases; 1 where any arena grew or any value changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    parts: list[float] = []
    worse = refused = 0
    for seed in range(given.seed, given.seed + given.cases):
        choose = random.Random(seed)
        text, between = program(choose), passes_between(choose)
        generator = np.random.default_rng(seed)
        inputs = [(generator.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(2)]
        try:
            without, plain = arena(text, [*between, *LAST], inputs)
            with_it, value = arena(text, [FIRST, *between, *LAST], inputs)
        except ValueError as error:
            refused += 1
            print(f"seed {seed}: refused: {str(error)[:120]}")
            continue
        parts.append(with_it / without if without else 1.0)
        if with_it > without or plain != value:
            worse += 1
            print(
                f"seed {seed}: {without} -> {with_it}, {'same' if plain == value else 'other'} bits: {','.join(between)}"
            )
    if parts:
        spread = f"{min(parts):.3f} {statistics.median(parts):.3f} {max(parts):.3f}"
        print(f"{len(parts)} cases, {refused} refused, {worse} worse: part {spread}")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
