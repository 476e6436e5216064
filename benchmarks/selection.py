"""Processor seconds of assign-layouts and select-implementation on graphs of many sites: `python benchmarks/selection.py`.

`products` is a chain of matrix products, `convolutions` one of 3x3 windows, which are best as they are written; `residual` has
blocks of two 1x1 convolutions around which another layout is worth its conversions. Weights are shared: each has as many readers
as there are sites. `distinct` are products of 64 shapes in turn. Passes run without verification between them.
With `--check` the exit status is 1 where either takes longer than half a second for 10,000 sites, in proportion for others.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable

from xdsl.context import Context

from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.pipeline import collection_paused, make_passes

PASSES = ("assign-layouts", "cancel-conversions", "wrap-kernels", "select-implementation")
SHOWN = ("assign-layouts", "select-implementation")
ALLOWED = 0.5 / 10_000
"""Seconds of either for a site."""


def tensor(*extents: int) -> str:
    return f"tensor<{'x'.join(map(str, extents))}xf32>"


def products(sites: int) -> str:
    return _program(tensor(64, 64), [tensor(64, 64)], sites, _product)


def distinct(sites: int) -> str:
    """A product and its way back, at 32 widths."""
    weights = [tensor(*pair) for n in range(1, 33) for pair in ((64, 8 * n), (8 * n, 64))]
    return _program(tensor(64, 64), weights, sites, _product)


def convolutions(sites: int) -> str:
    return _program(tensor(1, 32, 28, 28), [tensor(32, 32, 3, 3)], sites, _convolution)


def residual(sites: int) -> str:
    return _program(tensor(1, 256, 8, 8), [tensor(64, 256, 1, 1), tensor(256, 64, 1, 1)], sites, _bottleneck)


KINDS: tuple[Callable[[int], str], ...] = (products, distinct, convolutions, residual)
_Made = tuple[list[str], str, str]
_Site = Callable[[int, str, str, list[str]], _Made]


def _program(kind: str, weights: list[str], sites: int, make: _Site) -> str:
    """Lines of each site, by the number, the value and its type that come before."""
    arguments = ", ".join(f"%w{n}: {weight}" for n, weight in enumerate(weights))
    lines = [f"func.func @main(%x: {kind}, {arguments}) -> {kind} {{"]
    value, type_ = "%x", kind
    for number in range(sites):
        more, value, type_ = make(number, value, type_, weights)
        lines += more
    return "\n".join([*lines, f"  func.return {value} : {type_}", "}"])


def _extents(type_: str) -> list[int]:
    return [int(n) for n in type_.removeprefix("tensor<").removesuffix("xf32>").split("x")]


def _product(number: int, value: str, type_: str, weights: list[str]) -> _Made:
    place, result = number % len(weights), f"%p{number}"
    out = tensor(_extents(type_)[0], _extents(weights[place])[1])
    return [f"  {result} = graph.matmul {value}, %w{place} : ({type_}, {weights[place]}) -> {out}"], result, out


def _convolution(number: int, value: str, type_: str, weights: list[str]) -> _Made:
    pads = "{pads = array<i64: 1, 1, 1, 1>}"
    lines = [f"  %c{number} = graph.conv {value}, %w0 {pads} : ({type_}, {weights[0]}) -> {type_}"]
    return [*lines, f"  %r{number} = graph.relu %c{number} : ({type_}) -> {type_}"], f"%r{number}", type_


def _bottleneck(number: int, value: str, type_: str, weights: list[str]) -> _Made:
    """Half of a block: a convolution; at the end what was there at the beginning is added."""
    place, before = number % 2, f"%r{number - 2}" if number > 1 else "%x"
    out, summed = tensor(1, _extents(weights[place])[0], 8, 8), f"%c{number}"
    lines = [f"  %c{number} = graph.conv {value}, %w{place} : ({type_}, {weights[place]}) -> {out}"]
    if place:
        summed = f"%s{number}"
        lines.append(f"  {summed} = graph.add %c{number}, {before} : ({out}, {out}) -> {out}")
    return [*lines, f"  %r{number} = graph.relu {summed} : ({out}) -> {out}"], f"%r{number}", out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", default=[kind.__name__ for kind in KINDS])
    parser.add_argument("--check", action="store_true", help="fail where one takes longer than allowed")
    given = parser.parse_args()
    late = False
    for sites in given.sites:
        for kind in KINDS:
            if kind.__name__ in given.kinds:
                seconds = _seconds(kind(sites))
                late |= max(seconds.values()) > ALLOWED * sites
                found = ", ".join(f"{name} {each:.2f} s" for name, each in seconds.items())
                print(f"{sites:>7} sites, {kind.__name__:<13} {found} (allowed {ALLOWED * sites:.2g} s)", flush=True)
    sys.exit(given.check and late)


def _seconds(text: str) -> dict[str, float]:
    """By pass."""
    module = load(text)
    gc.collect()
    found: dict[str, float] = {}
    for pass_ in make_passes(list(PASSES)):
        start = time.process_time()
        with collection_paused():
            pass_.apply(Context(), module)
        if pass_.name in SHOWN:
            found[pass_.name] = time.process_time() - start
    return found


if __name__ == "__main__":
    main()
