"""Workloads W1 to W15 on the CPU, beside other compilers and packages, and beside a limit of moved bytes.

    python benchmarks/cpu_peers.py [--quick] [--workloads W1,W4] [--sizes L2,DRAM] [--peers xla,ort] [--rounds 9]
                                   [--python NAME=PATH]... [--realtime] [--out FOLDER] [--lock FILE]

Every peer runs in a process of its own. They take turns: slots of some tens of milliseconds, in a rotated order, for so
many rounds; ratios are those of one round. Results are checked in the same run against NumPy in float64. A peer that is not
installed, or cannot run a workload, is left out and said so. Writes cpu-peers-DATE.json, .txt and .svg.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from cpu_functions import Numpy
from cpu_machine import machine_facts
from cpu_peer_control import ROOT, Lock, PeerProcess
from cpu_peer_kinds import PEERS
from cpu_plot import as_svg
from cpu_report import as_text
from cpu_workloads import SIZE_NAMES, SIZES, Case, as_tuple, check, choose

_SLOT_MS = 60
_PAUSE_S = 0.003
"""After a slot: its threads stop spinning."""
_LONG_PAUSE_S = {"numpy": 0.15}
"""By peer: OpenBLAS's threads spin for tens of milliseconds, which took the processors from the next peer's."""


def write_arrays(case: Case, folder: Path) -> int:
    """The inputs and, by NumPy in float64, the results, as files; gives the bytes that the workload moves."""
    folder.mkdir()
    inputs = case.inputs()
    for number, array in enumerate(inputs):
        np.save(folder / f"input{number:02}.npy", array)
    rounded = [_rounded(a, case.workload.dtype(k)) for k, a in enumerate(inputs)]
    wide = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in rounded]
    results = list(as_tuple(case.workload.body(Numpy(), *wide)))
    for number, array in enumerate(results):
        np.save(folder / f"result{number:02}.npy", array.astype(np.float32))
    return case.bytes_moved(results)


def _rounded(array: Any, dtype: str) -> Any:
    """The values that a narrower type holds."""
    if dtype == "f16":
        return array.astype(np.float16)
    if dtype != "bf16":
        return array
    bits = array.view(np.uint32)
    kept = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)
    return kept.view(np.float32)


def measure(case: Case, peers: Sequence[PeerProcess], folder: Path, rounds: int, realtime: bool) -> dict[str, Any]:
    """A row: what the peers took, by round."""
    arrays = folder / f"{case.name}-{case.size}"
    moved = write_arrays(case, arrays)
    workload = case.workload
    for peer in peers:
        peer.ask({"do": "load", "workload": case.name, "size": case.size, "folder": str(arrays)})
    answers = {peer.name: peer.answer() for peer in peers}
    for path in arrays.iterdir():
        path.unlink()
    running = [peer for peer in peers if "skipped" not in answers[peer.name]]
    if realtime:
        for peer in running:
            peer.set_realtime(True)
    for round_number in range(rounds):
        turn = round_number % max(len(running), 1)
        for peer in running[turn:] + running[:turn]:
            peer.ask({"do": "slot", "size": case.size, "ms": _SLOT_MS})
            found = peer.answer()
            time.sleep(_LONG_PAUSE_S.get(peer.name, _PAUSE_S))
            if "us" in found:
                entry = answers[peer.name]
                entry.setdefault("us", []).append(found["us"])
                entry["least_us"] = min(entry.get("least_us", found["least"]), found["least"])
            else:
                running.remove(peer)
                answers[peer.name]["skipped"] = found["skipped"]
    for peer in running:
        if realtime:
            peer.set_realtime(False)
        peer.ask({"do": "drop", "size": case.size})
        peer.answer()
    return {
        "workload": case.name,
        "size": case.size,
        "about": workload.about,
        "dtype": case.dtype,
        "shapes": [list(shape) for shape in workload.shapes[:4]],
        "bytes": moved,
        "tolerance": case.tolerance,
        "load": round(os.getloadavg()[0], 2),
        "peers": answers,
    }


def run(cases: Sequence[Case], names: Sequence[str], options: argparse.Namespace, stem: str) -> dict[str, Any]:
    """The record of all cases, written after each workload; Inductor's cache of headers is shared by all processes."""
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "rounds": options.rounds,
        "slot_ms": _SLOT_MS,
        "realtime": options.realtime,
        "size_bytes": SIZES,
        "about": {name: PEERS[name].about for name in names},
        "versions": {},
        "skipped": {},
        "imports": {},
        "rows": [],
    }
    pythons = dict(entry.split("=", 1) for entry in options.python)
    with tempfile.TemporaryDirectory(prefix="cpu-peers-") as text:
        folder = Path(text)
        lock = Lock(options.lock)
        for together in _groups(cases, options.quick):
            lock.hold()
            started = time.monotonic()
            with ExitStack() as stack:
                left = [n for n in names if n not in record["skipped"]]
                peers = [PeerProcess(n, pythons.get(n, options.default_python), folder) for n in left]
                for peer in peers:
                    stack.callback(peer.close)
                ready = [peer for peer in peers if _is_ready(peer, record)]
                for case in together:
                    record["rows"].append(measure(case, ready, folder, options.rounds, options.realtime))
            record["load_after"] = os.getloadavg()
            write(record, options.out, stem)
            print(f"{together[0].name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            lock.give_others_a_turn()
    return record


def _groups(cases: Sequence[Case], quick: bool) -> list[list[Case]]:
    """What is measured with the same processes: the sizes of a workload, or all in a quick run."""
    names = dict.fromkeys(case.name for case in cases)
    return [list(cases)] if quick else [[case for case in cases if case.name == name] for name in names]


def _is_ready(peer: PeerProcess, record: dict[str, Any]) -> bool:
    hello = peer.answer()
    if "skipped" in hello:
        record["skipped"][peer.name] = hello["skipped"]
        return False
    record["versions"].update(hello["versions"])
    record["imports"].setdefault(peer.name, [hello["import_s"], hello["import_cpu_s"]])
    return True


def write(record: dict[str, Any], out: Path, stem: str) -> None:
    """The record, its table, and its plot."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / f"{stem}.txt").write_text(as_text(record))
    (out / f"{stem}.svg").write_text(as_svg(record))


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[Case], list[str]]:
    """Raises ValueError for a name that is not known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few workloads, 3 rounds: less than two minutes")
    parser.add_argument("--workloads", default="", help="names with commas between them")
    parser.add_argument("--sizes", default="", help=f"some of {', '.join(SIZE_NAMES)}")
    parser.add_argument("--peers", default="", help=f"some of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=0, help="9, or 3 with --quick")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="a peer's interpreter, or `all`'s"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="slots run as real-time threads (for root): on a machine that "
        "others use, too, threads that wait for each other are else measured by what the others do",
    )
    parser.add_argument(
        "--lock", type=Path, help="a file that other benchmarks lock, too: held for a workload at a time"
    )
    options = parser.parse_args(arguments)
    check("peer", options.peers, list(PEERS))
    for entry in options.python:
        name, _, path = entry.partition("=")
        check("peer", name, [*PEERS, "all"])
        if not Path(path).is_file():
            raise ValueError(f"--python {entry}: expected NAME=PATH of an interpreter, got no file '{path}'")
    pythons = dict(entry.split("=", 1) for entry in options.python)
    options.default_python = pythons.get("all", sys.executable)
    options.rounds = options.rounds or (3 if options.quick else 9)
    asked = options.peers.split(",") if options.peers else list(PEERS)
    return options, choose(options.workloads, options.sizes, options.quick), asked


def _end(*_: object) -> None:
    """What has been begun is ended and removed."""
    sys.exit(143)


def main() -> int:
    try:
        options, chosen, names = parse(sys.argv[1:])
    except ValueError as error:
        print(f"cpu_peers: error: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _end)
    stem = f"cpu-peers-{'quick-' if options.quick else ''}{datetime.date.today()}"
    record = run(chosen, names, options, stem)
    print(as_text(record))
    wrong = [row for row in record["rows"] for p in row["peers"].values() if not p.get("right", True)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
