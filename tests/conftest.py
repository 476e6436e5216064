"""What all tests share: how memory is collected, and what pytest prints at its end beside its own counts."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from draws import MULTIPLIER, scaled, shuffled
from traffic import watch

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
"""NumPy's threads, which it makes when it is imported, do not wait for more by turns: the processors are busy with tests."""
gc.set_threshold(1_000_000, 20, 100)
"""IR is many long-lived objects in cycles: at Python's own 700 a quarter of the tests' time goes into looking at them."""
ENOUGH_MEMORY = 6 << 30
"""Bytes that the machine has left where garbage is not worth collecting: all tests together leave 3 GiB."""

COUNTED = "graph ops"
"""The property of a report in which a test says (op, backend, cases, elements compared)."""
LEFT_OUT = pytest.StashKey[int]()
"""How many cases of sampled tests a run leaves out."""
C_FLAGS = os.environ.get("FUSE_OPT_CFLAGS", "")
"""What this run was asked to compile with beside the flags that users get."""
COMPILER = os.environ.get("FUSE_OPT_CC") or os.environ.get("CC") or "cc"
IS_GCC = "gcc" in os.path.basename(os.path.realpath(shutil.which(COMPILER) or ""))
LEFT_UNDONE = (
    "-fno-ivopts -fno-tree-ccp -fno-tree-pta -fno-tree-dominator-opts -fno-tree-reassoc -fno-forward-propagate -fno-dse "
    "-fno-cprop-registers -fno-split-wide-types -fno-if-conversion -fno-if-conversion2 -fno-guess-branch-probability "
    "-fira-region=one -fira-algorithm=priority -fno-move-loop-invariants -fno-branch-count-reg -fno-thread-jumps "
    "-fno-reorder-blocks -fno-combine-stack-adjustments -fno-compare-elim -fno-shrink-wrap -fdisable-rtl-combine "
    "-fdisable-rtl-cse1 -fdisable-rtl-postreload -fdisable-rtl-cprop_hardreg -fdisable-rtl-vartrack"
)
"""What gcc spends two fifths of its time on at -O1, and without which it makes vectors of the same loops."""


