"""What tuning wins, and that it chooses nothing by chance: `python benchmarks/tuning.py WHAT`.

    python benchmarks/tuning.py programs [--minutes 3] [--only softmax,relu] [--threads 1] [--keep FOLDER]
    python benchmarks/tuning.py others [--minutes 3] [--only u_net]    programs nobody tuned by hand, and fresh pairs of them
    python benchmarks/tuning.py itself [--times 100]      a kernel against a second build of itself, by the machine's own clock;
                                                          in parts: --seed 0 --times 50, then --seed 50 --times 50
    python benchmarks/tuning.py kill [--times 20]         -9 to a run at random moments; what was lost, how soon it goes on
    python benchmarks/tuning.py records [--count 10000]   reading records, and compiling with and without a tuned file
    python benchmarks/tuning.py devices [--trials 24]     two devices by flags of the compiler: what goes from one to the other
    python benchmarks/tuning.py cluster                   turns of half a second on one worker and on two (extra tune-cluster)
    python benchmarks/tuning.py kernel                    all texts of one kernel: how long, what a trial costs beside, and again

Each of them prints its figures and what the machine was; nothing is written but below a temporary folder.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tuning_against import HERE, Version, in_turns, ratio, text_of
from tuning_devices import TUNE, devices
from tuning_programs import EXAMPLES, OTHERS, PROGRAMS, file_name, four_kernels, softmax


def installed(folder: Path) -> dict[str, str]:
    """The environment of runs that find modules compiled, as those of an installation are; the first of them compiles them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "modules")}


