"""Generated products beside those of NumPy and, where installed, PyTorch, ONNX Runtime and XLA.

    python benchmarks/products.py [--threads N] [--only TEXT ...] [--odd [ELEMENT ...]]

With several threads each has a process of its own, which is stopped while another has its turn.

Calls take turns, in slots of some milliseconds; figures are of a lower quartile, in operations a second, of processor time with
one thread and of passed time with several; `NAME/ours` is the median of the ratios of turns, for whoever is fastest of those that
are given both operands, and `ORT/frozen` that for a right operand that is a weight, which ONNX Runtime and we pack before. Small
products are many in one call. Whose values are wrong is left out, and named.
Operands and results begin a line behind a page, for everyone (results at other places cost products of bytes up to 8 %, f32 2 %).
What a person set for BLAS libraries is used, and printed. `--odd` measures ours at odd extents beside even neighbours instead, of
f32 or of the element types that are named (bf16 with fast math).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from apart import FLAG, Apart, serve
from rotation import Timer, timed, turns

Array = np.ndarray[Any, Any]
PEERS = ("NumPy", "PyTorch", "XLA")
"""Who is given both operands at each call."""
PACKS = "ORT"
"""Who has one right operand as a weight."""
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


def measure(timers: Sequence[Timer], operations: float) -> Array:
    """Seconds of a call, by slot and by what is called."""
    return turns(timers, [max(1, int(SLOT_OPERATIONS / operations))] * len(timers), SLOTS)


def timers_here(shape: Any, clock: Callable[[], float]) -> tuple[dict[str, Timer], list[str]]:
    """Of calls in this process, and whose values are wrong."""
    from product_peers import contenders, wrong

    found = contenders(shape)
    left_out = wrong(shape, found)
    return {name: timed(call, clock) for name, call in found.items() if name not in left_out}, left_out


def row(shape: Any, found: dict[str, Timer], left_out: Sequence[str]) -> str:
    from product_peers import OWN

    times = measure(list(found.values()), shape.operations)
    rates = dict(zip(found, shape.operations / np.quantile(times, 0.25, axis=0) / 1e9, strict=True))
    names = list(found)
    figures = "  ".join(f"{name} {rate:7.1f}" for name, rate in rates.items())
    ends: list[str] = []
    for own, peers in (("fast" if "fast" in found else "ours", set(PEERS)), ("frozen", {PACKS})):
        rivals = [name for name in names if name not in OWN and name in peers]
        if rivals and own in found:
            best = max(rivals, key=rates.__getitem__)
            ratio = np.median(times[:, names.index(best)] / times[:, names.index(own)])
            ends.append(f"{best}/{own} {ratio:.2f}")
    wrongs = f"  (wrong values: {', '.join(left_out)})" if left_out else ""
    return f"{shape!s:30} {figures}  {'  '.join(ends)}{wrongs}"


def odd_extents(elements: Sequence[str]) -> list[tuple[Any, Any]]:
    """Products of odd extents, each with one of even extents near to it, for each element type."""
    from product_peers import Shape

    found = [
        ((196, 384, 1536), (197, 384, 1536)),
        ((768, 768, 768), (771, 771, 771)),
        ((1024, 1024, 1024), (1021, 1021, 1021)),
    ]
    found += [
        ((196, 768, 1024), (197, 771, 1021)),
        ((592, 384, 384), (591, 389, 383)),
        ((128, 768, 3072), (127, 769, 3067)),
    ]
    found += [((16, 768, 2304), (17, 769, 2309)), ((4, 768, 2304), (5, 771, 2311)), ((1, 768, 2304), (1, 771, 2309))]
    rng = np.random.default_rng(20)
    for _ in range(6):
        even = [int(n) * 16 for n in rng.integers(3, 60, 3)]
        found.append(((even[0], even[1], even[2]), (even[0] + 1, even[1] + 3, even[2] - 3)))
    return [
        (Shape(1, *even, turned, element), Shape(1, *odd, turned, element))
        for element in elements
        for even, odd in found
        for turned in (False, True)
    ]


def odd_row(even: Any, odd: Any, clock: Callable[[], float]) -> tuple[str, float]:
    """A line, and the rate at odd extents over that at even ones."""
    from product_peers import own_call

    pair = (even, odd)
    calls = [own_call(shape, *shape.operands(), fast=shape.element == "bf16") for shape in pair]
    times = measure([timed(call, clock) for call in calls], even.operations)
    rates = [shape.operations / times[:, number] / 1e9 for number, shape in enumerate(pair)]
    ratio = float(np.median(rates[1] / rates[0]))
    low, high = np.quantile(rates, 0.75, axis=1)
    return f"{even!s:30} {low:7.1f}  {odd!s:30} {high:7.1f}  odd/even {ratio:.2f}", ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose shape has one of these texts")
    parser.add_argument("--threads", type=int, default=1, help="of everyone")
    parser.add_argument("--odd", nargs="*", metavar="ELEMENT", help="odd extents beside even ones")
    parser.add_argument(FLAG, help=argparse.SUPPRESS)
    options = parser.parse_args()
    wanted: dict[str, str] = {name: str(options.threads) for name in THREADS}
    if options.threads == 1:
        wanted["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if any(os.environ.get(name) != value for name, value in wanted.items()):  # libraries read them as they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    settings = {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}
    if options.serve is None:
        print("environment:", " ".join(f"{name}={value}" for name, value in sorted(settings.items())))
    clock = time.process_time if options.threads == 1 else time.perf_counter
    if options.odd is not None:
        ratios: list[float] = []
        for even, odd in odd_extents(options.odd or ["f32"]):
            if any(text in str(even) or text in str(odd) for text in options.only):
                line, ratio = odd_row(even, odd, clock)
                print(line, flush=True)
                ratios.append(ratio)
        if ratios:
            print(f"odd/even: least {min(ratios):.2f}, median {np.median(ratios):.2f}")
        return
    from product_peers import makers, right_call

    rows = {str(shape): shape for shape in shapes()}
    if options.serve is not None:
        serve(lambda key: right_call(rows[key], options.serve), clock)
        return
    names = list(dict.fromkeys(name for shape in rows.values() for name in makers(shape)))
    peers = None if options.threads == 1 else Apart(names)
    for key, shape in rows.items():
        if any(text in key for text in options.only):
            found = timers_here(shape, clock) if peers is None else (peers.load(key, makers(shape)), ())
            print(row(shape, *found), flush=True)
    if peers is not None:
        peers.close()


if __name__ == "__main__":
    main()
