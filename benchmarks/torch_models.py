"""The models of fuse_opt.frontends.torch.models against eager PyTorch and Inductor: inference and one training step.

    python benchmarks/torch_models.py [--models bert,resnet] [--batch 8] [--rounds 30] [--json FILE] [--text FILE]
    python benchmarks/torch_models.py --dtype bfloat16 --modes inference
    python benchmarks/torch_models.py --models "" --json FILE --text FILE    # only writes the text again

Times are taken in turns, one call of each after the other, and compared round by round: what else runs on the machine
meets all alike. Compilers start without what earlier runs left on disk.

Errors are of the result and, in training, of the gradient of each parameter: the largest difference of a tensor over its
largest element, which counts as a thousandth of the largest of all tensors if it is smaller (gradients that are zero but
for rounding have no scale of their own). The gradient of the result is a ramp from -1 to 1, of which sums over positions
cancel; errors called normal are with one drawn from the normal distribution. With `--json`, other measurements in the
file are kept, and the text is of all of them.
"""

from __future__ import annotations

import argparse
import atexit
import copy
import fcntl
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool would compete with what is measured
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # first calls compile, here and there
os.environ["FUSE_OPT_CACHE_DIR"] = tempfile.mkdtemp()

from torch_models_table import BOUND, Row, Worst, enter, read, text

from fuse_opt.frontends.torch.backend import GraphReport, collect_reports, fuse_opt
from fuse_opt.frontends.torch.fx.api import torch
from fuse_opt.frontends.torch.models import MODELS, Sample
from fuse_opt.runtime.host import thread_pool

Call = Callable[[], Any]


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


def training(model: Any, sample: Sample, cotangent: Callable[[int], Any] | None = None) -> Call:
    """Forward and backward; gives the result. The gradient of the result is a ramp, or what is given for its size."""
    weights: list[Any] = []

    def call() -> Any:
        for parameter in model.parameters():
            parameter.grad = None
        y = model(*sample.arguments)
        if not weights:
            made = torch.linspace(-1, 1, y.numel()) if cotangent is None else cotangent(y.numel())
            weights.append(made.reshape(y.shape))
        (y * weights[0]).sum().backward()
        return y

    return call


def normal(size: int) -> Any:
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


def results(call: Call, model: Any, mode: str) -> dict[str, Any]:
    """By name, the result and gradients."""
    found = {"result": call()}
    if mode == "training":
        found |= {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name.removeprefix("_orig_mod."): value.detach().double() for name, value in found.items()}


def distance(a: Any, b: Any) -> float:
    return float((a - b).abs().max())


def scales(wanted: dict[str, Any]) -> dict[str, float]:
    """By tensor, its largest element, at least a thousandth of the largest of all."""
    largest = {name: float(value.abs().max()) for name, value in wanted.items()}
    return {name: max(value, max(largest.values()) * 1e-3) for name, value in largest.items()}


def error(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    assert found.keys() == wanted.keys()
    scale = scales(wanted)
    return max(distance(found[name], wanted[name]) / scale[name] for name in wanted)


def furthest(ours: dict[str, Any], eager: dict[str, Any], exact: dict[str, Any]) -> list[Worst]:
    """The tensors that are beyond the bound, at most four."""
    found = [
        Worst(
            name,
            s,
            distance(ours[name], eager[name]),
            distance(ours[name], exact[name]),
            distance(eager[name], exact[name]),
        )
        for name, s in scales(eager).items()
    ]
    found = [worst for worst in found if worst.ours_eager > BOUND * worst.scale]
    return sorted(found, key=lambda worst: -worst.ours_eager / worst.scale)[:4]


def measure(name: str, mode: str, given: argparse.Namespace) -> Row:
    torch._dynamo.reset()
    torch.manual_seed(0)
    original = MODELS[name](given.batch)
    sample = in_type(original, getattr(torch, given.dtype))
    model = without_dropout(sample.model) if mode == "training" else sample.model
    compilers: dict[str, Any] = {"eager": None, "fuse_opt": fuse_opt}
    if not given.no_inductor:
        compilers["inductor"] = "inductor"
    calls: dict[str, Call] = {}
    values: dict[str, dict[str, Any]] = {}
    normals: dict[str, dict[str, Any]] = {}
    first: dict[str, float] = {}
    reports: list[GraphReport] = []
    for label, backend in compilers.items():
        own = copy.deepcopy(model)
        compiled = own if backend is None else torch.compile(own, backend=backend, dynamic=False)
        calls[label] = training(compiled, sample) if mode == "training" else inference(compiled, sample)
        with collect_reports() as collected:
            started = time.perf_counter()
            values[label] = results(calls[label], own, mode)
            first[label] = round(time.perf_counter() - started, 2)
        reports += collected.graphs
        if mode == "training":
            normals[label] = results(training(compiled, sample, normal), own, mode)
    with exclusive(given.lock):
        times = interleaved(calls, given.rounds)
    counts = Counter[str]()
    for report in reports:
        counts.update(report.counts.external)
    precise = in_type(Sample(copy.deepcopy(model), sample.arguments), torch.float64)
    exact_call = training(precise.model, precise) if mode == "training" else inference(precise.model, precise)
    exact = results(exact_call, precise.model, mode)
    errors = {label: error(found, values["eager"]) for label, found in values.items() if label != "eager"}
    errors |= {f"{label}_f64": error(found, exact) for label, found in values.items()}
    errors |= {
        f"{label}_normal": error(found, normals["eager"]) for label, found in normals.items() if label != "eager"
    }
    ours = times["fuse_opt"]
    return Row(
        name, mode, given.batch, given.dtype, given.threads, sum(r.counts.nodes for r in reports),
        dict(sorted(counts.items())), sum(r.stats.kernels for r in reports),
        sum(r.stats.arena_bytes for r in reports), sum(r.stats.lower_bound_bytes or 0 for r in reports),
        errors, {label: spread([s * 1e3 for s in found]) for label, found in times.items()},
        {k: spread([a / b for a, b in zip(v, ours, strict=True)]) for k, v in times.items() if k != "fuse_opt"},
        first, round(sum(r.seconds for r in reports), 2),
        furthest(values["fuse_opt"], values["eager"], exact) if given.dtype == "float32" else [],
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
    rows: list[Row] = []
    for name in filter(None, given.models.split(",")):
        for mode in given.modes.split(","):
            rows.append(measure(name, mode, given))
            print(text(rows[-1:]).splitlines()[2], flush=True)
            if given.json:
                enter(Path(given.json), rows[-1], list(MODELS))
    found = read(Path(given.json)) if given.json else rows
    shown = f"# benchmarks/torch_models.py, PyTorch {torch.__version__}\n\n{text(found)}\n"
    print(shown)
    if given.text:
        Path(given.text).write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    main()
