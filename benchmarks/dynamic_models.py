"""Models of any batch and length through torch.compile(dynamic=True): eager PyTorch, our backend, and Inductor.

    python benchmarks/dynamic_models.py [--models bert,resnet] [--seconds 2] [--inductor] [--sizes 2x64,3x37,5x51]

The models of fuse_opt.frontends.torch.models, inference. A model is compiled once, for the first of the sizes (a batch, and the
length of sequences or about the side of images), and called with all of them: a second compilation is said, as is what
PyTorch's own kernels run. Times are medians, in turns; each call is behind one of its own. Results are compared with those in
f64: `error` is ours over twice eager's, the largest of all sizes, so that above 1 we are further away. Without Hugging Face's
transformers only the models that do not need them are measured.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from function_table import environment, in_turns

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # first calls compile, here and there

from fuse_opt.frontends.torch.backend import GraphReport, collect_reports, fuse_opt
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.models import MODELS, Sample

FLOOR = 1e-6
"""Of the largest element: differences that no order of summation avoids."""


def sized(arguments: Sequence[Any], batch: int, length: int, keeps_sides: bool) -> tuple[Any, ...]:
    """Arguments of a model for another batch and length: tokens, or images, whose sides are the next multiple of 16."""
    drawn = torch.Generator().manual_seed(batch * 1000 + length)
    found: list[Any] = []
    for each in arguments:
        rest = each.shape[1:]
        if not each.dtype.is_floating_point:
            found.append(torch.randint(0, 1000, (batch, min(length, rest[0])), generator=drawn))
            continue
        if len(rest) == 3 and not keeps_sides:
            rest = (rest[0], *[-(-length // 16) * 16] * 2)
        found.append(torch.randn(batch, *rest, generator=drawn))
    return tuple(found)


def arguments_of(sample: Sample, sizes: Sequence[tuple[int, int]]) -> list[tuple[Any, ...]]:
    """Those of each size; of images all as large as the sample's, where the model takes no others."""
    found = [sized(sample.arguments, *size, keeps_sides=False) for size in sizes]
    try:
        for each in found:
            sample.model(*each)
    except (ValueError, RuntimeError):
        return [sized(sample.arguments, *size, keeps_sides=True) for size in sizes]
    return found


def error(found: Any, eager: Any, exact: Any) -> float:
    """How far a result is from the exact one, over twice how far eager's is."""
    largest = float(exact.abs().max()) or 1.0
    ours, theirs = (float((each.double() - exact).abs().max()) / largest for each in (found, eager))
    return ours / (2 * theirs + FLOOR)


def measure(name: str, sizes: Sequence[tuple[int, int]], seconds: float, with_inductor: bool) -> list[str]:
    """The lines of a model."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    made = MODELS[name](sizes[0][0])
    given = arguments_of(made, sizes)
    wanted = [made.model(*each) for each in given]
    precise = copy.deepcopy(made.model).double()
    exact = [precise(*(a.double() if a.dtype.is_floating_point else a for a in each)) for each in given]
    calls: dict[str, Any] = {"ours": torch.compile(copy.deepcopy(made.model), backend=fuse_opt, dynamic=True)}
    if with_inductor:
        calls["inductor"] = torch.compile(copy.deepcopy(made.model), dynamic=True)
    first: dict[str, float] = {}
    reports: list[GraphReport] = []
    found: list[Any] = []
    for label, call in calls.items():
        with collect_reports() as collected:
            started = time.perf_counter()
            results = [call(*each) for each in given]
            first[label] = time.perf_counter() - started
        if label == "ours":
            found, reports = results, collected.graphs
    worst = max(map(error, found, wanted, exact))
    once = sum(report.symbols != () for report in reports)
    external = {op: count for report in reports for op, count in report.counts.external.items()}
    lines = [
        f"{name:12} first calls {'  '.join(f'{label} {took:.1f} s' for label, took in first.items())}  error {worst:.2f}  "
        f"graphs {len(reports)}, for all sizes {once}" + (f"  PyTorch's {external}" if external else "")
    ]
    for (batch, length), each in zip(sizes, given, strict=True):
        turns = {label: partial(call, *each) for label, call in {"eager": made.model, **calls}.items()}
        times = in_turns(turns, seconds)
        ratios = "  ".join(f"{label} {took / times['ours']:.2f}" for label, took in times.items() if label != "ours")
        lines.append(f"{name:12} {batch} x {length:4}  ours {times['ours'] / 1e3:8.2f} ms  times ours: {ratios}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names, separated by commas")
    parser.add_argument("--sizes", default="2x64,3x37,5x51", help="batches and lengths, the first one for compiling")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for each size")
    parser.add_argument("--inductor", action="store_true", help="measure Inductor, too")
    given = parser.parse_args()
    sizes = [(int(batch), int(length)) for batch, _, length in (each.partition("x") for each in given.sizes.split(","))]
    torch.set_num_threads(1)
    print(environment(), flush=True)
    with torch.no_grad():
        for name in given.models.split(","):
            try:
                lines = measure(name, sizes, given.seconds, given.inductor)
            except ModuleNotFoundError as problem:
                lines = [f"{name:12} left out: {problem}"]
            print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    main()