def tuned(
    given: argparse.Namespace, folder: Path, texts: Mapping[str, Callable[[], str]]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The name of each program that is asked for, what is in its tuned file, and the last line that the tuner says."""
    for name, text in texts.items():
        if given.only and not any(word in name for word in given.only.split(",")):
            continue
        (source := folder / "p.mlir").write_text(text())
        kept = Path(given.keep) if given.keep else folder
        output = kept / f"{file_name(name)}.json"
        words = ["--minutes", str(given.minutes), "--threads", str(given.threads), "--records", str(kept / "records")]
        load = os.getloadavg()[0]
        done = subprocess.run([*TUNE, str(source), "-o", str(output), *words], capture_output=True, text=True)
        last = done.stderr.strip().splitlines()[-1]
        if done.returncode:
            print(f"{name:40s} {last}")
            continue
        said = f"{last.partition('; written')[0]}; load {load:.1f} to {os.getloadavg()[0]:.1f}"
        yield name, json.loads(output.read_text()), said


def programs(given: argparse.Namespace, folder: Path) -> None:
    """A line for each kernel of each program: what was confirmed."""
    print(f"{'program':40s} {'kernel':44s} share  speed-up (99 %)  pairs  schedule, and the default's")
    for name, found, last in tuned(given, folder, PROGRAMS):
        for each in found["kernels"]:
            low, median, high = each.get("speedup", (1.0, 1.0, 1.0))
            what = (
                f"{json.dumps(each['schedule'])} for {json.dumps(each['default'])}" if "speedup" in each else "default"
            )
            share = each.get("share", 0.0)
            print(
                f"{name:40s} {each['name'][:44]:44s} {share:5.2f}  {median:.3f} ({low:.3f} to {high:.3f})  "
                f"{each.get('pairs', 0):3d}  {what}",
                flush=True,
            )
        print(f"{name:40s} {last}", flush=True)


def others(given: argparse.Namespace, folder: Path) -> None:
    """
    A line for each program as a whole, tuned over default as the tuner saw it; what won in it; and both once more, in fresh pairs
    that decide nothing. Geometric means are of these.
    """
    ratios, unchanged = list[float](), 0
    for name, found, last in tuned(given, folder, OTHERS):
        won = [each for each in found["kernels"] if "speedup" in each]
        if "whole" in found:
            low, median, high = found["whole"]
            print(f"{name:28s} {median:.3f} ({low:.3f} to {high:.3f}, 99 %) as measured when tuned", flush=True)
        for each in won:
            print(f"    {each['name'][:44]:44s} {each['speedup'][1]:.3f}  {json.dumps(each['schedule'])}", flush=True)
        if won:
            file = Path(given.keep or folder) / f"{file_name(name)}.json"
            ratios.append(once_more(name, folder / "p.mlir", file, given.rounds))
        else:
            unchanged += 1
            print(f"{name:28s} is as it was: the default stays", flush=True)
        print(f"    {last}", flush=True)
    if ratios:
        print(
            f"geometric mean of {len(ratios)} that changed: {statistics.geometric_mean(ratios):.4f}, least {min(ratios):.3f}"
        )
    if everyone := [*ratios, *[1.0] * unchanged]:
        print(f"geometric mean of {len(everyone)}, those as they were by 1: {statistics.geometric_mean(everyone):.4f}")


def once_more(name: str, source: Path, file: Path, pairs: int) -> float:
    """The time of a program's default over that of what a tuned file makes of it, in processes that know nothing of the tuner."""
    turns = in_turns(lambda: {"default": Version(HERE, source), "tuned": Version(HERE, source, str(file))}, pairs)
    fresh = ratio(turns["default"], turns["tuned"])
    print(f"{name:28s} {text_of(fresh)} in {pairs} fresh pairs", flush=True)
    return fresh[1]


def itself(given: argparse.Namespace, folder: Path) -> None:
    """Confirmations of the default against a second build of it: none may be accepted."""
    from fuse_opt.runtime.host.thread_pool import limit_threads
    from fuse_opt.tools.compiler.api import load
    from fuse_opt.tools.tuning.search.candidates import Candidate
    from fuse_opt.tools.tuning.search.processes import ProcessBench
    from fuse_opt.tools.tuning.search.race import Raced, confirm
    from fuse_opt.tools.tuning.search.sites import find_sites

    limit_threads(1)
    (site,) = find_sites(load(softmax(251, 509)))
    accepted, medians, counts = 0, list[float](), list[int]()
    plain = site.program(site.default)
    again = replace(plain, source=f"{plain.source}\n/* once more */\n")
    made = site.program
    for number in range(given.seed, given.seed + given.times):
        site.program = lambda candidate: plain if candidate == site.default else again
        bench, second = ProcessBench(site, 1, seed=number), Candidate.of({**site.default.settings, "tasks": 1})

        def measure(candidate: Candidate, turn: int, pairs: int, bench: ProcessBench = bench) -> tuple[float, ...]:
            return bench.measure(candidate, turn, pairs).pairs

        verdict = confirm(Raced(second, measure(second, 0, 12)), measure)
        bench.close()
        assert verdict is not None
        accepted += verdict.accepted
        medians.append(verdict.median)
        counts.append(verdict.pairs)
        if verdict.accepted:
            print(f"accepted: number {number}, {verdict}", flush=True)
    site.program = made
    low, middle, high = min(medians), statistics.median(medians), max(medians)
    print(
        f"{accepted} of {given.times} accepted; medians {low:.4f} {middle:.4f} {high:.4f}; pairs {min(counts)} to {max(counts)}"
    )


def kill(given: argparse.Namespace, folder: Path) -> None:
    """
    Ends runs, or in every second one a process that measures, at random moments; a finished trial that is measured again, or that
    counts as failed, is a lost one.
    """
    (source := folder / "p.mlir").write_text(four_kernels())
    records, drawn = folder / "records", random.Random(given.seed)
    words = [str(source), "-o", str(folder / "t.json"), "--trials", "160", "--threads", "1", "--records", str(records)]
    said, resumed = dict[int, float](), dict[int, float]()
    environment = installed(folder)
    killed = 0
    for number in range(given.times):
        before, start = turns_in(records), time.monotonic()
        with (told := folder / "told.txt").open("w") as stream:
            run = subprocess.Popen([*TUNE, *words], stderr=stream, start_new_session=True, env=environment)
        until = start + drawn.uniform(5.0, 14.0)
        while time.monotonic() < until and run.poll() is None:
            if number not in said and "goes on behind" in told.read_text():
                said[number] = time.monotonic() - start
            if turns_in(records) > before:
                resumed[number] = time.monotonic() - start
                break
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            run.wait(max(until - time.monotonic(), 0.0))
        if number % 2 and (measuring := descendants(run.pid)):
            killed += 1
            with suppress(ProcessLookupError):
                os.kill(measuring[-1], signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                run.wait(3.0)
        with suppress(ProcessLookupError):
            run.send_signal(signal.SIGKILL)
        run.wait()
    final = subprocess.run([*TUNE, *words], capture_output=True, text=True, env=environment)
    turns = [line for line in lines_of(records) if line["state"] == "raced"]
    asked = Counter(json.dumps([line[word] for word in ("key", "schedule", "turn")]) for line in turns)
    alike = ("device", "code", "key", "schedule", "turn")
    same = Counter(json.dumps([*(line[word] for word in alike), len(line["pairs"])]) for line in turns)
    failed = [line["reason"] for line in lines_of(records) if "SIGKILL" in str(line.get("reason"))]
    print(
        f"{given.times} times -9 ({killed} of them also to a process that measures): {len(turns)} turns measured, "
        f"{same.total() - len(same)} of them twice with as many pairs, {asked.total() - len(asked)} with any number of pairs, by "
        f"other code or on another device; {len(failed)} failed by it"
    )
    for what, seconds in (("goes on", said), ("first new line (gcc and the first pairs included)", resumed)):
        if seconds:
            low, middle, high = (each(seconds.values()) for each in (min, statistics.median, max))
            print(f"{what} after {low:.2f} {middle:.2f} {high:.2f} s")
    print(final.stderr.strip().splitlines()[-1])


def kernel(given: argparse.Namespace, folder: Path) -> None:
    """A kernel of few texts: what the search costs where measuring takes no time; the real one; again, and in another program."""
    from fuse_opt.tools.compiler.api import load
    from fuse_opt.tools.tuning.search.candidates import Candidate, Site
    from fuse_opt.tools.tuning.search.records import Records
    from fuse_opt.tools.tuning.search.sites import find_sites
    from fuse_opt.tools.tuning.search.study import Measured
    from fuse_opt.tools.tuning.search.tune_program import Options, Tuner
    from fuse_opt.tools.watching.machine import this_machine

    lowering = [0.0]

    class Timed(Site):
        def text(self, candidate: Candidate) -> str:
            start = time.perf_counter()
            try:
                return super().text(candidate)
            finally:
                lowering[0] += time.perf_counter() - start

    class Instant:
        def measure(self, candidate: Candidate, turn: int, pairs: int) -> Measured:
            return Measured((0.0,) * pairs, candidate.same_bits, 1e-3)

        def look_again(self, candidate: Candidate) -> str:
            return ""

        def close(self) -> None: ...

    machine, text = this_machine(), softmax(251, 509)
    assert machine is not None
    (found,) = find_sites(load(text))
    site = Timed(found.name, found.key, found.module, found.words, found.default, found.place)
    records = Records(folder / "instant", machine)
    start = time.perf_counter()
    tuner = Tuner([site], records, lambda _: Instant(), time.monotonic, Options(64, None), lambda: 1e-3)
    (outcome,) = tuner.run().outcomes.values()
    spent, settings = time.perf_counter() - start, outcome.trials + outcome.duplicates + len(outcome.failed)
    print(
        f"{settings} settings, {outcome.trials} texts ({100 * outcome.duplicates / settings:.0f} % never compiled); lowering "
        f"{1e3 * lowering[0] / settings:.1f} ms a setting, all else {1e3 * (spent - lowering[0]) / outcome.trials:.1f} ms a trial"
    )
    (source := folder / "p.mlir").write_text(text)
    (other := folder / "q.mlir").write_text(four_kernels())
    words = ["--trials", "64", "--threads", "1", "--records", str(folder / "records"), "-o", str(folder / "t.json")]
    for what, file, more in (
        ("first", source, []),
        ("again", source, []),
        ("in another program", other, ["--kernel", found.name]),
    ):
        start = time.monotonic()
        run = subprocess.run([*TUNE, str(file), *words, *more], capture_output=True, text=True)
        print(
            f"{what}: {time.monotonic() - start:.1f} s; {run.stderr.strip().splitlines()[-1].partition('; written')[0]}"
        )


def cluster(given: argparse.Namespace, folder: Path) -> None:
    """Turns that take half a second, on one worker and on two."""
    library = import_module("distributed")
    from fuse_opt.tools.tuning.cluster.group import connect, groups

    spent: list[float] = []
    for workers in (1, 2):
        made = library.LocalCluster(
            n_workers=workers, threads_per_worker=1, resources={"measure": 1}, dashboard_address=None, silence_logs=50
        )
        connection = connect(made.scheduler_address, 1, print)
        (machine,) = groups(connection)
        start = time.monotonic()
        for _ in machine.run(time.sleep, [(0.5,)] * 16):
            pass
        spent.append(time.monotonic() - start)
        connection.close()
        made.close()
    print(
        f"16 turns of 0.5 s: {spent[0]:.2f} s on one worker, {spent[1]:.2f} s on two: {spent[0] / spent[1]:.2f} times"
    )


def descendants(pid: int) -> list[int]:
    """Processes that came of one, those that began last at the end (Linux)."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            text = path.read_text()
            parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found and child not in found}:
        found |= more
    return sorted(found - {pid})


def turns_in(folder: Path) -> int:
    """How many lines are about pairs."""
    return sum(path.read_text().count('"state": "raced"') for path in folder.glob("*.jsonl"))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a folder."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


def records(given: argparse.Namespace, folder: Path) -> None:
    """Reading many records, and what a tuned file costs `compile`."""
    from fuse_opt import compile as compile_program
    from fuse_opt.passes.scheduling.tuned_schedules import read_tuned
    from fuse_opt.tools.watching.machine import this_machine

    machine = this_machine()
    assert machine is not None
    line = {"v": 1, "device": machine.device, "code": machine.code, "state": "confirmed", "speedup": [1.0, 1.1, 1.2]}
    with (folder / "many.jsonl").open("w") as file:
        for number in range(given.count):
            file.write(json.dumps({**line, "key": f"k:{number:016x}", "schedule": {"kind": "row", "lanes": 32}}) + "\n")
    start = time.process_time()
    table = read_tuned(folder / "many.jsonl")
    for number in range(given.count):
        table.find(f"k:{number:016x}", machine)
    print(f"{given.count} records read and looked up in {time.process_time() - start:.3f} s of processor time")
    text = (EXAMPLES / "transformer_block.mlir").read_text()
    spent: dict[str, list[float]] = {"": [], str(folder / "many.jsonl"): []}
    for number in range(max(given.rounds, 2)):
        for tuned in list(spent)[:: 1 if number % 2 else -1]:
            gc.collect()  # each pays for its own garbage alone
            start = time.process_time()
            compile_program(text, tuned=tuned)
            spent[tuned].append(time.process_time() - start)
    plain, with_file = (each[1:] for each in spent.values())
    ratios = sorted(b / a for a, b in zip(plain, with_file, strict=True))
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"compile(tuned=...) over compile(): {median:.3f} (quartiles {low:.3f} to {high:.3f}), of the least "
        f"times {min(with_file) / min(plain):.3f} (transformer_block.mlir, objects cached)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=("programs", "others", "itself", "kill", "records", "kernel", "cluster", "devices")
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="where tuned files and records stay")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=49)
    given = parser.parse_args()
    settings = {k: v for k, v in sorted(os.environ.items()) if k.startswith(("OPENBLAS_", "MKL_", "OMP_"))}
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {load}, environment {settings or 'none set'}")
    actions = {
        "programs": programs,
        "others": others,
        "itself": itself,
        "kill": kill,
        "records": records,
        "kernel": kernel,
        "cluster": cluster,
        "devices": devices,
    }
    if given.keep:
        Path(given.keep).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tuning-") as folder:
        actions[given.what](given, Path(folder))


if __name__ == "__main__":
    main()
