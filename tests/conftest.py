"""What all tests share: how memory is collected, and what pytest prints at its end beside its own counts."""

from __future__ import annotations

import gc
from typing import Any

import pytest

gc.set_threshold(200_000, 20, 100)
"""IR is many long-lived objects in cycles: at Python's own 700 a quarter of the tests' time goes into looking at them."""

COUNTED = "graph ops"
"""The property of a report in which a test says (op, backend, cases, elements compared)."""
LAYER = "cuda layer"
"""The property of a report in which a test says what of the CUDA target it ran, and how much."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stand_in_driver: runs PyCUDA on a stand-in for the CUDA driver")


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """What earlier modules left behind, caches above all, is not looked at again by every collection to come."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line of the cases of the op table, whichever processes ran them."""
    ops: set[str] = set()
    cases: dict[str, int] = {}
    elements = failures = 0
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for op, backend, count, compared in _counts(report):
                ops.add(op)
                cases[backend] = cases.get(backend, 0) + count
                elements += compared
                failures += outcome == "failed"
    if ops:
        by_count = {
            n: ", ".join(sorted((b for b in cases if cases[b] == n), key=_reference_first)) for n in cases.values()
        }
        text = " + ".join(f"{count} cases x {{{backends}}}" for count, backends in by_count.items())
        line = f"graph ops: {len(ops)} ops, {text}, {elements} elements compared, {failures} failures"
        terminalreporter.write_line(line, green=not failures, red=bool(failures))
    passed = terminalreporter.getreports("passed")
    for said in sorted({str(value) for report in passed for name, value in report.user_properties if name == LAYER}):
        terminalreporter.write_line(f"cuda layer {said}")


def _reference_first(backend: str) -> tuple[bool, str]:
    return backend != "reference", backend


def _counts(report: Any) -> list[tuple[str, str, int, int]]:
    """What the test of a report said; only once of its phases."""
    if getattr(report, "when", "") != "call":
        return []
    return [tuple(value) for name, value in report.user_properties if name == COUNTED]
