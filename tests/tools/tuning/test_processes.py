"""Candidates in processes of their own: what crashes, hangs, is wrong or writes beyond its arrays is named, nothing else lost."""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cpu.program import KERNELS_STAY_FUNCTIONS
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.guard_pages import can_guard_pages
from fuse_opt.runtime.host.c_compiler import CompilerKilled, find_c_compiler
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.builders import has_c_compiler
from fuse_opt.tools.tuning.search import measuring_child, processes, sanitized
from fuse_opt.tools.tuning.search.candidates import Candidate, Site
from fuse_opt.tools.tuning.search.measuring_child import KILLED, Trial
from fuse_opt.tools.tuning.search.processes import ProcessBench
from fuse_opt.tools.tuning.search.sites import find_sites
from fuse_opt.tools.tuning.search.study import TrialFailed

pytestmark = pytest.mark.skipif(not has_c_compiler() or not can_guard_pages, reason="programs are compiled and guarded")

TEXT = """
func.func @main(%x: tensor<33x70xf32>) -> tensor<33xf32> {
  %0 = graph.sum %x {axes = array<i64: 1>} : (tensor<33x70xf32>) -> tensor<33xf32>
  func.return %0 : tensor<33xf32>
}"""
STORE = re.compile(r"arg0\[row\] = \w+;")
FAULTS: dict[str, tuple[str, str]] = {
    "crash": ("*(volatile int *)8 = 1;", "crash: ended by SIGSEGV"),
    "hang": ("for (volatile int fault = 1; fault;) {}", "hang: no answer within 2 s"),
    "wrong": ("arg0[row] += row == 3;", "wrong: bits differ, where none of its entries may change any"),
    "not a number": ("arg0[row] = 0.0f / 0.0f;", "wrong: bits differ"),
    "beyond": ("((volatile float *)arg0)[33] = 7.0f;", "crash: ended by SIGSEGV"),
    "slow": ("for (volatile int k = 0; k < 9999; ++k) {}", "slow: [0-9.]+ times the default"),
    "refused": ("nothing that compiles;", "refused: .*error"),
}


def with_behind_store(source: str, statement: str) -> str:
    """The text with a statement behind what stores the result."""
    text, count = STORE.subn(lambda found: f"{found[0]} {statement}", source)
    assert count
    return text


