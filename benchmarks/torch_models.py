"""The models of fuse_opt.frontends.torch_models against eager PyTorch and Inductor: inference and one training step.

    python benchmarks/torch_models.py [--models bert,resnet] [--batch 8] [--rounds 30] [--json FILE] [--text FILE]
    python benchmarks/torch_models.py --dtype bfloat16 --no-inductor

Times are taken in turns, one call of each after the other, and compared round by round: what else runs on the machine
meets all alike. Compilers start without what earlier runs left on disk. Errors are the largest difference of results and
gradients, relative to the largest element of each. With `--json`, measurements of other models in the file are kept, and
the table is of all of them.
"""

from __future__ import annotations

import argparse
import atexit
import copy
import fcntl
import json
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool would compete with what is measured
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # first calls compile, here and there
os.environ["FUSE_OPT_CACHE_DIR"] = tempfile.mkdtemp()

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
    dtype: str
    threads: int
    nodes: int
    external: dict[str, int]
    kernels: int
    arena_bytes: int
    bound_bytes: int
    errors: dict[str, float]
    """Of ours and of Inductor's from eager; `..._f64`: from the model in f64, of eager's, too."""
    milliseconds: dict[str, list[float]]
    """Smallest, median and largest, by compiler."""
    ratios: dict[str, list[float]]
    """Times of others over ours, by round: smallest, median and largest."""
    first_call_s: dict[str, float]
    """Tracing and compiling, backward graphs included, and one call."""
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


def measure(name: str, mode: str, given: argparse.Namespace) -> Row:
    torch._dynamo.reset()
    torch.manual_seed(0)
    dtype = getattr(torch, given.dtype)
    original = MODELS[name](given.batch)
    sample = in_type(original, dtype)
    model = without_dropout(sample.model) if mode == "training" else sample.model
    make = training if mode == "training" else inference
    compilers: dict[str, Any] = {"eager": None, "fuse_opt": fuse_opt}
    if not given.no_inductor:
        compilers["inductor"] = "inductor"
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
            first[label] = round(time.perf_counter() - started, 2)
        reports += collected.graphs
    with exclusive(given.lock):
        times = interleaved(calls, given.rounds)
    counts = Counter[str]()
    for report in reports:
        counts.update(report.counts.external)
    precise = in_type(Sample(copy.deepcopy(model), sample.arguments), torch.float64)
    exact = results(make(precise.model, precise), precise.model, mode)
    errors = {label: error(found, values["eager"]) for label, found in values.items() if label != "eager"}
    errors |= {f"{label}_f64": error(found, exact) for label, found in values.items()}
    ours = times["fuse_opt"]
    return Row(
        name, mode, given.batch, given.dtype, given.threads, sum(r.counts.nodes for r in reports),
        dict(sorted(counts.items())), sum(r.stats.kernels for r in reports),
        sum(r.stats.arena_bytes for r in reports), sum(r.stats.lower_bound_bytes or 0 for r in reports),
        errors, {label: spread([s * 1e3 for s in found]) for label, found in times.items()},
        {k: spread([a / b for a, b in zip(v, ours, strict=True)]) for k, v in times.items() if k != "fuse_opt"},
        first, round(sum(r.seconds for r in reports), 2),
    )  # fmt: skip


def in_type(sample: Sample, dtype: Any) -> Sample:
    """The same model on the same arguments, in another floating type."""
    arguments = tuple(a.to(dtype) if a.is_floating_point() else a for a in sample.arguments)
    return Sample(sample.model.to(dtype), arguments)


def spread(values: Sequence[float]) -> list[float]:
    return [round(v, 3) for v in (min(values), statistics.median(values), max(values))]


@contextmanager
def exclusive(path: str | None) -> Generator[None]:
    """Holds the lock of a file, with the priority of a process that is not niced."""
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            with suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, 0, min(nice, 0))
            yield
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, nice)


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


