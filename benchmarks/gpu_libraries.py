"""Calls of NVIDIA's libraries beside code of our own for the same op, on the GPU that is there: what costs by rates stand for.

    python benchmarks/gpu_libraries.py [--only csr,attention,norm] [--seconds 60] [--dry-run]

Products of csr matrices by `cusparse` and `gpu`, attention and norms by `cudnn_graph` and generated. A row has the median of CUDA
events and the largest difference from the first way, as a part of the largest result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda_sparse_scenarios import csr_product_text
from cuda_whole_scenarios import whole_text
from gpu_measure import Bench
from numpy.typing import NDArray

from fuse_opt.lowering.program.float_formats import narrow, widen
from fuse_opt.runtime.backends.registry import unavailable_backends
from fuse_opt.tools.compiler.api import compile
from fuse_opt.tools.source.diagnostics import InputError

Array = NDArray[Any]
_SETS = 3
_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class Case:
    """An op with its ways, each a text and the implementation that it names; nothing for code of the program."""

    name: str
    text: Callable[[str], str]
    ways: tuple[str, ...]
    arrays: Callable[[int], list[Array]]
    """By a seed."""


def csr_case(rows: int, columns: int, entries: float, width: int, skewed: bool = False) -> Case:
    """So many entries a row on average; skewed: as of a graph in which few nodes have most edges."""
    random = np.random.default_rng(rows + width)
    weights = 1 / (1 + np.arange(rows)) ** 0.7 if skewed else np.ones(rows)
    counts: Array = random.poisson(entries * rows * weights / weights.sum())
    places: list[Array] = [np.unique(random.integers(0, columns, n)) for n in counts]
    indptr = np.cumsum([0, *map(len, places)], dtype=np.int32)
    indices = np.concatenate(places).astype(np.int32)
    more = len(indices) // 20 + 1  # behind the last entry
    indices = np.concatenate([indices, np.zeros(more, np.int32)])

    def arrays(seed: int) -> list[Array]:
        made = np.random.default_rng(seed)
        values, x = (made.standard_normal(shape).astype(np.float32) for shape in (len(indices), (columns, width)))
        return [indptr, indices, values, x]

    name = f"csr {rows}x{columns}x{width}, {entries:g} a row{', skewed' if skewed else ''}"
    ways = ("gpu.csr_matmul", "cusparse.csr_matmul")
    return Case(name, lambda way: csr_product_text(rows, columns, len(indices), width, "f32", way), ways, arrays)


def whole_case(op: str, operands: Sequence[tuple[int, ...]], result: tuple[int, ...], dtype: str) -> Case:
    def arrays(seed: int) -> list[Array]:
        made = np.random.default_rng(seed)
        found = [made.standard_normal(shape).astype(np.float32) for shape in operands]
        return [narrow(x, "bf16") if dtype == "bf16" else x.astype(f"f{int(dtype[1:]) // 8}") for x in found]

    name = f"{'attention' if op == _ATTENTION else op} {dtype} {'x'.join(map(str, operands[0]))}"
    ways = ("", f"cudnn_graph.{op}")
    return Case(name, lambda way: whole_text(op, "", list(operands), result, dtype, way), ways, arrays)


def cases(dry: bool) -> list[Case]:
    n = 16 if dry else 1
    attention = [((8, 16, 1024 // n, 64), "bf16"), ((4, 16, 1999 // n, 128), "bf16"), ((8, 16, 517 // n, 64), "f16")]
    if dry:
        attention = [((1, 2, *shape[2:]), dtype) for shape, dtype in attention]
    norms = [((8192 // n, 1024 // n), "f32"), ((8192 // n, 768 // n), "bf16")]
    return [
        csr_case(1024 // n, 1024 // n, 10 / n, 512 // n),
        csr_case(1024 // n, 1024 // n, 100 / n, 512 // n),
        csr_case(1024 // n, 1024 // n, 100 / n, 8),
        csr_case(20_000 // n, 20_000 // n, 10, 64 // n),
        csr_case(20_000 // n, 20_000 // n, 10, 64 // n, skewed=True),
        *(whole_case(_ATTENTION, [shape] * 3, shape, dtype) for shape, dtype in attention),
        *(whole_case("layer_norm", [shape, shape[-1:], shape[-1:]], shape, dtype) for shape, dtype in norms),
        *(whole_case("rms_norm", [shape, shape[-1:]], shape, dtype) for shape, dtype in norms),
    ]


def measure(bench: Bench, case: Case) -> list[str]:
    rows: list[str] = []
    known: list[Array] = []
    for way in case.ways:
        backend = way.partition(".")[0]
        if backend in unavailable_backends("cuda"):
            rows.append(f"| {case.name} | {way} | - | the library is not here |")
            continue
        try:
            program: Any = compile(case.text(way), target="cuda", backend=backend or None).native
        except InputError as refused:  # an older device, or library
            rows.append(f"| {case.name} | {way} | - | {str(refused).partition('refuses it: ')[2] or refused} |")
            continue
        sets = [[bench.gpuarray.to_gpu(x) for x in case.arrays(seed)] for seed in range(_SETS)]
        found = program(*sets[0]).get()
        result = (widen(found) if found.dtype.kind == "V" else found).astype(np.float64)
        known.append(result)
        wanted = known[0]
        error = float(np.max(np.abs(result - wanted))) / max(float(np.max(np.abs(wanted))), 1e-30)
        ms = bench.milliseconds([program.bind(*arrays) for arrays in sets], together=5)
        rows.append(f"| {case.name} | {way or 'generated'} | {ms:.4f} | {error:.1e} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="beginnings of names, with commas between them")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    bench, ends, failed = Bench(options.dry_run, ()), time.monotonic() + options.seconds, 0
    print("| case | way | ms | difference |\n|---|---|---|---|")
    for case in cases(options.dry_run):
        if options.only and not case.name.startswith(tuple(options.only.split(","))):
            continue
        if time.monotonic() > ends:
            print(f"| {case.name} | left out | - | - |")
            continue
        try:
            with bench.device.active():
                print("\n".join(measure(bench, case)), flush=True)
        except Exception as error:  # what a library refuses takes nothing from the others
            failed += 1
            print(f"| {case.name} | FAILED | - | {type(error).__name__}: {error} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
