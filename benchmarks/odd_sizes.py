"""Kernels at extents that nobody chose, beside other compilers: `python benchmarks/odd_sizes.py [--seed 0] [--draws 3]`.

    FUSE_OPT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/odd_sizes.py
        [--only W2,W4] [--level L2,DRAM] [--limit SECONDS] [--peers c,ort] [--rounds 15] [--neighbours] [--threads]

For each kernel of odd_workloads.py and level of memory so many extents are drawn from the seed: an even one, an odd one and a
prime one in turns. All peers run in one process, in one rotation; figures are medians over rounds of ratios of processor time.
With one thread in the environment, as above, all peers have one: of two, each would have a second level cache of its own, of
which processor time shows nothing. Arrays that peers are given lie in the same memory, a line behind a page, for all of them, and
no peer finds the processor taking small numbers for zero, as it does from then on where C of -ffast-math was loaded. Each line
says `behind` and by how much where the best peer is ahead of us; these lines are repeated at the end, the worst first. Peers that
are not installed are left out. With `--limit` nothing begins after so many seconds, and what is left is said.

`--neighbours` measures rows of N elements beside rows of the next multiple of 16, for each of both per element. `--threads`
measures time on the clock with all threads beside that with one, at sizes from 128 KiB to 8 MiB (without these variables).
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import exp, log
from typing import Any

import numpy as np
from cpu_functions import Numpy
from cpu_peer_base import Loaded, Rooms
from cpu_peer_c import alike
from cpu_peer_kinds import PEERS, threads
from cpu_peer_process import largest_error
from cpu_workloads import SIZES, Case, as_tuple, check
from odd_workloads import KERNELS, Draw, workload

from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads

SLOT_S, GROUP_S = 0.003, 0.0001
"""Of processor time, at least, in a turn, and in a group of calls of which others' processes may take the caches."""
WARM = 4
"""Calls of a turn that are not counted: a third level cache keeps what was in it for a while."""
OWN = "fuse-opt"


@dataclass(frozen=True)
class Row:
    """What was measured of a kernel at some extents."""

    title: str
    microseconds: float
    ratios: dict[str, np.ndarray[Any, Any]]
    """By peer: its time over ours, in each round."""

    @property
    def over(self) -> float:
        """Our time over that of the best peer."""
        return max((float(1 / np.median(ratio)) for ratio in self.ratios.values()), default=0.0)

    def __str__(self) -> str:
        medians = {name: float(np.median(ratio)) for name, ratio in self.ratios.items()}
        others = "  ".join(f"{name} {ratio:5.2f}" for name, ratio in medians.items())
        text = f"{self.title}  ours {self.microseconds:9.1f} us  times ours: {others}"
        if self.over <= 1.0:
            return text
        best = min(medians, key=medians.__getitem__)
        least, most = (1 / float(pick(self.ratios[best])) for pick in (np.max, np.min))
        return f"{text}  behind {best} {self.over:.2f} ({least:.2f} to {most:.2f})"


def loaded(case: Case, names: Sequence[str]) -> tuple[dict[str, Callable[[], Any]], list[str]]:
    """The calls by name, right within the tolerance, and who was left out and why."""
    inputs = case.inputs()
    wide = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in inputs]
    wanted = [a.astype(np.float32) for a in as_tuple(case.workload.body(Numpy(), *wide))]
    calls: dict[str, Callable[[], Any]] = {}
    left: list[str] = []
    rooms = Rooms()
    for name in names:
        try:
            with rooms.again():
                made = PEERS[name].loader(case, [a.copy() for a in inputs], wanted)
            call = partial(_kept, made) if isinstance(made, Loaded) else made
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


def _kept(loaded: Loaded) -> Any:
    """The call of what it does not refer to, but reads."""
    return loaded.call()


def measure(calls: Sequence[Callable[[], Any]], rounds: int) -> Any:
    """Seconds of processor time of a call, by round and call: the least of a turn's groups of calls."""
    clock, sizes, groups = time.process_time, list[int](), list[int]()
    begin = alike()
    for call in calls:
        call()
        begun = clock()
        call()
        spent = max(clock() - begun, 1e-7)
        sizes.append(max(1, int(GROUP_S / spent)))
        groups.append(max(2, int(SLOT_S / (spent * sizes[-1]))))
    times = np.empty((rounds, len(calls)))
    order = random.Random(0)
    for k in range(rounds):
        for place in order.sample(
            range(len(calls)), len(calls)
        ):  # those who share arrays find them as the one before left them
            for _ in range(WARM):
                calls[place]()
            times[k, place] = min(_group(calls[place], sizes[place], begin) for _ in range(groups[place]))
    return times


def _group(call: Callable[[], Any], count: int, begin: Callable[[], Any]) -> float:
    begin()
    begun = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - begun) / count


