"""CPU seconds of the default pipeline on large graphs, and how they grow: `python benchmarks/compile_scaling.py [N]`.

Prints one line per graph and size: passes (with verification after each), parsing apart, and the growth from N to 2N.
"""

from __future__ import annotations

import argparse
import time

from fuse_opt.tools.compiler.api import load, optimize

FULL = "tensor<64x64xf32>"


def chain(count: int) -> str:
    """A chain of elementwise ops, every second one with a second operand."""
    lines = [f"func.func @main(%a: {FULL}, %b: tensor<64xf32>) -> {FULL} {{"]
    last = "%a"
    for i in range(count):
        match i % 4:
            case 0:
                lines.append(f"  %v{i} = graph.exp {last} : ({FULL}) -> {FULL}")
            case 1:
                lines.append(f"  %v{i} = graph.add {last}, %b : ({FULL}, tensor<64xf32>) -> {FULL}")
            case 2:
                lines.append(f"  %v{i} = graph.multiply {last}, %a : ({FULL}, {FULL}) -> {FULL}")
            case _:
                lines.append(f"  %v{i} = graph.tanh {last} : ({FULL}) -> {FULL}")
        last = f"%v{i}"
    return "\n".join([*lines, f"  func.return {last} : {FULL}", "}"])


def wide(count: int) -> str:
    """Many different products of one value, added up in a tree."""
    lines = [f"func.func @main(%a: {FULL}) -> {FULL} {{", f"  %s = graph.relu %a : ({FULL}) -> {FULL}"]
    values: list[str] = []
    for i in range(count // 3):
        lines.append(f"  %c{i} = graph.constant dense<{i}.0> : tensor<f32>")
        lines.append(f"  %v{i} = graph.multiply %s, %c{i} : ({FULL}, tensor<f32>) -> {FULL}")
        values.append(f"%v{i}")
    number = 0
    while len(values) > 1:
        pairs = list(zip(values[::2], values[1::2], strict=False))
        rest = values[len(pairs) * 2 :]
        values = []
        for left, right in pairs:
            lines.append(f"  %t{number} = graph.add {left}, {right} : ({FULL}, {FULL}) -> {FULL}")
            values.append(f"%t{number}")
            number += 1
        values += rest
    return "\n".join([*lines, f"  func.return {values[0]} : {FULL}", "}"])


def rows(count: int) -> str:
    """Softmax-like rows between matrix products: thousands of separate kernels."""
    lines = [f"func.func @main(%a: {FULL}, %w: {FULL}) -> {FULL} {{"]
    last, thin = "%a", "tensor<64x1xf32>"
    for i in range(count // 6):
        lines.append(f"  %r{i} = graph.max {last} {{axes = array<i64: 1>, keepdims = true}} : ({FULL}) -> {thin}")
        lines.append(f"  %d{i} = graph.subtract {last}, %r{i} : ({FULL}, {thin}) -> {FULL}")
        lines.append(f"  %m{i} = graph.matmul %d{i}, %w : ({FULL}, {FULL}) -> {FULL}")
        lines.append(f"  %e{i} = graph.exp %m{i} : ({FULL}) -> {FULL}")
        lines.append(f"  %f{i} = graph.add %e{i}, {last} : ({FULL}, {FULL}) -> {FULL}")
        lines.append(f"  %g{i} = graph.permute_dims %f{i} {{axes = array<i64: 1, 0>}} : ({FULL}) -> {FULL}")
        last = f"%g{i}"
    return "\n".join([*lines, f"  func.return {last} : {FULL}", "}"])


def seconds(text: str) -> float:
    """CPU seconds of the default pipeline on a program, after parsing."""
    module = load(text)
    start = time.process_time()
    optimize(module)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=10_000, help="ops of the smaller graph")
    count = parser.parse_args().count
    for make in (chain, wide, rows):
        small, large = seconds(make(count)), seconds(make(2 * count))
        print(
            f"{make.__name__:<6} {count} ops: {small:6.2f} s   {2 * count} ops: {large:6.2f} s   growth {large / small:.2f}"
        )


if __name__ == "__main__":
    main()
