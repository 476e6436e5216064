"""The process of one peer of cpu_peers.py: reads commands from stdin, a line of JSON each, and answers each with a line.

{"do": "load", "workload": "W1", "size": "L2", "folder": "..."}  -> seconds of a first call, and its error
{"do": "slot", "size": "L2", "ms": 60}                           -> median and least time of a call, in microseconds
{"do": "drop", "size": "L2"}                                     -> frees what it has loaded
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from cpu_peer_base import Call, Loaded, Peer
from cpu_peer_kinds import PEERS
from cpu_workloads import Case, find

_WARM_S = 0.01
"""What a slot runs before it measures: other peers have had the caches."""


def cpu_seconds() -> float:
    """Of this process and of what it has waited for, as compilers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def read_arrays(folder: Path, kind: str) -> list[Any]:
    """Copies, so that what a program writes in place is its own."""
    paths = sorted(folder.glob(f"{kind}*.npy"))
    return [np.load(path) for path in paths]


def largest_error(found: list[Any], wanted: list[Any]) -> float:
    """The largest |got - wanted| / (1 + |wanted|)."""
    if [a.shape for a in found] != [a.shape for a in wanted]:
        raise ValueError(f"shapes {[a.shape for a in found]}, wanted {[a.shape for a in wanted]}")
    errors = [np.max(np.abs(a - b) / (1.0 + np.abs(b)), initial=0.0) for a, b in zip(found, wanted, strict=True)]
    return float(max(errors))


def load(peer: Peer, case: Case, folder: Path) -> tuple[Loaded, dict[str, Any]]:
    """A call that is ready, with what its first time took."""
    inputs, wanted = read_arrays(folder, "input"), read_arrays(folder, "result")
    started, used = time.perf_counter(), cpu_seconds()
    made = peer.loader(case, inputs, wanted)
    loaded = made if isinstance(made, Loaded) else Loaded(made)
    results = loaded.call()
    answer: dict[str, Any] = {
        "first_s": round(time.perf_counter() - started, 4),
        "first_cpu_s": round(cpu_seconds() - used, 4),
    }
    if peer.name != "limit":
        error = largest_error(peer.numbers(results), wanted)
        answer |= {"error": float(f"{error:.2e}"), "right": error <= case.tolerance}
    del results, wanted
    if loaded.stats:
        answer["stats"] = loaded.stats
    return loaded, answer


def slot(call: Call, seconds: float) -> dict[str, Any]:
    """Calls for so long, after some that are not counted; at least one is."""
    clock = time.perf_counter
    begun = clock()
    call()
    once = clock() - begun
    if once >= seconds:
        return {"us": round(1e6 * once, 2), "least": round(1e6 * once, 2), "calls": 1}
    while clock() - begun < _WARM_S:
        call()
    times: list[float] = []
    ends = clock() + seconds
    now = clock()
    while now < ends:
        call()
        after = clock()
        times.append(after - now)
        now = after
    median = statistics.median(times)
    return {"us": round(1e6 * median, 3), "least": round(1e6 * min(times), 3), "calls": len(times)}


def serve(peer: Peer, commands: Any, answers: Any) -> None:
    loaded: dict[str, Loaded] = {}
    for line in commands:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if command["do"] == "load":
                case = find(command["workload"], command["size"])
                loaded[command["size"]], answer = load(peer, case, Path(command["folder"]))
                gc.collect()
                gc.freeze()
            elif command["do"] == "slot":
                answer = slot(loaded[command["size"]].call, command["ms"] / 1000)
            else:
                loaded.pop(command["size"], None)
                gc.unfreeze()
                gc.collect()
        except Exception as failure:  # a peer that cannot is a peer less
            text = f"{type(failure).__name__}: {failure}".strip().splitlines()
            answer = {"skipped": text[0][:160]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    peer = PEERS[sys.argv[1]]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    started = time.perf_counter()
    hello: dict[str, Any] = {}
    try:
        for module in peer.modules:
            import_module(module)
        hello["versions"] = peer.versions()
    except ImportError as failure:
        hello["skipped"] = f"{type(failure).__name__}: {failure}".splitlines()[0]
    hello |= {"import_s": round(time.perf_counter() - started, 3), "import_cpu_s": round(cpu_seconds(), 3)}
    answers.write(json.dumps(hello) + "\n")
    answers.flush()
    if "skipped" not in hello:
        serve(peer, sys.stdin, answers)


if __name__ == "__main__":
    main()
