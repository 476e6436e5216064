"""Kernels at extents that nobody chose, beside other compilers: `python benchmarks/odd_sizes.py [--seed 0] [--draws 2]`.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/odd_sizes.py
        [--workloads W2,W4] [--sizes L2,DRAM] [--peers c,ort] [--rounds 11] [--neighbours]

For each workload and size so many extents are drawn from the seed: an even one, an odd one and a prime one in turns. All run in
one process, in one rotation; figures are medians over rounds of ratios of processor time. Each line says `behind` and by how much
where the best peer is ahead of us; the last one counts these. Peers that are not installed are left out.

`--neighbours` measures rows of N elements beside rows of the next multiple of 16, for each of both per element.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
from cpu_functions import Numpy
from cpu_peer_base import Loaded
from cpu_peer_kinds import PEERS
from cpu_peer_process import largest_error
from cpu_workloads import SIZES, Case, as_tuple, cases
from gpu_workloads import Workload

ROW = {"W1": 8, "W1b": 4, "W1h": 4}
"""By workload of one dimension: bytes of an element."""
CHOSEN = ("W1", "W1b", "W1h", "W2", "W2c", "W3", "W4", "W5", "W6", "W6s", "W8", "W9", "W10")
SLOT_S = 0.004
"""Of processor time, at least, in a turn."""


def biased_gelu_by_erfc(f: Any, x: Any, bias: Any) -> Any:
    """As jax writes it."""
    v = x + bias
    return v * f.erfc(v * -(0.5**0.5)) * 0.5


def known() -> dict[str, Workload]:
    """The workloads by name, with some of other types or another form."""
    found = {case.name: case.workload for case in cases() if case.size == "L2"}
    found["W1h"] = replace(found["W1b"], name="W1h", dtypes="f16")
    found["W2c"] = replace(found["W2"], name="W2c", about="bias + GELU (erfc)", body=biased_gelu_by_erfc)
    return found


def extents(drawer: random.Random, kind: int, least: int, most: int) -> int:
    """A number in the range, log-uniformly: even, odd, prime."""
    while True:
        drawn = int(exp(drawer.uniform(log(least), log(most))))
        drawn = drawn // 2 * 2 + int(kind != 0)
        if kind < 2 or all(drawn % k for k in range(2, int(drawn**0.5) + 1)):
            return drawn


def sized(workload: Workload, size: str, drawer: random.Random, kind: int) -> Workload:
    """The workload with extents that fill the size."""
    budget = SIZES[size]
    if len(workload.shapes[0]) == 1:
        count = budget // ROW[workload.name]
        return replace(workload, shapes=((extents(drawer, kind, count // 2, count),),))
    row = extents(drawer, kind, 64, 1600)
    width = workload.shapes[0][1]
    if workload.name == "W8":
        shapes: list[tuple[int, ...]] = [(0, 4 * row), (0, row)]
    elif workload.name == "W10":
        side = int((budget / 12) ** 0.5)
        one, other = (extents(drawer, kind, side * 9 // 10, side) for _ in range(2))
        return replace(workload, shapes=((one, other), (other, one)))
    else:
        shapes = [tuple(row if n == width else n for n in shape) for shape in workload.shapes]
    results = {"W5": 8, "W8": 2 * 4, "W9": 0}.get(workload.name, 4) * row
    tall = [k for k, shape in enumerate(workload.shapes) if len(shape) == 2]
    bytes_of_row = results + sum(shapes[k][1] * (1 if workload.dtype(k) == "i1" else 4) for k in tall)
    rows = max(budget // bytes_of_row - kind, 3)
    return replace(workload, shapes=tuple((rows, s[1]) if k in tall else s for k, s in enumerate(shapes)))


def loaded(case: Case, names: Sequence[str]) -> tuple[dict[str, Callable[[], Any]], list[str]]:
    """The calls by name, right within the tolerance, and who was left out and why."""
    inputs = case.inputs()
    wide = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in inputs]
    wanted = [a.astype(np.float32) for a in as_tuple(case.workload.body(Numpy(), *wide))]
    calls: dict[str, Callable[[], Any]] = {}
    left: list[str] = []
    for name in names:
        try:
            made = PEERS[name].loader(case, [a.copy() for a in inputs], wanted)
            call = made.call if isinstance(made, Loaded) else made
            found = PEERS[name].numbers(call())
        except Exception as failure:  # a peer that cannot is a peer less
            left.append(f"{name}: {type(failure).__name__} {str(failure).splitlines()[0][:60] if str(failure) else ''}")
            continue
        error = largest_error(found, wanted)
        if error <= case.tolerance * (1 if case.dtype == "f32" else 4):
            calls[name] = call
        else:
            left.append(f"{name}: wrong by {error:.1e}")
    return calls, left


def measure(calls: Sequence[Callable[[], Any]], rounds: int) -> Any:
    """Seconds of processor time of a call, by round and call: the least of a turn's calls."""
    clock, counts = time.process_time, list[int]()
    for call in calls:
        call()
        begun = clock()
        call()
        counts.append(max(1, int(SLOT_S / max(clock() - begun, 1e-7))))
    times = np.empty((rounds, len(calls)))
    for k in range(rounds):
        for n in range(len(calls)):
            place = (n + k) % len(calls)
            calls[place]()
            begun = clock()
            for _ in range(counts[place]):
                calls[place]()
            times[k, place] = (clock() - begun) / counts[place]
    return times


