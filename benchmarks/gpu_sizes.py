"""One CUDA program for all sizes beside programs made for each, on the GPU that is there: values, times, and what calls cost.

    python benchmarks/gpu_sizes.py [--only softmax,gelu] [--sizes 12] [--seed 1] [--seconds 100] [--texts]

Sizes are drawn from the seed, evenly by their logarithms. A row has the geometric mean and the most of the times of one program
over those of programs of numbers, by CUDA events, in turns; a time is of enough calls to keep the device busy. Calls are host
microseconds: of sizes met before, of new ones, and of the program of numbers. `--texts` says, without a GPU, which schedules
either has.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Any

import numpy as np

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.lowering.emit.cuda import build_sized_cuda_program
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, FOR_CPUS, make_passes
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.compiler.sized import plan_for_sizes, stated_function
from fuse_opt.tools.compiler.specialization import specialize
from fuse_opt.tools.source.parsing import parse_module

torch: Any = None
ROWS, COLUMNS = (1, 30_000), (1, 3_000)
MOST_ELEMENTS = 1 << 25
ROUNDS = 7
_MOST_CALLS = 60
_CYCLES_A_CALL = 80_000
"""Of the device, in which the host has enqueued a call: 40 us."""


@dataclass(frozen=True)
class Case:
    """A program over symbols m and n, and what shapes its arguments have."""

    text: str
    shapes: Callable[[int, int], Sequence[tuple[int, ...]]]


def one_op(line: str, x: str, r: str, others: Sequence[str] = ()) -> str:
    heads = "".join(f", %o{k}: tensor<{each}>" for k, each in enumerate(others))
    types = ", ".join(f"tensor<{each}>" for each in (x, *others))
    names = "".join(f", %o{k}" for k in range(len(others)))
    op, _, attributes = line.partition(" ")
    body = f"%r = graph.{op} %x{names} {attributes} : ({types}) -> tensor<{r}>"
    return f"func.func @main(%x: tensor<{x}>{heads}) -> tensor<{r}> {{\n{body}\nfunc.return %r : tensor<{r}>\n}}"


FFN = """func.func @main(%x: tensor<?x512xf32>, %w: tensor<512x2048xf32>, %v: tensor<2048x512xf32>, %s: tensor<512xf32>)
    -> tensor<?x512xf32> {
  %n = graph.rms_norm %x, %s : (tensor<?x512xf32>, tensor<512xf32>) -> tensor<?x512xf32>
  %a = graph.matmul %n, %w : (tensor<?x512xf32>, tensor<512x2048xf32>) -> tensor<?x2048xf32>
  %g = graph.gelu %a : (tensor<?x2048xf32>) -> tensor<?x2048xf32>
  %b = graph.matmul %g, %v : (tensor<?x2048xf32>, tensor<2048x512xf32>) -> tensor<?x512xf32>
  %r = graph.add %b, %x : (tensor<?x512xf32>, tensor<?x512xf32>) -> tensor<?x512xf32>
  func.return %r : tensor<?x512xf32>
}"""
LAST, FIRST = "axes = array<i64: 1>", "axes = array<i64: 0>"
CASES: dict[str, Case] = {
    "gelu": Case(one_op("gelu", "?xf32", "?xf32"), lambda m, n: [(m * n,)]),
    "gelu_bf16": Case(one_op("gelu", "?xbf16", "?xbf16"), lambda m, n: [(m * n,)]),
    "bias": Case(one_op("add", "?x?xf32", "?x?xf32", ["?xf32"]), lambda m, n: [(m, n), (n,)]),
    "softmax_768": Case(one_op("softmax", "?x768xf32", "?x768xf32"), lambda m, n: [(m, 768)]),
    "softmax_64": Case(one_op("softmax", "?x64xf32", "?x64xf32"), lambda m, n: [(8 * m, 64)]),
    "softmax": Case(one_op("softmax", "?x?xf32", "?x?xf32"), lambda m, n: [(m, n)]),
    "layer_norm_1024": Case(
        one_op("layer_norm", "?x1024xf32", "?x1024xf32", ["1024xf32", "1024xf32"]),
        lambda m, n: [(m, 1024), (1024,), (1024,)],
    ),
    "layer_norm": Case(
        one_op("layer_norm", "?x?xf32", "?x?xf32", ["?xf32", "?xf32"]), lambda m, n: [(m, n), (n,), (n,)]
    ),
    "sum_rows": Case(one_op(f"sum {{{LAST}}}", "?x?xf32", "?xf32"), lambda m, n: [(m, n)]),
    "sum_axis0": Case(one_op(f"sum {{{FIRST}}}", "?x512xf32", "512xf32"), lambda m, n: [(4 * m, 512)]),
    "sum_all": Case(one_op("sum", "?xf32", "f32"), lambda m, n: [(m * n,)]),
    "transpose": Case(one_op("permute_dims {axes = array<i64: 1, 0>}", "?x?xf32", "?x?xf32"), lambda m, n: [(m, n)]),
    "attention_bf16": Case(
        one_op("scaled_dot_product_attention", "?x8x?x64xbf16", "?x8x?x64xbf16", ["?x8x?x64xbf16"] * 2),
        lambda m, n: [(1 + m % 4, 8, n, 64)] * 3,
    ),
    "attention": Case(
        one_op("scaled_dot_product_attention", "?x8x?x64xf32", "?x8x?x64xf32", ["?x8x?x64xf32"] * 2),
        lambda m, n: [(1 + m % 4, 8, n, 64)] * 3,
    ),
    "ffn": Case(FFN, lambda m, n: [(n, 512), (512, 2048), (2048, 512), (512,)]),
}


def drawn(rng: np.random.Generator) -> tuple[int, int]:
    def one(low: int, high: int) -> int:
        return int(exp(rng.uniform(log(low), log(high + 1))))

    while True:
        m, n = one(*ROWS), one(*COLUMNS)
        if m * n <= MOST_ELEMENTS:
            return m, n


def of_numbers(text: str, shapes: Sequence[tuple[int, ...]]) -> Any:
    """The program for these shapes alone."""
    return fuse_opt.compile(specialize(parse_module(text, "case", make_context()), None, tuple(shapes)), target="cuda")


def milliseconds(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The median of rounds in turns, of each, by events around so many calls that they take a millisecond or more."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[list[float]] = [[] for _ in calls]
    counts: list[int] = []
    for call in calls:
        for _ in range(5):
            call()
        start.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        counts.append(max(10, min(_MOST_CALLS, int(10 / max(start.elapsed_time(end), 1e-3)))))
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            torch.cuda._sleep(_CYCLES_A_CALL * counts[number])  # calls are enqueued before the first one runs
            start.record()
            for _ in range(counts[number]):
                call()
            end.record()
            end.synchronize()
            times[number].append(start.elapsed_time(end) / counts[number])
    return [statistics.median(each) for each in times]


def host_us(call: Callable[[], Any], count: int = 100) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        call()
    taken = time.perf_counter() - started
    torch.cuda.synchronize()
    return 1e6 * taken / count


def shapes_of(name: str, sizes: int, seed: int) -> list[Sequence[tuple[int, ...]]]:
    """What a case is measured at."""
    rng = np.random.default_rng(seed)
    return [CASES[name].shapes(*drawn(rng)) for _ in range(sizes)]


def compile_one(name: str, shapes: Sequence[tuple[int, ...]] | None) -> None:
    """Fills the cache of the disk with the program for these shapes, or with the one for all; what is wrong, `measure` says."""
    import torch as module

    text = CASES[name].text
    program = fuse_opt.compile(text, target="cuda") if shapes is None else of_numbers(text, shapes)
    kind = module.bfloat16 if "bf16" in text else module.float32
    program(*(module.zeros(shape, device="cuda", dtype=kind) for shape in shapes or CASES[name].shapes(2, 2)))


def compile_all(names: Sequence[str], sizes: int, seed: int) -> None:
    """All programs, in as many processes as there are processors, so that the time is left to measurements."""
    jobs = [(name, shapes) for name in names for shapes in (None, *shapes_of(name, sizes, seed))]
    workers = max(1, len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(compile_one, *each) for each in jobs]:
            job.exception()


def measure(name: str, sizes: int, seed: int, ends: float) -> str:
    case = CASES[name]
    whole = fuse_opt.compile(case.text, target="cuda")
    ratios: list[float] = []
    new: list[float] = []
    calls: tuple[float, float] = (0.0, 0.0)
    worst, error, compiled = "", 0.0, 0.0
    for number, shapes in enumerate(shapes_of(name, sizes, seed)):
        if number and time.monotonic() > ends:
            break
        kind = torch.bfloat16 if "bf16" in case.text else torch.float32
        arrays = [torch.randn(shape, device="cuda").to(kind) for shape in shapes]
        started = time.perf_counter()
        found = whole(*arrays)
        torch.cuda.synchronize()
        first = time.perf_counter() - started
        if number:
            new.append(1e6 * first)
        else:
            compiled = first
        known = of_numbers(case.text, shapes)
        wanted = known(*arrays)
        scale = max(float(wanted.float().abs().max()), 1e-6)
        error = max(error, float((found.float() - wanted.float()).abs().max()) / scale)
        both = [partial(whole, *arrays), partial(known, *arrays)]
        ours, theirs = milliseconds(both)
        ratios.append(ours / theirs)
        if ratios[-1] == max(ratios):
            worst = "x".join(map(str, shapes[0]))
        calls = host_us(both[0]), host_us(both[1])
    mean = exp(statistics.fmean(map(log, ratios)))
    cells = [name, len(ratios), f"{mean:.3f}", f"{max(ratios):.2f}", worst, f"{error:.1e}", whole.native.made]
    cells += [f"{calls[0]:.1f}", f"{calls[1]:.1f}", f"{statistics.median(new):.0f}", f"{compiled:.2f}"]
    return f"| {' | '.join(map(str, cells))} |"


def text_for_all(text: str) -> str:
    """The text of the program for all sizes."""
    module = parse_module(text, "case", make_context())
    make_for(module, "cuda")
    stated_function(module, None)
    with sizes_asked_for():
        plan_for_sizes(module, None, make_passes(",".join(n for n in DEFAULT_PIPELINE if n not in FOR_CPUS)))
        return build_sized_cuda_program(module).program.source


def texts(name: str) -> str:
    """The schedules of kernels, for all sizes and for some."""
    case, found = CASES[name], list[str]()
    for source in (text_for_all(case.text), of_numbers(case.text, case.shapes(8000, 512)).source):
        lines = [line for line in source.splitlines() if line.startswith("// schedule: ")]
        found.append("; ".join(line.removeprefix("// schedule: ") for line in lines))
    return f"{name}\n  any:  {found[0]}\n  some: {found[1]}"


def main() -> None:
    global torch
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--sizes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--texts", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",")
    if options.texts:
        print("\n".join(map(texts, names)))
        return
    import torch as module

    torch = module
    ends = time.monotonic() + options.seconds
    compile_all(names, options.sizes, options.seed)
    head = "case,sizes,over programs of numbers,worst,where,difference,specialised,call us,of numbers us,new sizes us,first s"
    print(f"| {' | '.join(head.split(','))} |\n|{'---|' * len(head.split(','))}", flush=True)
    for number, name in enumerate(names):
        share = (ends - time.monotonic()) / (len(names) - number)
        try:
            print(measure(name, options.sizes, options.seed, time.monotonic() + share), flush=True)
        except Exception as error:
            print(f"| {name} | failed: {type(error).__name__}: {error} |", flush=True)


if __name__ == "__main__":
    main()