def row(name: str, level: str, number: int, options: argparse.Namespace) -> Row:
    """The kernel at its `number`th extents."""
    chosen = workload(name, level, options.seed, number)
    calls, left = loaded(Case(chosen, level), [OWN, *options.peers.split(",")])
    title = f"{name:4} {level:4} {'x'.join(map(str, chosen.shapes[0])):>12}"
    if options.verbose and left:
        print(f"{title}  left out: {'; '.join(left)}")
    if OWN not in calls:
        raise SystemExit(f"{title}: {left}")
    times = measure(list(calls.values()), options.rounds)
    ratios = {peer: times[:, k] / times[:, 0] for k, peer in enumerate(calls) if k}
    return Row(title, float(np.median(times[:, 0])) * 1e6, ratios)


def neighbours(options: argparse.Namespace) -> None:
    """Rows of N elements beside those of the next multiple of 16."""
    drawer = random.Random(options.seed)
    drawn = sorted({int(exp(drawer.uniform(log(17), log(2048)))) | 1 for _ in range(options.draws)})
    for name in (n for n in options.only.split(",") if n in ("W2", "W2c", "W4", "W5", "W6", "W6l")):
        worst, begun = 0.0, KERNELS[name].workload
        for n in drawn:
            calls: list[Callable[[], Any]] = []
            wide = -(-n // 16) * 16
            for width in (n, wide):
                tall, vectors = {"W5": (3, 2), "W4": (1, 0), "W6l": (1, 2)}.get(name, (1, 1))
                shapes = ((max((1 << 18) // wide // 4, 8), width),) * tall + ((width,),) * vectors
                found, left = loaded(Case(replace(begun, shapes=shapes), "L2"), [OWN])
                if left:
                    raise SystemExit(str(left))
                calls += found.values()
            times = measure(calls, options.rounds)
            ratio = float(np.median(times[:, 0] / times[:, 1]))
            worst = max(worst, ratio)
            print(f"{name:4} N = {n:5}: {ratio:.2f} of the time of {wide}", flush=True)
        print(f"{name:4} worst {worst:.2f}")


def threaded(options: argparse.Namespace) -> None:
    """With all threads beside one."""
    worst = list[tuple[float, str]]()
    for name, budget in product(options.only.split(","), (1 << k for k in range(17, 24))):
        draw = Draw(random.Random(f"{options.seed} {name} {budget}"), options.seed % 3, budget)
        chosen = KERNELS[name].sized(draw)
        found, left = loaded(Case(chosen, "L2"), [OWN])
        if left:
            raise SystemExit(f"{name} {chosen.shapes[0]}: {left}")
        ratios = [_threads_ratio(found[OWN]) for _ in range(options.rounds)]
        title = f"{name:4} {budget >> 10:5} KiB {'x'.join(map(str, chosen.shapes[0])):>12}"
        worst.append((float(np.median(ratios)), title))
        print(
            f"{title}  {np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of the time of one", flush=True
        )
    print(
        "slower than one thread:", *(f"\n  {ratio:.2f} {title}" for ratio, title in sorted(worst)[::-1] if ratio > 1.0)
    )


def _threads_ratio(call: Callable[[], Any]) -> float:
    times: list[float] = []
    most = num_threads()
    for count in (most, 1):
        set_num_threads(count)
        call()
        begun = time.perf_counter()
        call()
        repeat = max(1, int(SLOT_S / 8 / max(time.perf_counter() - begun, 1e-6)))
        times.append(min(_on_the_clock(call, repeat) for _ in range(8)))
    set_num_threads(most)
    return times[0] / times[1]


def _on_the_clock(call: Callable[[], Any], repeat: int) -> float:
    begun = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - begun) / repeat


def table(options: argparse.Namespace) -> None:
    """All rows, and again those in which somebody is ahead of us."""
    begun, behind, total = time.monotonic(), list[Row](), 0
    for name, level, number in product(options.only.split(","), options.level.split(","), range(options.draws)):
        if options.limit and time.monotonic() - begun > options.limit:
            print(f"stopped before {name} at {level}, draw {number}: {options.limit} s are over")
            break
        found = row(name, level, number, options)
        total += 1
        behind += [found] if found.over > 1.0 else []
        print(found, flush=True)
    print(f"behind in {len(behind)} of {total}")
    for each in sorted(behind, key=lambda found: -found.over):
        print(f"  {each}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--draws", type=int, default=3, help="extents of each kernel and level, or of rows (default: 3)"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default=",".join(KERNELS), help="kernels, with commas between them")
    parser.add_argument("--level", default=",".join(SIZES), help="levels of memory, with commas between them")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds after which nothing begins")
    parser.add_argument("--peers", default="c,inductor,ort,xla,iree,numexpr,torch")
    parser.add_argument("--neighbours", action="store_true", help="rows of N beside rows of the next multiple of 16")
    parser.add_argument("--threads", action="store_true", help="all threads beside one")
    parser.add_argument("--verbose", action="store_true", help="also say who was left out, and why")
    options = parser.parse_args()
    for what, chosen, known in (("kernel", options.only, KERNELS), ("level", options.level, SIZES)):
        try:
            check(what, chosen, list(known))
        except ValueError as error:
            parser.error(str(error))
    if threads() == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA has no other limit
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CPU_PEERS_FOLDER"] = folder
        if options.neighbours:
            neighbours(options)
        elif options.threads:
            threaded(options)
        else:
            table(options)


if __name__ == "__main__":
    main()
