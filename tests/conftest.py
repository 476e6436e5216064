"""What all tests share: how memory is collected, and what pytest prints at its end beside its own counts."""

from __future__ import annotations

import gc
import zlib
from collections import defaultdict
from typing import Any

import pytest
from draws import MULTIPLIER, sampled

from fuse_opt.runtime.host import c_compiler

gc.set_threshold(200_000, 20, 100)
"""IR is many long-lived objects in cycles: at Python's own 700 a quarter of the tests' time goes into looking at them."""

COUNTED = "graph ops"
"""The property of a report in which a test says (op, backend, cases, elements compared)."""
LEFT_OUT = pytest.StashKey[int]()
"""How many cases of sampled tests a run leaves out."""
OPTIMISATION: tuple[str, ...] = getattr(c_compiler, "_OPTIMISATION")  # noqa: B009
"""What programs are compiled with outside of the tests."""
QUICK = tuple(f"tests/{folder}/" for folder in ("dialects", "lowering/cpu", "lowering/loops", "passes"))
"""Where most tests compile with less."""
LAYER = "cuda layer"
"""The property of a report in which a test says what of the CUDA target it ran, and how much."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stand_in_driver: runs PyCUDA on a stand-in for the CUDA driver")
    config.addinivalue_line("markers", "optimised: compiles C with the flags that users get")
    config.addinivalue_line(
        "markers", "sampled(count): of the cases of this test so many run unless FUSE_OPT_FUZZ_CASES"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with many cases that are like one another run a sample of them; a case that is named on the command line runs."""
    if any("[" in argument for argument in config.args):
        return
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = {
        item
        for group in cases.values()
        for item in set(group) - set(sampled(group, next(group[0].iter_markers("sampled")).args[0]))
    }
    items[:] = [item for item in items if item not in left_out]
    config.stash[LEFT_OUT] = len(left_out)
    told: dict[str, object] = getattr(config, "workeroutput", {})  # by a process of pytest-xdist to its parent
    told["left_out"] = len(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Each process of pytest-xdist collects, and leaves out, the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """
    Where what programs compute is tested, two tests of three compile C with -O1; the others, those marked `optimised`, and all
    in a run of more cases do as users do. Loops of `omp simd` become vectors either way; -O3 takes half as long again.
    """
    quick = MULTIPLIER <= 1 and zlib.crc32(item.nodeid.encode()) % 3 and not item.get_closest_marker("optimised")
    quick = quick and item.nodeid.startswith(QUICK)
    setattr(c_compiler, "_OPTIMISATION", ("-O1",) if quick else OPTIMISATION)  # noqa: B010 - it is the module's own


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """What earlier modules left behind, caches above all, is not looked at again by every collection to come."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line of the cases of the op table, whichever processes ran them, and one of those that were left out."""
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
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"sampled tests: {left_out} cases left out; FUSE_OPT_FUZZ_CASES=10 runs ten times as many"
        )
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