def _is_taken(flags: str) -> bool:
    """Whether the compiler knows all of the flags: names of passes are those of some versions of gcc."""
    command = [COMPILER, "-fopenmp-simd", *flags.split(), "-shared", "-fPIC", "-x", "c", "-", "-o", os.devnull]
    try:
        done = subprocess.run(command, input="int x;", text=True, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


QUICK_FLAGS = next((f for f in (f"-O1 {LEFT_UNDONE}",) if IS_GCC and _is_taken(f)), "-O1")
"""Of tests that are about values. Loops of `omp simd` become vectors, as they do for users."""
KERNELS = ("tests/lowering/cpu/", "tests/lowering/loops/")
"""Where files are about generated loops, of one kind each."""
LONGEST = tuple(f"tests/{folder}/" for folder in ("lowering", "dialects", "runtime", "project", "passes"))
"""Where the longest files are: several processes begin with them, so that none waits for another at the end."""
LAYER = "cuda layer"
"""The property of a report in which a test says what of the CUDA target it ran, and how much."""


def pytest_configure(config: pytest.Config) -> None:
    watch()
    config.addinivalue_line("markers", "stand_in_driver: runs PyCUDA on a stand-in for the CUDA driver")
    config.addinivalue_line("markers", "optimised: compiles C with the flags that users get")
    config.addinivalue_line(
        "markers", "sampled(count): of the cases of this test so many run unless FUSE_OPT_FUZZ_CASES"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with many cases that are like one another run a sample of them; a case that is named on the command line runs."""
    if MULTIPLIER <= 1:
        draw_without_our_constants()
    if any("[" in argument for argument in config.args):
        mark_first_of_kernels(items, everything=True)
        return
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = {item for group in cases.values() for item in set(group) - set(sample_of(group))}
    items[:] = [item for item in items if item not in left_out]
    mark_first_of_kernels(items)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((n for n, f in enumerate(LONGEST) if item.nodeid.startswith(f)), len(LONGEST)))
    config.stash[LEFT_OUT] = len(left_out)
    told: dict[str, object] = getattr(config, "workeroutput", {})  # by a process of pytest-xdist to its parent
    told["left_out"] = len(left_out)


def sample_of(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """
    Of the cases of a sampled test those that run: of an order drawn from a seed always the next with the most values that no
    parameter has had so far, so that each value of each of them is tested where there is room.
    """
    count = scaled(next(items[0].iter_markers("sampled")).args[0])
    left = {item: values_of(item) for item in shuffled(items)}
    taken = list[pytest.Item]()
    seen = set[tuple[int, str]]()
    while left and len(taken) < count:
        best = max(left, key=lambda item: len(left[item] - seen))
        if left[best] <= seen:
            return [*taken, *left][:count]
        seen |= left.pop(best)
        taken.append(best)
    return taken


def draw_without_our_constants() -> None:
    """
    Hypothesis would read all modules that are imported, for numbers and texts to draw: in a new clone five seconds of each
    process, for other draws whenever one of the modules changes. Runs of more cases do so.
    """
    if "hypothesis" in sys.modules:
        from hypothesis.internal.conjecture import providers

        def is_ours(path: str) -> bool:
            return False

        if hasattr(providers, "is_local_module_file"):
            providers.is_local_module_file = is_ours  # pyright: ignore[reportPrivateImportUsage]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Each process of pytest-xdist collects, and leaves out, the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """
    C is compiled with QUICK_FLAGS, but in tests that are marked `optimised`, and in all of a run of more cases: there as users
    do, which takes twice as long. A mark that a fixture is to have is the module's.
    """
    quick = MULTIPLIER <= 1 and item.get_closest_marker("optimised") is None
    os.environ["FUSE_OPT_CFLAGS"] = f"{QUICK_FLAGS} {C_FLAGS}".strip() if quick else C_FLAGS


def mark_first_of_kernels(items: Sequence[pytest.Item], everything: bool = False) -> None:
    """
    Of the first test of each file about generated loops some cases are compiled as users do, the first one too: of the first and
    the last of every four, so that a parameter of two or three values has each of them there, those with a value of one that none
    before them has.
    """
    first: dict[Path, str] = {}
    seen: defaultdict[Path, int] = defaultdict(int)
    values: defaultdict[Path, set[tuple[int, str]]] = defaultdict(set)
    for item in items:
        if item.nodeid.startswith(KERNELS):
            name = item.nodeid.partition("[")[0]
            if first.setdefault(item.path, name) == name:
                of_item = values_of(item)
                if everything or (seen[item.path] % 4 in (0, 3) and not (of_item and of_item <= values[item.path])):
                    item.add_marker("optimised")
                    values[item.path] |= of_item
                seen[item.path] += 1


def values_of(item: pytest.Item) -> set[tuple[int, str]]:
    """The names of what each `parametrize` of a case gives it; the case's own name where pytest does not say that."""
    given: Any = getattr(item, "callspec", None)
    return set(enumerate(getattr(given, "_idlist", [given.id]))) if given else set()


def available_memory() -> int:
    """Bytes that processes may take without another having to give some; 0 where that is not known."""
    try:
        found = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """
    What earlier modules left behind, caches above all, is not looked at again by every collection to come: nor is garbage, of
    which IR leaves much and to free which takes a twentieth of the time, but where memory becomes short.
    """
    if available_memory() < ENOUGH_MEMORY:
        gc.unfreeze()
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


@pytest.fixture
def wide_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are for vectors of 512 bits, whatever this machine has: their C runs anywhere, in more instructions."""
    from fuse_opt.tools.compiler import backend_switch

    monkeypatch.setattr(backend_switch, "is_narrow_host", lambda: False)
