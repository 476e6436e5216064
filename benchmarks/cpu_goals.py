"""The figures that this package is to reach on a CPU, each as reached or missed by a record of cpu_peers.py."""

from __future__ import annotations

from typing import Any

from cpu_report import (
    FRESH,
    LIMIT,
    NOISE,
    OWN,
    Row,
    base,
    compile_seconds,
    faster_peers,
    main_rows,
    mean_ratio,
    microseconds,
    peers_of,
    ratio,
)

_OVER_INDUCTOR = {"L2": 6.0, "L3": 4.0, "DRAM": 4.5}
_OF_LIMIT = {"L2": 0.6, "L3": 0.6, "DRAM": 0.95}


def as_lines(record: dict[str, Any]) -> list[str]:
    """A line for each figure of which there are measurements."""
    lines = ["wanted:"]

    def say(what: str, got: float | None, wanted: float, at_least: bool = True, form: str = ".2f") -> None:
        if got is not None:
            reached = got >= wanted if at_least else got <= wanted
            sign = ">=" if at_least else "<="
            lines.append(
                f"  {'reached' if reached else 'MISSED '} {what}: {got:{form}} (wanted {sign} {wanted:{form}})"
            )

    for size, wanted in _OVER_INDUCTOR.items():
        say(f"Inductor as shipped at {size}", mean_ratio(main_rows(record, size), "inductor", OWN), wanted)
    say("Inductor with the allocator fixed at DRAM", mean_ratio(main_rows(record, "DRAM"), "inductor-fixed", OWN), 1.8)
    for size, wanted in _OF_LIMIT.items():
        say(f"share of the limit at {size}", mean_ratio(main_rows(record, size), LIMIT, OWN), wanted, form=".0%")
    slower = [entry for entry in faster_peers(record) if entry[0]["dtype"] == "f32" and entry[0]["size"] != "fixed"]
    say("W1-W13 in f32, (workload, size, peer) where a peer is faster", len(slower), 0, False, ".0f")
    for row in record["rows"]:
        _single(row, say, peers_of(record))
    own = compile_seconds(record, OWN)
    for name, wanted in (("inductor", 0.2), ("xla", 1.5)):
        if own is not None and (peer := compile_seconds(record, name)):
            say(f"CPU seconds to compile in a warm process, of {name}'s", own / peer, wanted, False)
    return lines if len(lines) > 1 else []


def _single(row: Row, say: Any, peers: list[str]) -> None:
    """The workloads with figures of their own."""
    name, over = base(row["workload"]), ratio(row, "inductor", OWN)
    if name == "W12":
        say("W12 in us, out=", microseconds(row, OWN), 10.0, False)
        say("W12 in us, fresh", microseconds(row, FRESH), 10.0, False)
    if name in ("W12", "W13"):
        say(f"{name}, Inductor", over and over.median, {"W12": 15.0, "W13": 20.0}[name])
    if name == "W13" and "stats" in row["peers"].get(OWN, {}):
        say("W13, segments", row["peers"][OWN]["stats"].get("segments"), 1, False, ".0f")
    if name in ("W14", "W15"):
        best = [r.median for peer in peers if (r := ratio(row, peer, OWN))]
        say(f"{name}, the best peer's time / ours", min(best, default=None), 1 / NOISE)