def rows(options: argparse.Namespace) -> Iterator[tuple[str, float, dict[str, float]]]:
    """What was measured: the case, our microseconds, the others' over ours."""
    everyone = known()
    names = ["fuse-opt", *options.peers.split(",")]
    for name in options.workloads.split(","):
        for size in options.sizes.split(","):
            drawer = random.Random(f"{options.seed} {name} {size}")
            for draw in range(options.draws):
                workload = sized(everyone[name], size, drawer, (draw + options.seed) % 3)
                calls, left = loaded(Case(workload, size), names)
                shape = "x".join(map(str, workload.shapes[0]))
                if "fuse-opt" not in calls:
                    raise SystemExit(f"{name} {shape}: {left}")
                times = measure(list(calls.values()), options.rounds)
                ratios = np.median(times[:, 1:] / times[:, :1], axis=0)
                title = f"{name:4} {size:4} {shape:>12}"
                if options.verbose and left:
                    print(f"{title}  left out: {'; '.join(left)}")
                yield title, float(np.median(times[:, 0])) * 1e6, dict(zip(list(calls)[1:], ratios, strict=True))


def neighbours(options: argparse.Namespace) -> None:
    """Rows of N elements beside those of the next multiple of 16."""
    everyone, drawer = known(), random.Random(options.seed)
    drawn = sorted({int(exp(drawer.uniform(log(17), log(2048)))) | 1 for _ in range(options.draws)})
    for name in (n for n in options.workloads.split(",") if n in ("W2", "W4", "W5", "W6")):
        worst = 0.0
        for n in drawn:
            calls: list[Callable[[], Any]] = []
            wide = -(-n // 16) * 16
            for width in (n, wide):
                workload = everyone[name]
                old = workload.shapes[0][1]
                count = max((1 << 18) // wide // 4, 8)
                shapes = tuple(
                    (count, width) if len(s) == 2 and s[1] == old else tuple(width if e == old else e for e in s)
                    for s in workload.shapes
                )
                found, left = loaded(Case(replace(workload, shapes=shapes), "L2"), ["fuse-opt"])
                if left:
                    raise SystemExit(str(left))
                calls += found.values()
            times = measure(calls, options.rounds)
            ratio = float(np.median(times[:, 0] / times[:, 1]))
            worst = max(worst, ratio)
            print(f"{name:4} N = {n:5}: {ratio:.2f} of the time of {wide}", flush=True)
        print(f"{name:4} worst {worst:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--draws", type=int, default=2, help="extents of each workload and size, or of rows (default: 2)"
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--workloads", default=",".join(CHOSEN))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--peers", default="c,inductor,ort,xla,numexpr")
    parser.add_argument("--neighbours", action="store_true", help="rows of N beside rows of the next multiple of 16")
    parser.add_argument("--verbose", action="store_true", help="also say who was left out, and why")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CPU_PEERS_FOLDER"] = folder
        if options.neighbours:
            neighbours(options)
            return
        behind = total = 0
        for title, microseconds, ratios in rows(options):
            best = min(ratios, key=ratios.__getitem__, default=None)
            total += 1
            over = 0.0 if best is None else 1 / ratios[best]
            behind += over > 1.0
            others = "  ".join(f"{name} {ratio:5.2f}" for name, ratio in ratios.items())
            mark = f"behind {best} {over:.2f}" if over > 1.0 else ""
            print(f"{title}  ours {microseconds:10.1f} us  times ours: {others}  {mark}", flush=True)
        print(f"behind in {behind} of {total}")


if __name__ == "__main__":
    main()
