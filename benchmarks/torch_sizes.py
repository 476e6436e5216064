"""torch.compile over lengths that vary, beside Inductor and eager: graphs compiled, seconds for that, time a call.

    python benchmarks/torch_sizes.py [--models mlp,block] [--modes inference,training] [--lengths 24] [--rounds 5] [--every]
        [--device cuda] [--seconds 60]

Lengths are drawn from 1 to 512 by a seed, with 1, 2, primes and 512 among them; `--every` first runs each length from 1 to 512
once. A length that is met first may be compiled for, and binds memory: that is the first sweep, less what a later one takes.
`new ms` is how much longer the first call of a length takes than the second one, the median of lengths behind the first four,
which compile. After it calls are taken in turns, ours, Inductor's, eager's; ratios are of processor time, of the least of the
rounds by length. On a device they are of time until it is done.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # its pool would compete with what is measured
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # first calls compile, here and there
os.environ["FUSE_OPT_CACHE_DIR"] = tempfile.mkdtemp()

import numpy as np

from fuse_opt.frontends.torch.backend import collect_reports, fuse_opt
from fuse_opt.frontends.torch.fx.api import torch

WIDTH, HEADS, MOST = 256, 4, 512
Run = Callable[[Any], Any]


class Block(torch.nn.Module):
    """A transformer block."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(WIDTH) for _ in range(2)])
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = mlp()

    def forward(self, x: Any) -> Any:
        length = x.shape[1]
        heads = self.qkv(self.norms[0](x)).view(1, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(1, length, WIDTH))
        return x + self.mlp(self.norms[1](x))


def mlp() -> Any:
    """Two layers with an activation between them."""
    wide = 4 * WIDTH
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, wide), torch.nn.GELU(), torch.nn.Linear(wide, WIDTH))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "mlp": (mlp, lambda length: torch.randn(length, WIDTH)),
    "block": (Block, lambda length: torch.randn(1, length, WIDTH)),
}


def inference(model: Any) -> Run:
    """A call without gradients."""

    def run(x: Any) -> Any:
        with torch.no_grad():
            return [model(x)]

    return run


def training(model: Any, parameters: Sequence[Any]) -> Run:
    """Forward and backward."""

    def run(x: Any) -> Any:
        y = model(x)
        return [y, *torch.autograd.grad(y, parameters, torch.ones_like(y))]

    return run


def seconds_of(run: Run, x: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    """Of a call, until it is done."""
    on_device = x.device.type == "cuda"
    clock = time.perf_counter if on_device else clock
    started = clock()
    run(x)
    if on_device:
        torch.cuda.synchronize()
    return clock() - started


def least(runs: dict[str, Run], inputs: Sequence[Any], rounds: int) -> dict[str, list[float]]:
    """By name and length the least processor time of a call, taken in turns."""
    found = {name: [float("inf")] * len(inputs) for name in runs}
    for _ in range(rounds):
        for number, x in enumerate(inputs):
            for name, run in runs.items():
                found[name][number] = min(found[name][number], seconds_of(run, x, time.process_time))
    return found


def counted(inner: Callable[..., Any], count: list[int]) -> Callable[..., Any]:
    """Inductor's compiler of a graph, counting."""

    def compile_graph(*args: Any, **keywords: Any) -> Any:
        count[0] += 1
        return inner(*args, **keywords)

    return compile_graph


def measure(name: str, mode: str, lengths: Sequence[int], rounds: int, every: bool, device: str) -> str:
    """A line of the table."""
    inductor: Any = import_module("torch._inductor.compile_fx")
    before = inductor._compile_fx_inner
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, sample = MODELS[name]
    model = make().to(device)
    inputs = [sample(length).to(device) for length in lengths]
    first = [sample(length).to(device) for length in range(1, MOST + 1)] if every else inputs
    ways = {"ours": fuse_opt, "inductor": "inductor"}
    compiled = {way: torch.compile(model, backend=backend) for way, backend in ways.items()}
    runs = {
        way: inference(m) if mode == "inference" else training(m, list(model.parameters()))
        for way, m in {**compiled, "eager": model}.items()
    }
    count, seconds, new = [0], dict[str, float](), dict[str, float]()
    inductor._compile_fx_inner = counted(before, count)
    with collect_reports() as reports:
        for way in ways:
            sweeps = [[seconds_of(runs[way], x) for x in first] for _ in range(3)]
            seconds[way] = sum(sweeps[0]) - min(map(sum, sweeps[1:]))
            new[way] = 1e3 * statistics.median(a - b for a, b in zip(sweeps[0][4:], sweeps[1][4:], strict=True))
    inductor._compile_fx_inner = before
    error = max(
        ((a - b).abs().max() / b.abs().max().clamp(min=1e-6)).item()
        for x in inputs
        for a, b in zip(runs["ours"](x), runs["eager"](x), strict=True)
    )
    times = least(runs, inputs, rounds)
    ratios = {way: [a / b for a, b in zip(times[way], times["eager"], strict=True)] for way in ways}
    geomean = {way: float(np.exp(np.mean(np.log(ratios[way])))) for way in ways}
    texts = [f"{len(reports.graphs)} / {count[0]}", *(f"{each[way]:.1f}" for each in (seconds, new) for way in ways)]
    texts += [f"{geomean[way]:.2f} ({min(ratios[way]):.2f}-{max(ratios[way]):.2f})" for way in ways]
    texts += [f"{1e6 * statistics.median(times[way]):.0f}" for way in runs]
    by_length = ", ".join(f"{n}: {a:.2f} {b:.2f}" for n, a, b in sorted(zip(lengths, *ratios.values(), strict=True)))
    return f"| {' | '.join([f'{name} {mode}', *texts, f'{error:.1e}'])} |\nby length: {by_length}"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,block")
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--lengths", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", action="store_true", help="run each length from 1 to 512 in the first sweep")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1e9, help="what begins in")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(options.seed)
    drawn = [int(rng.integers(3, MOST)) for _ in range(options.lengths - 6)]
    lengths = [5, 7, 1, 2, 127, 512, *drawn]
    print(f"torch {torch.__version__}, {options.threads} threads, lengths {lengths}")
    head = "case,graphs ours / Inductor,first s ours,Inductor,new ms ours,Inductor,ours / eager,Inductor / eager,"
    names = [*head.split(",")[:-1], "median us ours", "Inductor", "eager", "error"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)
    for name in options.models.split(","):
        for mode in options.modes.split(","):
            if time.monotonic() > ends:
                print(f"{name} {mode}: no time was left")
                continue
            print(measure(name, mode, lengths, options.rounds, options.every, options.device), flush=True)


if __name__ == "__main__":
    main()
