"""Compiling one program for all sizes beside one for sizes that are known: `python benchmarks/sized_compiling.py [NAME ...]`.

Of the programs of sizes.py: processor time of `compile` and the first call, compilers included, in pairs of processes that have
all modules, with nothing in any cache; seconds of the one program, of that for the sizes named, and the ratio: least, median,
largest of `--pairs`. The same arguments go to both, and results are compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("FUSE_OPT_NUM_THREADS", "1")

import numpy as np
from sized_kernels import Kernel, made_for
from sizes import PROGRAMS, Ranges

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import shape, sizes_asked_for
from fuse_opt.dialects.types.size import symbol

TYPICAL = {"batch": 8, "tokens": 128, "images": 32, "size": 64}
"""By the names of symbols."""


def chosen(ranges: Ranges) -> dict[str, int]:
    """What the program for known sizes is made for."""
    return {name: min(each, key=lambda n: abs(n - TYPICAL[name])) for name, each in ranges.items()}


def arguments(name: str, values: Mapping[str, int]) -> list[np.ndarray[Any, Any]]:
    """Random ones, small enough that sums of many stay so."""
    make, _ = PROGRAMS[name]
    rng = np.random.default_rng(7)
    function = next(iter(make(**values).body.block.ops))
    return [(0.1 * rng.standard_normal(shape(each))).astype(np.float32) for each in function.regions[0].block.args]


def seconds(name: str, is_sized: bool) -> tuple[float, float]:
    """Of one program and its first call, and the sum of the magnitudes of its results."""
    make, ranges = PROGRAMS[name]
    values = chosen(ranges)
    given = arguments(name, values)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FUSE_OPT_CACHE_DIR"] = folder
        start = _used()
        with sizes_asked_for():
            sizes = {n: symbol(n, each[0], each[-1], each.step) for n, each in ranges.items()}
            program = fuse_opt.compile(make(**(sizes if is_sized else values)))
        found = program(*given)
        taken = _used() - start
    results: list[Any] = [*found] if isinstance(found, tuple) else [found]
    return taken, float(sum(np.abs(one).sum(dtype=np.float64) for one in results))


def _used() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []], help="all by default")
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args()
    simple, ones = Kernel(("m", "n"), "negative").text, np.ones((2, 3), np.float32)
    for warm in (fuse_opt.compile(simple), made_for(simple, (ones.shape,))):  # what all programs of either kind need
        warm(ones)
    logs: list[float] = []
    print(f"{'program':20} {'sizes s':>8} {'known s':>8} {'least':>6} {'median':>6} {'most':>6}")
    for name in asked.names or PROGRAMS:
        pairs: list[tuple[float, float]] = []
        for turn in range(asked.pairs):
            found: dict[bool, tuple[float, float]] = {}
            for is_sized in (True, False) if turn % 2 else (False, True):
                with get_context("fork").Pool(1) as pool:
                    found[is_sized] = pool.apply(seconds, (name, is_sized))
            np.testing.assert_allclose(found[True][1], found[False][1], 1e-4)
            pairs.append((found[True][0], found[False][0]))
        ratios = sorted(one / other for one, other in pairs)
        one, other = np.median(pairs, 0)
        middle = float(np.median(ratios))
        logs.append(np.log(middle))
        print(f"{name:20} {one:8.2f} {other:8.2f} {ratios[0]:6.2f} {middle:6.2f} {ratios[-1]:6.2f}", flush=True)
    print(f"geometric mean of {len(logs)}: {np.exp(np.mean(logs)):.3f}, worst {np.exp(max(logs)):.2f}")


if __name__ == "__main__":
    main()
