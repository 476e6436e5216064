"""Reads at positions that are data inside of kernels, against the same as calls before them: pairs of processor time.

    python benchmarks/reads_at_positions.py [--pairs 11]

Each program is compiled as it is, and without `open-reads`; both run in turns. Prints kernels, arena, the median time of a call
of both, and least, median and greatest ratio: above 1, the read in the kernel takes less.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from rotation import measure

import fuse_opt
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

_SECONDS = 0.05
"""Of a measurement, about."""


def embedding(rows: int = 50_000, width: int = 768, batch: int = 512) -> tuple[str, list[Any]]:
    """Rows of a table and their layer norm."""
    w, i, y = f"tensor<{rows}x{width}xf32>", f"tensor<{batch}xi64>", f"tensor<{batch}x{width}xf32>"
    text = f"""func.func @main(%w: {w}, %i: {i}) -> {y} {{
      %e = graph.embedding %w, %i : ({w}, {i}) -> {y}
      %y = graph.layer_norm %e : ({y}) -> {y}
      func.return %y : {y}
    }}"""
    random = np.random.default_rng(0)
    return text, [random.standard_normal((rows, width), np.float32), random.integers(0, rows, batch)]


def cross_entropy(rows: int = 512, classes: int = 50_257) -> tuple[str, list[Any]]:
    """A log-softmax of which an element of each row is taken, as front ends write it."""
    x, i, y = f"tensor<{rows}x{classes}xf32>", f"tensor<{rows}x1xi64>", f"tensor<{rows}x1xf32>"
    text = f"""func.func @main(%x: {x}, %i: {i}) -> {y} {{
      %l = graph.log_softmax %x : ({x}) -> {x}
      %y = graph.take_along_axis %l, %i : ({x}, {i}) -> {y}
      func.return %y : {y}
    }}"""
    random = np.random.default_rng(0)
    return text, [random.standard_normal((rows, classes), np.float32), random.integers(0, classes, (rows, 1))]


def rotation(tokens: int = 512, heads: int = 12, width: int = 64, positions: int = 2048) -> tuple[str, list[Any]]:
    """Rows of a table of factors for each token, for all of its heads."""
    q, t = f"tensor<{tokens}x{heads}x{width}xf32>", f"tensor<{positions}x{width}xf32>"
    i, c, b = f"tensor<{tokens}xi64>", f"tensor<{tokens}x{width}xf32>", f"tensor<{tokens}x1x{width}xf32>"
    text = f"""func.func @main(%q: {q}, %t: {t}, %i: {i}) -> {q} {{
      %c = graph.take %t, %i : ({t}, {i}) -> {c}
      %b = graph.expand_dims %c {{axis = 1 : i64}} : ({c}) -> {b}
      %y = graph.multiply %q, %b : ({q}, {b}) -> {q}
      func.return %y : {q}
    }}"""
    random = np.random.default_rng(0)
    q_values = random.standard_normal((tokens, heads, width), np.float32)
    return text, [
        q_values,
        random.standard_normal((positions, width), np.float32),
        random.integers(0, positions, tokens),
    ]


PROGRAMS: dict[str, Callable[[], tuple[str, list[Any]]]] = {
    "embedding and layer norm": embedding,
    "cross entropy": cross_entropy,
    "rotation by a table": rotation,
}


def compare(name: str, pairs: int) -> None:
    text, given = PROGRAMS[name]()
    ways = [DEFAULT_PIPELINE, tuple(each for each in DEFAULT_PIPELINE if each != "open-reads")]
    inside, called = (fuse_opt.compile(text, pipeline=way) for way in ways)
    times = measure([lambda p=p: p(*given) for p in (inside, called)], _SECONDS, pairs)
    ratios = times[:, 1] / times[:, 0]
    kernels, arenas = ("/".join(str(getattr(p.stats, n)) for p in (inside, called)) for n in ("kernels", "arena_bytes"))
    own, other = np.median(times, axis=0) * 1e3
    print(
        f"{name}: kernels {kernels}, arena {arenas} bytes, {own:.3f}/{other:.3f} ms, ratio "
        f"{ratios.min():.2f} {np.median(ratios):.2f} {ratios.max():.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=11)
    pairs = parser.parse_args().pairs
    for name in PROGRAMS:
        compare(name, pairs)


if __name__ == "__main__":
    main()