def table(rows: Sequence[Row]) -> str:
    """The measurements as text, with geometric means."""
    head = f"{'model':10} {'mode':9} nodes calls kern.    arena    bound  error (f64; eager's, Inductor's f64)"
    lines = [head + "  ms: ours    eager Inductor  eager/ours Inductor/ours (min..max)  first call s (Inductor)"]
    for row in rows:
        e, ms, first = row.errors, row.milliseconds, row.first_call_s
        peers = [ms[label][1] if label in ms else float("nan") for label in ("fuse_opt", "eager", "inductor")]
        low, middle, high = row.ratios.get("inductor", [float("nan")] * 3)
        lines.append(
            f"{row.model:10} {row.mode:9} {row.nodes:5} {sum(row.external.values()):5} {row.kernels:5} "
            f"{row.arena_bytes:8} {row.bound_bytes:8} {e['fuse_opt']:.1e} ({e['fuse_opt_f64']:.1e}; "
            f"{e['eager_f64']:.1e}, {e.get('inductor_f64', float('nan')):.1e})    {peers[0]:8.2f} {peers[1]:8.2f} "
            f"{peers[2]:8.2f}  {row.ratios['eager'][1]:10.3f} {middle:13.3f} ({low:.2f}..{high:.2f})  "
            f"{first['fuse_opt']:10.1f} ({first.get('inductor', float('nan')):.1f})"
        )
    return "\n".join([*lines, "", *means(rows), "", *calls_by_operator(rows)])


def means(rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for mode in sorted({row.mode for row in rows}):
        chosen = [row for row in rows if row.mode == mode]
        for peer in ("eager", "inductor"):
            if all(peer in row.ratios for row in chosen):
                mean = statistics.geometric_mean(row.ratios[peer][1] for row in chosen)
                lines.append(f"geometric mean of {len(chosen)} models, {mode}: time of {peer} / ours {mean:.3f}")
        if all("inductor" in row.first_call_s for row in chosen):
            found = [row.first_call_s["fuse_opt"] / row.first_call_s["inductor"] for row in chosen]
            mean, most = statistics.geometric_mean(found), max(found)
            lines.append(f"first call, {mode}: ours / Inductor's {mean:.3f} (geometric mean), {most:.3f} (largest)")
    arena, bound = sum(row.arena_bytes for row in rows), sum(row.bound_bytes for row in rows)
    lines.append(f"arena bytes / lower bound, all graphs: {arena / max(bound, 1):.4f}")
    lines.append(f"largest difference from eager: {max(row.errors['fuse_opt'] for row in rows):.1e}")
    return lines


def calls_by_operator(rows: Sequence[Row]) -> list[str]:
    return [
        f"calls of PyTorch, {row.model} {row.mode}: " + ", ".join(f"{n} x {name}" for name, n in row.external.items())
        for row in rows
    ]


def kept_rows(path: str | None) -> list[Row]:
    if path is None or not Path(path).exists():
        return []
    return [Row(**entry) for entry in json.loads(Path(path).read_text(encoding="utf-8"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", default="float32", help="bfloat16: compare the errors from f64 with eager's")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of PyTorch, Inductor and ours")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--lock", help="a file that no two measurements lock at once; held while times are taken")
    parser.add_argument("--json")
    parser.add_argument("--text")
    given = parser.parse_args()
    atexit.register(shutil.rmtree, os.environ["FUSE_OPT_CACHE_DIR"], ignore_errors=True)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(given.threads)
    thread_pool.set_num_threads(given.threads)
    rows = kept_rows(given.json)
    for name in filter(None, given.models.split(",")):
        for mode in given.modes.split(","):
            row = measure(name, mode, given)
            rows = [other for other in kept_rows(given.json) or rows if (other.model, other.mode) != (name, mode)] + [
                row
            ]
            print(table([row]).splitlines()[1], flush=True)
            if given.json:
                ordered = sorted(rows, key=lambda r: (list(MODELS).index(r.model), r.mode))
                Path(given.json).write_text(json.dumps([asdict(r) for r in ordered], indent=1) + "\n", encoding="utf-8")
    rows.sort(key=lambda r: (list(MODELS).index(r.model), r.mode))
    command = f"# benchmarks/torch_models.py --batch {given.batch} --threads {given.threads} --dtype {given.dtype}"
    text = f"{command}, PyTorch {torch.__version__}\n{table(rows)}\n"
    print(text)
    if given.text:
        Path(given.text).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
