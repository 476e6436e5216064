"""What Nsight Compute counts of each kernel of a workload, as rows of the report of gpu_run.py; standard library alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MARK = "workload_"
"""How the names of kernels begin that say which workload's follow."""
METRICS = {
    "us": "gpu__time_duration.sum",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}
"""By column of the report; base units: nanoseconds, bytes, hundredths."""
COLUMNS = ("workload", "kernel", "us", "MB", "of needed", "dram %", "issue %", "registers")


def profiler(ncu: str) -> list[str]:
    """What a command is put behind."""
    metrics = ",".join(METRICS.values())
    return [ncu, "--profile-from-start", "off", "--csv", "--page", "raw", "--print-units", "base", "--metrics", metrics]


def counted(output: str) -> list[dict[str, Any]]:
    """By kernel in order of launches, its name and the numbers of METRICS; none where ncu printed no table."""
    lines = output.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: list[dict[str, Any]] = []
    for row in csv.DictReader(lines[first:]):
        if not (row.get("ID") or "").isdigit():
            continue  # the row of units, and what the program prints behind the table
        numbers = {column: _number(row.get(metric)) for column, metric in METRICS.items()}
        found.append({"kernel": row["Kernel Name"].partition("(")[0], **numbers})
    return found


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None  # a metric that the device does not have


def kernel_rows(kernels: Sequence[dict[str, Any]], needed: Mapping[str, int]) -> list[list[Any]]:
    """
    Rows of the report: kernels by workload, whose name stands before them; the bytes that it needs are compared with those of
    all its kernels. Raises ValueError where kernels come before the first name: then none is known to be whose.
    """
    own: dict[str, list[dict[str, Any]]] = {}
    for kernel in kernels:
        if (name := kernel["kernel"]).startswith(MARK):
            own[name.removeprefix(MARK)] = []
        elif own:
            own[next(reversed(own))].append(kernel)
        else:
            raise ValueError(f"expected a kernel {MARK}NAME before those of a workload, got {name}")
    return [row for name in own if name in needed for row in _workload_rows(name, own[name], needed[name])]


def _workload_rows(name: str, kernels: Sequence[dict[str, Any]], needed: int) -> Iterator[list[Any]]:
    sizes = [(kernel["read"] or 0) + (kernel["written"] or 0) for kernel in kernels]
    share: float | str = round(sum(sizes) / needed, 3)
    for kernel, size in zip(kernels, sizes, strict=True):
        shares = [_rounded(kernel[column], 1) for column in ("dram", "issue", "registers")]
        yield [name, kernel["kernel"], _rounded(kernel["us"], 1e3), round(size / 1e6, 2), share, *shares]
        share = ""  # said once


def _rounded(number: float | None, unit: float) -> float | str:
    return "-" if number is None else round(number / unit, 1)
