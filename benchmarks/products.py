"""Generated products beside NumPy's and, where it is installed, PyTorch's: `python benchmarks/products.py [--only TEXT]`.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/products.py

Calls take turns, in slots of some milliseconds of processor time; figures are of a lower quartile, in operations a second, and
ratios of a slot's own turn: min, median, max. What a person set for BLAS libraries is used, and printed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

import fuse_opt

Array = np.ndarray[Any, Any]
SHAPES: tuple[tuple[int, int, int, int, bool], ...] = (
    (1, 591, 384, 1152, False),
    (1, 591, 384, 384, False),
    (1, 591, 384, 1536, False),
    (1, 591, 1536, 384, False),
    (1, 128, 768, 768, False),
    (1, 128, 768, 3072, False),
    (1, 128, 3072, 768, False),
    (1, 197, 768, 2304, False),
    (1, 3136, 256, 64, False),
    (1, 64, 256, 3136, False),
    (1, 196, 256, 1024, False),
    (1, 49, 512, 2048, False),
    (1, 4, 768, 2304, False),
    (1, 1, 768, 2304, False),
    (1, 64, 64, 64, False),
    (1, 100, 100, 100, False),
    (1, 256, 256, 256, False),
    (1, 511, 511, 511, False),
    (1, 1024, 1024, 1024, False),
    (1, 197, 771, 1021, False),
    (1, 591, 384, 1152, True),
    (18, 197, 64, 197, True),
    (18, 197, 197, 64, False),
)
"""Matrices, rows, contracted extent, columns, and whether the right operand is transposed."""
SLOTS = 15
SLOT_OPERATIONS = 3e8


def program(count: int, rows: int, depth: int, columns: int, transposed: bool) -> tuple[Any, Array, Array]:
    batch = f"{count}x" if count > 1 else ""
    right = (columns, depth) if transposed else (depth, columns)
    x, w, y = (f"tensor<{batch}{a}x{b}xf32>" for a, b in ((rows, depth), right, (rows, columns)))
    flag = "{transpose_rhs = true} " if transposed else ""
    text = (
        f"func.func @main(%x: {x}, %w: {w}) -> {y} {{\n"
        f"  %0 = graph.matmul %x, %w {flag}: ({x}, {w}) -> {y}\n  func.return %0 : {y}\n}}"
    )
    rng = np.random.default_rng(0)
    many = (count,) if count > 1 else ()
    arrays = [rng.standard_normal((*many, *shape)).astype(np.float32) for shape in ((rows, depth), right)]
    return fuse_opt.compile(text), arrays[0], arrays[1]


def contenders(shape: tuple[int, int, int, int, bool]) -> dict[str, Callable[[], object]]:
    ours, x, w = program(*shape)
    transposed_w = w.swapaxes(-1, -2) if shape[-1] else w
    out: Array = np.zeros(np.matmul(x, transposed_w).shape, np.float32)
    found: dict[str, Callable[[], object]] = {
        "ours": lambda: ours(x, w, out=out),
        "NumPy": lambda: np.matmul(x, transposed_w, out=out),
    }
    if find_spec("torch") is not None:
        import torch

        tensors: list[Any] = [torch.from_numpy(array) for array in (x, transposed_w, out.copy())]
        found["PyTorch"] = lambda: torch.matmul(tensors[0], tensors[1], out=tensors[2])
    return found


def measure(calls: Sequence[Callable[[], object]], repeat: int) -> Array:
    """Processor seconds of a call, by slot and by what is called."""
    times = np.zeros((SLOTS, len(calls)))
    for call in calls:
        call()
    for slot in range(SLOTS):
        for place in range(len(calls)):
            number = (place + slot) % len(calls)
            start = time.process_time()
            for _ in range(repeat):
                calls[number]()
            times[slot, number] = (time.process_time() - start) / repeat
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose shape has this text")
    options = parser.parse_args()
    settings = {
        name: value for name, value in os.environ.items() if name.startswith(("OPENBLAS_", "MKL_", "OMP_", "FUSE_"))
    }
    print("environment:", " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "nothing set")
    for shape in SHAPES:
        count, rows, depth, columns, transposed = shape
        name = f"{count} x " * (count > 1) + f"{rows}x{columns}x{depth}" + " transposed" * transposed
        if options.only not in name:
            continue
        operations = 2.0 * count * rows * depth * columns
        found = contenders(shape)
        times = measure(list(found.values()), max(1, int(SLOT_OPERATIONS / operations)))
        rates = operations / np.quantile(times, 0.25, axis=0) / 1e9
        line = "  ".join(f"{who} {rate:6.1f}" for who, rate in zip(found, rates, strict=True))
        ratios = times[:, 1:] / times[:, :1]
        shown = "  ".join(
            f"{who}/ours {least:.2f} {middle:.2f} {most:.2f}"
            for who, least, middle, most in zip(
                list(found)[1:], ratios.min(0), np.median(ratios, 0), ratios.max(0), strict=True
            )
        )
        print(f"{name:32} GF/s: {line}  {shown}", flush=True)


if __name__ == "__main__":
    main()
