"""Generated products beside those of NumPy and, where installed, PyTorch, ONNX Runtime and XLA.

    python benchmarks/products.py [--threads N] [--only TEXT]

Calls take turns, in slots of some milliseconds; figures are of a lower quartile, in operations a second, of processor time with
one thread and of passed time with several; `best/ours` is the median of the ratios of turns, for whoever is fastest besides us.
Small products are many in one call. ONNX Runtime has one right operand as a weight, which it packs before; others are given both.
What a person set for BLAS libraries is used, and printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SLOTS = 15
SLOT_OPERATIONS = 8e8
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "FUSE_OPT_NUM_THREADS")
PREFIXES = ("OPENBLAS_", "MKL_", "OMP_", "ONEDNN_", "DNNL_", "XLA_", "FUSE_")


def shapes() -> list[Any]:
    """The products that are measured, by kind."""
    from product_peers import Shape

    large = [(591, 384, 1152), (591, 384, 384), (591, 384, 1536), (591, 1536, 384), (128, 768, 768), (128, 768, 3072)]
    large += [(128, 3072, 768), (197, 768, 2304), (3136, 256, 64), (64, 256, 3136), (196, 256, 1024), (49, 512, 2048)]
    large += [(256, 256, 256), (511, 511, 511), (1024, 1024, 1024), (197, 771, 1021)]
    few = [(1, 768, 2304), (2, 768, 2304), (4, 768, 2304), (8, 768, 2304), (16, 768, 2304), (32, 768, 2304)]
    narrow = [(2304, 768, 1), (4096, 512, 4), (4096, 64, 8), (591, 32, 12)]
    found = [Shape(1, *extents) for extents in large]
    found += [Shape(1, 591, 384, 1152, True), Shape(18, 197, 64, 197, True), Shape(18, 197, 197, 64)]
    found += [Shape(1, *extents, turned) for extents in few for turned in (False, True)]
    found += [Shape(1, *extents) for extents in narrow]
    found += [Shape(1, 64, 64, 64), Shape(1, 100, 100, 100)]
    found += [Shape(count, n, n, n) for count, n in ((1000, 8), (300, 16), (100, 32), (20, 64), (10, 100))]
    found += [Shape(1, 591, 384, 1536, False, "f64")]
    found += [Shape(1, 591, 384, 1536, turned, "bf16") for turned in (False, True)]
    found += [
        Shape(1, 128, 768, 768, True, "bf16"),
        Shape(1, 4, 768, 2304, True, "bf16"),
        Shape(1, 591, 384, 1536, True, "f16"),
    ]
    found += [Shape(1, 591, 384, 1536, False, name) for name in ("i8", "ui8")]
    return [*found, Shape(1, 591, 1536, 384, True, "i8"), Shape(1, 128, 768, 768, False, "ui8")]


def measure(calls: Sequence[Callable[[], object]], repeat: int, clock: Callable[[], float]) -> Array:
    """Seconds of a call, by slot and by what is called."""
    times = np.zeros((SLOTS, len(calls)))
    for call in calls:
        call()
    for slot in range(SLOTS):
        for place in range(len(calls)):
            number = (place + slot) % len(calls)
            calls[number]()  # whose operands the one before has driven from the caches
            start = clock()
            for _ in range(repeat):
                calls[number]()
            times[slot, number] = (clock() - start) / repeat
    return times


def row(shape: Any, clock: Callable[[], float]) -> str:
    from product_peers import check, contenders

    found = contenders(shape)
    check(shape, found)
    times = measure(list(found.values()), max(1, int(SLOT_OPERATIONS / shape.operations)), clock)
    rates = dict(zip(found, shape.operations / np.quantile(times, 0.25, axis=0) / 1e9, strict=True))
    own = [name for name in ("ours", "fast") if name in rates]
    best = max((name for name in rates if name not in own), key=rates.__getitem__)
    names = list(found)
    ratio = np.median(times[:, names.index(best)] / times[:, names.index(own[-1])])
    figures = "  ".join(f"{name} {rate:7.1f}" for name, rate in rates.items())
    return f"{shape!s:30} {figures}  best {best}: {best}/{own[-1]} {ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose shape has this text")
    parser.add_argument("--threads", type=int, default=1, help="of everyone")
    options = parser.parse_args()
    wanted = dict.fromkeys(THREADS, str(options.threads))
    if options.threads == 1:
        wanted["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if any(os.environ.get(name) != value for name, value in wanted.items()):  # libraries read them as they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    settings = {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}
    print("environment:", " ".join(f"{name}={value}" for name, value in sorted(settings.items())))
    clock = time.process_time if options.threads == 1 else time.perf_counter
    for shape in shapes():
        if options.only in str(shape):
            print(row(shape, clock), flush=True)


if __name__ == "__main__":
    main()
