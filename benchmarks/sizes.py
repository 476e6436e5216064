"""One program for all sizes of a range: its arena beside the most bytes that live at once.

    python benchmarks/sizes.py [GRAPH ...] [--draws 1000]

The arena over the bound is that of all sizes of the range, or of draws whose logarithms are even where these are too many.
`checked` counts the draws at which the bytes of all values that live at once were found to be apart, each pair by itself; plans
were verified by their orders for all sizes before.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import memory_graphs as graphs
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.storage import ARENA, analyse_storage, functions_of
from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.types.extents import evaluate
from fuse_opt.dialects.types.size import symbol
from fuse_opt.dialects.verify.memory_plan import verify_plan
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

Ranges = Mapping[str, range]
_ALL = 8192
_PASSES = DEFAULT_PIPELINE[: DEFAULT_PIPELINE.index("plan-memory") + 1]
_TOKENS, _BATCH, _IMAGES = range(1, 513), range(1, 33), range(1, 257)


def _squares(step: int) -> range:
    """Sides of square images, as strides divide them."""
    return range(step, 513, step)


PROGRAMS: dict[str, tuple[Callable[..., ModuleOp], Ranges]] = {
    "transformer": (graphs.transformer, {"batch": _BATCH, "tokens": _TOKENS}),
    "training_step": (graphs.training_step, {"batch": _IMAGES}),
    "convolution_training": (graphs.convolution_training, {"images": _IMAGES}),
    "unet": (graphs.unet, {"size": _squares(16)}),
    "densenet": (graphs.densenet, {"size": _squares(4)}),
    "nas_cells": (graphs.nas_cells, {"images": _IMAGES}),
    "randomly_wired": (graphs.randomly_wired, {"size": _squares(1)}),
    "mobilenet": (graphs.mobilenet, {"size": _squares(32)}),
    "inception": (graphs.inception, {"size": _squares(4)}),
    "lstm": (graphs.lstm, {"batch": _IMAGES}),
    "resnet": (graphs.resnet, {"size": _squares(32)}),
    "wide_and_deep": (graphs.wide_and_deep, {"batch": _IMAGES}),
    "multi_tower": (graphs.multi_tower, {"batch": _IMAGES}),
}
"""By name the graph, and which of its extents are sizes."""


def planned(make: Callable[..., ModuleOp], ranges: Ranges) -> FuncOp:
    """The function of a graph with a plan for all sizes, verified."""
    found = {name: symbol(name, each[0], each[-1], each.step) for name, each in ranges.items()}
    module = make(**found)
    run_pipeline(module, make_passes(",".join(_PASSES)), make_context())
    function = functions_of(module)[0]
    verify_plan(function, complete=True, exact=True)
    return function


def points(ranges: Ranges, most: int) -> Iterator[dict[str, int]]:
    """All sizes, or so many draws."""
    every, rng = list(ranges.values()), random.Random(17)
    if prod(map(len, every)) <= most:
        found: Sequence[tuple[int, ...]] = list(product(*every))
    else:
        found = [tuple(each[int(len(each) ** rng.random()) - 1] for each in every) for _ in range(most)]
    for values in found:
        yield dict(zip(ranges, values, strict=True))


def check(function: FuncOp, orders: PlaceOrders, values: Mapping[str, int]) -> None:
    """Raises AssertionError where two values that live at once have a byte in common at these sizes."""
    offsets, arena, _ = orders.at(values)
    slots: dict[SSAValue, int] = {
        result: slot
        for op in function.body.block.ops
        if isinstance(op, OutlinedOp)
        for result, slot in zip(op.results, ints(op.slots), strict=True)
    }
    found = [one for one in analyse_storage(function).storages if one.kind == "intermediate"]
    placed = [(offsets[slots[one.values[0]]], evaluate(one.nbytes, values), one) for one in found]
    for k, (start, nbytes, one) in enumerate(placed):
        assert start + nbytes <= arena
        for other_start, other_bytes, other in placed[:k]:
            if one.birth < other.death and other.birth < one.death:
                assert start + nbytes <= other_start or other_start + other_bytes <= start, (values, one, other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", choices=[*PROGRAMS, []], help="those of this name; all by default")
    parser.add_argument("--draws", type=int, default=50, help="sizes at which bytes are looked at one by one")
    given = parser.parse_args()
    print(
        f"{'program':20} {'places':>6} {'orders':>6} {'method':10} {'sizes':>6} {'mean':>7} {'worst':>7} {'checked':>7} {'s':>6}"
    )
    means: list[float] = []
    for name in given.graphs or PROGRAMS:
        make, ranges = PROGRAMS[name]
        start = time.process_time()
        with sizes_asked_for():
            function = planned(make, ranges)
            seconds = time.process_time() - start
            orders = PlaceOrders.of(function)
            assert orders is not None
            at = [orders.at(values) for values in points(ranges, _ALL)]
            ratios = [arena / bound for _, arena, bound in at]
            drawn = list(points(ranges, given.draws)) if given.draws else []
            for values in drawn:
                check(function, orders, values)
        plan = function.attributes[ARENA]
        method = str(plan.data["method"].data)  # pyright: ignore
        mean, worst = sum(ratios) / len(ratios), max(ratios)
        means.append(mean)
        print(
            f"{name:20} {len(orders.places):6} {len(orders.orders):6} {method:10} {len(ratios):6} {mean:7.4f} {worst:7.4f} "
            f"{len(drawn):7} {seconds:6.1f}",
            flush=True,
        )
    print(f"mean of {len(means)} programs {sum(means) / len(means):.4f}")


if __name__ == "__main__":
    main()