@pytest.fixture(scope="module")
def site() -> Site:
    (found,) = find_sites(load(TEXT))
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(site: Site, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = site.program(site.default)
    statement, reason = FAULTS[fault]
    broken = replace(plain, source=with_behind_store(plain.source, statement))

    def program(candidate: Candidate) -> Program:
        return plain if candidate == site.default else broken

    monkeypatch.setattr(site, "program", program)
    monkeypatch.setattr(processes, "START_SECONDS", 2.0 if fault == "hang" else 60.0)
    bench = ProcessBench(site, 1)
    try:
        with pytest.raises(TrialFailed, match=reason):
            bench.measure(Candidate.of({"kind": "row", "tasks": 7}), 0, 1)
        if fault == "crash":
            assert len(bench.measure(site.default, 0, 2).pairs) == 2
    finally:
        bench.close()


UNDEFINED = {
    "an operation": (
        "{ volatile float far = 1e30f; volatile int number = (int)far; (void)number; }",
        "crash: ended by SIG(ILL|TRAP)",
    ),
    "an address": (
        "{ float near[4]; volatile float *volatile place = near; volatile int next = 4; (void)place[next]; }",
        "crash: AddressSanitizer: stack-buffer-overflow",
    ),
}


@pytest.mark.parametrize("fault", UNDEFINED)
def test_a_last_look_finds_what_c_does_not_define(site: Site, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = site.program(site.default)
    statement, reason = UNDEFINED[fault]
    broken = replace(plain, source=with_behind_store(plain.source, statement))

    def program(candidate: Candidate) -> Program:
        return broken

    if fault != "an operation":
        monkeypatch.setattr(processes, "_CHECKED", ("-DCHECKED",))
    monkeypatch.setattr(site, "program", program)
    bench = ProcessBench(site, 1)
    try:
        with pytest.raises(TrialFailed, match=reason):
            bench.look_again(site.default)
    finally:
        bench.close()


def test_a_last_look_says_what_it_cannot_look_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ProcessBench(site, 1)
    try:
        assert bench.look_again(site.default) == ""
        monkeypatch.setattr(sanitized, "LIBRARY", "libnone.so")
        monkeypatch.setattr(processes, "_CHECKED", ("-fno-such-flag",))
        assert bench.look_again(site.default) == (
            "its operations were not checked: the compiler has no sanitizer for them; "
            "its addresses were not checked: the compiler has no libnone.so"
        )
    finally:
        bench.close()


def test_what_is_compiled_ahead_is_not_compiled_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSE_OPT_CACHE_DIR", str(tmp_path))
    plain, some = site.program(site.default), [Candidate.of({"kind": "row", "tasks": number}) for number in (7, 8, 9)]
    sources = {each: f"{plain.source}\n/* {each.text} */\n" for each in some}
    sources[some[2]] = with_behind_store(plain.source, "nothing that compiles;")

    def program(candidate: Candidate) -> Program:
        return replace(plain, source=sources[candidate]) if candidate in sources else plain

    monkeypatch.setattr(site, "program", program)
    bench = ProcessBench(site, 1, jobs=2)
    try:
        bench.ahead(some)
        cache, compiler = DiskCache(), find_c_compiler()
        assert compiler is not None
        for candidate in some[:2]:
            compiler.compile_shared(sources[candidate], cache, KERNELS_STAY_FUNCTIONS)
        assert (cache.stats.hits, cache.stats.misses) == (2, 0)
        assert len(bench.measure(some[0], 0, 1).pairs) == 1
        with pytest.raises(TrialFailed, match="refused: .*error"):
            bench.measure(some[2], 0, 1)
    finally:
        bench.close()


def test_pairs_of_a_candidate_whose_bits_differ(site: Site) -> None:
    bench = ProcessBench(site, 1)
    try:
        found = bench.measure(Candidate.of({"kind": "row", "lanes": 32}, False), 0, 3)
        assert len(found.pairs) == 3 and found.seconds > 0 and not found.same_bits
        assert bench.measure(site.default, 0, 2).same_bits
    finally:
        bench.close()


def test_a_turn_whose_compiler_is_killed_is_taken_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process says that finds it so, and who asked for the turn."""
    said: list[tuple[object, ...]] = []

    class Line:
        send = said.append

    def nothing(*given: object) -> None: ...

    def killed(program: Program, *more: object) -> None:
        raise CompilerKilled("'cc' was killed by signal 9: it did not say why")

    monkeypatch.setattr(measuring_child, "whole_program", killed)
    for name in ("_end_with_parent", "limit_threads"):
        monkeypatch.setattr(measuring_child, name, nothing)
    monkeypatch.setattr(signal, "signal", nothing)
    plain = site.program(site.default)
    measuring_child.serve(Line(), Trial(plain, plain, (), "", 1))  # pyright: ignore[reportArgumentType]
    assert [word for word, *_ in said] == [KILLED]
    bench, started = ProcessBench(site, 1), ProcessBench._started  # pyright: ignore[reportPrivateUsage]
    child = processes._Child.__new__(processes._Child)  # pyright: ignore[reportPrivateUsage]
    here, there = Pipe()
    child._line = here  # pyright: ignore[reportPrivateUsage]
    turns: list[Candidate] = []

    def once_killed(self: ProcessBench, candidate: Candidate, *given: Any, **more: Any) -> Any:
        turns.append(candidate)
        if len(turns) == 1:
            there.send(said[0])
            child.answer(1.0)
        return started(self, candidate, *given, **more)

    monkeypatch.setattr(ProcessBench, "_started", once_killed)
    try:
        assert len(bench.measure(site.default, 0, 2).pairs) == 2 and len(turns) == 2
    finally:
        bench.close()


def test_a_turn_whose_process_is_killed_is_taken_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, asked = ProcessBench(site, 1), processes._Child.asked  # pyright: ignore[reportPrivateUsage]
    killed: list[int] = []

    def killing(child: Any, pairs: int, seconds: float) -> Any:
        if not killed:
            killed.append(child._process.pid)
            os.kill(killed[0], signal.SIGKILL)
        return asked(child, pairs, seconds)

    monkeypatch.setattr(processes._Child, "asked", killing)  # pyright: ignore[reportPrivateUsage]
    try:
        assert len(bench.measure(site.default, 0, 2).pairs) == 2
    finally:
        bench.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not say who is stopped")
def test_a_process_that_is_stopped_for_a_while_hangs_not(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = processes._Child.asked  # pyright: ignore[reportPrivateUsage]
    stopped: list[int] = []

    def stopping(child: Any, pairs: int, seconds: float) -> Any:
        stopped.append(child._process.pid)
        os.kill(stopped[0], signal.SIGSTOP)
        going_on = threading.Timer(1.2, os.kill, (stopped[0], signal.SIGCONT))
        going_on.start()
        try:
            return asked(child, pairs, seconds)
        finally:
            going_on.join()

    monkeypatch.setattr(processes._Child, "asked", stopping)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(processes, "_ANSWER_SECONDS", 0.9)
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0.3)
    bench = ProcessBench(site, 1)
    assert len(bench.measure(Candidate.of({**site.default.settings, "tasks": 4096}), 0, 2).pairs) == 2
    bench.close()
    assert len(stopped) == 1
