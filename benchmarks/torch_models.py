"""The models of fuse_opt.frontends.torch_models against eager PyTorch and Inductor: inference and one training step.

    python benchmarks/torch_models.py [--models bert,resnet] [--batch 4] [--rounds 30] [--json FILE]

Times are taken in turns, one call of each after the other, and compared round by round: what else runs on the machine
meets all alike. Prints one line for each model and mode; errors are the largest difference from eager, of results and
gradients, relative to the largest element.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool would compete with what is measured

from fuse_opt.frontends.torch_api import torch
from fuse_opt.frontends.torch_backend import GraphReport, collect_reports, fuse_opt
from fuse_opt.frontends.torch_models import MODELS, Sample
from fuse_opt.runtime import thread_pool

Call = Callable[[], Any]


@dataclass
class Row:
    """What was measured of a model."""

    model: str
    mode: str
    batch: int
    nodes: int
    external: dict[str, int]
    kernels: int
    arena_bytes: int
    bound_bytes: int
    error: float
    milliseconds: dict[str, float]
    """Medians, by compiler."""
    speedup: float
    """Inductor's time over ours: the median of the rounds' ratios."""
    speedup_eager: float
    first_call_s: dict[str, float]
    compile_s: float
    """Ours without what PyTorch does before."""


def without_dropout(model: Any) -> Any:
    """The model, in training mode, with no element dropped: all compilers draw other random numbers."""
    for module in model.train().modules():
        for name, value in list(cast(dict[str, object], vars(module)).items()):
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def inference(model: Any, sample: Sample) -> Call:
    def call() -> Any:
        with torch.no_grad():
            return model(*sample.arguments)

    return call


def training(model: Any, sample: Sample) -> Call:
    """Forward and backward; gives the result and the gradients."""
    weights: list[Any] = []

    def call() -> Any:
        for parameter in model.parameters():
            parameter.grad = None
        y = model(*sample.arguments)
        if not weights:
            weights.append(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
        (y * weights[0]).sum().backward()
        return y

    return call


def results(call: Call, model: Any, mode: str) -> list[Any]:
    found = [call()]
    if mode == "training":
        found += [p.grad for p in model.parameters() if p.grad is not None]
    return [value.detach().double() for value in found]


def error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference; elements below a thousandth of the largest of all count as that."""
    assert len(found) == len(wanted)
    scale = max(float(b.abs().max()) for b in wanted) * 1e-3
    return max(
        float((a - b).abs().max()) / max(float(b.abs().max()), scale) for a, b in zip(found, wanted, strict=True)
    )


def measure(name: str, mode: str, batch: int, rounds: int, inductor: bool) -> Row:
    torch._dynamo.reset()
    torch.manual_seed(0)
    sample = MODELS[name](batch)
    model = without_dropout(sample.model) if mode == "training" else sample.model
    make = training if mode == "training" else inference
    compilers: dict[str, Any] = {"eager": None, "fuse_opt": fuse_opt, **({"inductor": "inductor"} if inductor else {})}
    calls: dict[str, Call] = {}
    values: dict[str, list[Any]] = {}
    first: dict[str, float] = {}
    reports: list[GraphReport] = []
    for label, backend in compilers.items():
        own = copy.deepcopy(model)
        compiled = own if backend is None else torch.compile(own, backend=backend, dynamic=False)
        calls[label] = make(compiled, sample)
        with collect_reports() as collected:
            started = time.perf_counter()
            values[label] = results(calls[label], own, mode)
            first[label] = time.perf_counter() - started
        reports += collected.graphs
    times = interleaved(calls, rounds)
    counts = Counter[str]()
    for report in reports:
        counts.update(report.counts.external)
    other = times.get("inductor", times["eager"])
    return Row(
        name, mode, batch, sum(r.counts.nodes for r in reports), dict(sorted(counts.items())),
        sum(r.stats.kernels for r in reports), sum(r.stats.arena_bytes for r in reports),
        sum(r.stats.lower_bound_bytes or 0 for r in reports), error(values["fuse_opt"], values["eager"]),
        {label: round(statistics.median(found) * 1e3, 3) for label, found in times.items()},
        _ratio(other, times["fuse_opt"]), _ratio(times["eager"], times["fuse_opt"]),
        {label: round(seconds, 2) for label, seconds in first.items()}, round(sum(r.seconds for r in reports), 2),
    )  # fmt: skip


def _ratio(others: Sequence[float], ours: Sequence[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(others, ours, strict=True)), 3)


def interleaved(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, in turns."""
    times: dict[str, list[float]] = {label: [] for label in calls}
    for number in range(rounds + 3):
        for label, call in calls.items():
            started = time.perf_counter()
            call()
            if number >= 3:
                times[label].append(time.perf_counter() - started)
    return times


def geometric_mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of PyTorch, Inductor and ours")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--json")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(given.threads)
    thread_pool.set_num_threads(given.threads)
    rows: list[Row] = []
    print(f"{'model':10} {'mode':9} nodes ext. kern.    arena    bound   error", end=" ")
    print("eager_ms  ours_ms  ind_ms  vs_ind vs_eager first_s (ind)")
    for name in given.models.split(","):
        for mode in given.modes.split(","):
            row = measure(name, mode, given.batch, given.rounds, not given.no_inductor)
            rows.append(row)
            ms, first = row.milliseconds, row.first_call_s
            print(
                f"{name:10} {mode:9} {row.nodes:5} {sum(row.external.values()):4} {row.kernels:5} {row.arena_bytes:8} "
                f"{row.bound_bytes:8} {row.error:.1e} {ms['eager']:8.2f} {ms['fuse_opt']:8.2f} "
                f"{ms.get('inductor', 0):7.2f} {row.speedup:7.2f} {row.speedup_eager:8.2f} "
                f"{first['fuse_opt']:7.1f} ({first.get('inductor', 0):.1f})",
                flush=True,
            )
    for mode in given.modes.split(","):
        of_mode = [row for row in rows if row.mode == mode]
        means = geometric_mean([r.speedup for r in of_mode]), geometric_mean([r.speedup_eager for r in of_mode])
        print(f"geometric mean, {mode}: {means[0]:.3f} against Inductor, {means[1]:.3f} against eager")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
