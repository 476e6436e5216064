"""How well and how soon buffers are packed: `python benchmarks/packing.py [FILE.csv ...]`.

Prints a row per instance of benchmarks/memplan and of the files given: the MiniMalloc ones with the capacity they were published
with, the others with the default strategy, compiled core and pure Python. Then how CPU time grows on synthetic buffers, in
Python. Seconds are CPU time of one run, the compilation of the core (once per machine) apart.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from fuse_opt.passes.memory.packing.exact import Question
from fuse_opt.passes.memory.packing.packing import ORDERS, Buffer, Problem, Solution, pack
from fuse_opt.tools.commands.fuse_pack import read_rows
from fuse_opt.tools.compiler.native_packing import CompiledSearch, compiled_packing, compiled_search

HERE = Path(__file__).resolve().parent


def graph(count: int) -> Problem:
    """Mostly short lives along a schedule and some of up to 400 steps, as in inference."""
    rng = random.Random(count)
    lives = [rng.randint(1, 6) if rng.random() < 0.85 else rng.randint(6, 400) for _ in range(count)]
    return Problem(tuple(Buffer(rng.randint(1, 2048) * 64, at, at + life) for at, life in enumerate(lives)))


def training(count: int) -> Problem:
    """A third of all are kept from the way forward to the way back, and so alive at once; the rest is short."""
    rng = random.Random(count)
    third = count // 3
    kept = [(at, count - at) for at in range(third)]
    short = [(at, at + rng.randint(1, 4)) for at in range(count - third)]
    return Problem(tuple(Buffer(rng.randint(1, 4096) * 64, *life) for life in (*kept, *short)))


def random_third(count: int) -> Problem:
    """Random births and lives such that about a third of all are alive at any time: worse than any graph."""
    rng = random.Random(count)
    births = [rng.randrange(count) for _ in range(count)]
    return Problem(tuple(Buffer(rng.randint(1, 4096) * 64, at, at + rng.randint(1, 2 * count // 3)) for at in births))


def measured(problem: Problem, capacity: int | None, core: bool) -> tuple[Solution, float]:
    """The solution and the CPU seconds it took."""
    with compiled_packing() if core else nullcontext():
        start = time.process_time()
        solution = pack(problem, capacity=capacity)
        return solution, time.process_time() - start


def instance(path: Path, core: bool) -> dict[str, object]:
    problem = Problem(tuple(row.buffer for row in read_rows(str(path))), 1)
    capacity = 1 << 20 if path.name.endswith(".1048576.csv") else None
    solution, python_s = measured(problem, capacity, core=False)
    row: dict[str, object] = {"instance": path.stem, "buffers": len(problem.buffers), "arena": solution.arena}
    row |= {"lower_bound": solution.lower_bound, "gap": round(solution.gap, 6), "method": solution.method}
    row |= {"optimal": solution.optimal, "capacity": capacity, "core_s": None, "python_s": round(python_s, 2)}
    if core:
        same, core_s = measured(problem, capacity, core=True)
        assert same == solution, "the core gives another answer"
        row["core_s"] = round(core_s, 2)
    print_row(row)
    return row


def growth(make: Callable[[int], Problem], counts: list[int]) -> list[dict[str, object]]:
    """CPU seconds of the default strategy and of its first order alone, whose growth is given as a power of the count."""
    rows: list[dict[str, object]] = []
    last = 0.0
    for count in counts:
        problem = make(count)
        solution, seconds = measured(problem, None, core=False)
        start = time.process_time()
        pack(problem, ORDERS[0])
        first = time.process_time() - start
        exponent = round(math.log2(first / last), 2) if last else None
        row: dict[str, object] = {"lives": make.__name__, "buffers": count, "python_s": round(seconds, 2)}
        row |= {"gap": round(solution.gap, 6), "method": solution.method}
        rows.append(row | {"first_order_s": round(first, 2), "exponent": exponent})
        text = f"{make.__name__:12} {count:7} {seconds:8.2f} s  gap {solution.gap:.4f}  first order {first:.2f} s"
        print(f"{text}  exponent {exponent}" if exponent else text, flush=True)
        last = first
    return rows


def print_row(row: dict[str, object]) -> None:
    name, buffers, arena, bound, gap, method, _, _, core_s, python_s = row.values()
    print(
        f"{name:12} {buffers:7} {arena:14} {bound:14} {gap:8.4f}  {method:20} {core_s!s:>7} {python_s!s:>8}", flush=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.csv", help="more instances")
    parser.add_argument("--count", type=int, default=50_000, help="synthetic buffers of the smaller size (0: none)")
    given = parser.parse_args()
    core = isinstance(compiled_search(Question([(1, 0, 1)], 1)), CompiledSearch)
    paths = sorted((HERE / "memplan" / "minimalloc").glob("?.*.csv"))
    print("instance     buffers          arena    lower bound      gap  method                core s Python s")
    rows = [instance(path, core) for path in paths]
    for column in ("core_s", "python_s"):
        print(f"MiniMalloc, sum of {column}: {sum(float(str(row[column] or 0)) for row in rows):.2f}")
    rows += [instance(path, core) for path in (*sorted((HERE / "memplan" / "idealloc").glob("*.csv")), *given.files)]
    counts = [given.count, 2 * given.count] if given.count else []
    synthetic = [row for make in (graph, training, random_third) for row in growth(make, counts)]
    today = datetime.date.today().isoformat()
    host = {"python": platform.python_version(), "machine": platform.machine(), "core": core}
    result = {"date": today, "host": host, "instances": rows, "synthetic": synthetic}
    (HERE / "results" / f"packing-{today}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
