"""The pool of threads: every index once, whatever the loop, the callers and the process do."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host import thread_pool
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.host.program_call import REGION, Loop, LoopRow

HARNESS = """
int sched_yield(void);
typedef void (*parallel_for)(void (*)(void *, long, long), void *, long, long);
struct marks { int *hits; long grain, odd; parallel_for pool; };
static void mark(void *arg, long begin, long end) {
  struct marks *m = arg;
  if (begin % m->grain) __atomic_add_fetch(&m->odd, 1, __ATOMIC_RELAXED);
  for (long i = begin; i < end; i++) m->hits[i]++;
}
static void mark_inside(void *arg, long begin, long end) {
  struct marks *m = arg;
  for (long i = begin; i < end; i++) {
    struct marks inner = {m->hits + 64 * i, 1, 0, m->pool};
    m->pool(mark, &inner, 64, 1);
  }
}
/* Counts in hits[i] how often i was visited; returns how many chunks began elsewhere than at a multiple of grain. */
long visit(parallel_for pool, int *hits, long count, long grain, long times) {
  struct marks m = {hits, grain < 1 ? 1 : grain, 0, pool};
  for (long t = 0; t < times; t++) pool(mark, &m, count, grain);
  return m.odd;
}
struct meeting { long *begins; long wanted, arrived; };
static void meet(void *arg, long begin, long end) {
  struct meeting *m = arg;
  long place = __atomic_fetch_add(&m->arrived, 1, __ATOMIC_SEQ_CST);
  if (place < m->wanted) m->begins[place] = begin;
  for (long k = 0; k < 5000000000 && __atomic_load_n(&m->arrived, __ATOMIC_SEQ_CST) < m->wanted; k++)
    if (k % 100000 == 99999) sched_yield();
  (void)end;
}
/* Every thread waits in its first chunk for the others; where these chunks begin. */
void first_chunks(parallel_for pool, long *begins, long threads, long count, long grain) {
  struct meeting m = {begins, threads, 0};
  pool(meet, &m, count, grain);
}
void visit_inside(parallel_for pool, int *hits, long count) {
  struct marks m = {hits, 1, 0, pool};
  pool(mark_inside, &m, count, 1);
}
"""


@pytest.fixture(scope="module")
def harness() -> ctypes.CDLL:
    cache = DiskCache()
    compiler = find_c_compiler(cache)
    if compiler is None:
        pytest.skip("no C compiler")
    library = ctypes.CDLL(str(compiler.compile_shared(HARNESS, cache)))
    library.visit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    library.visit.restype = ctypes.c_long
    library.first_chunks.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_long] * 3]
    library.visit_inside.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return library


@pytest.fixture(autouse=True)
def same_count_afterwards() -> Iterator[None]:
    count = thread_pool.num_threads()
    yield
    thread_pool.set_num_threads(count)


def visits(harness: ctypes.CDLL, count: int, grain: int, times: int = 1) -> set[int]:
    """How often the indices in [0, count) were visited; asserts that those around were not."""
    hits = np.zeros(count + 128, np.int32)
    assert harness.visit(thread_pool.load_pool(), hits.ctypes.data + 256, count, grain, times) == 0
    assert not hits[:64].any()
    assert not hits[64 + count :].any()
    return set(hits[64 : 64 + count].tolist())


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 16])
def test_every_index_once(harness: ctypes.CDLL, threads: int) -> None:
    thread_pool.set_num_threads(threads)
    assert thread_pool.num_threads() == threads
    for count in (1, 2, 7, 63, 64, 65, 1000, 4096, 100_003):
        for grain in (-5, 0, 1, 3, 64, 999, 1000, 1001, 2**62, 2**63 - 1):
            assert visits(harness, count, grain) == {1}, (count, grain)


@given(st.integers(1, 20_000), st.integers(1, 3_000), st.integers(1, 6))
def test_every_index_once_in_any_loop(harness: ctypes.CDLL, count: int, grain: int, threads: int) -> None:
    thread_pool.set_num_threads(threads)
    assert visits(harness, count, grain) == {1}


@pytest.fixture
def openmp_threads() -> Iterator[None]:
    with suppress(OSError):
        ctypes.CDLL("libgomp.so.1")
    if not thread_pool.use_openmp_threads():
        pytest.skip("no OpenMP runtime")
    yield
    assert not thread_pool.use_openmp_threads(False)


@pytest.mark.usefixtures("openmp_threads")
def test_loops_on_the_threads_of_openmp(harness: ctypes.CDLL) -> None:
    for threads in (1, 2, 4):
        thread_pool.set_num_threads(threads)
        assert all(visits(harness, count, grain) == {1} for count in (1, 63, 4096) for grain in (1, 64, 1000))
        assert visits(harness, 500, 8, times=500) == {500}
    begins = np.full(4, -1, np.int64)
    harness.first_chunks(thread_pool.load_pool(), begins.ctypes.data, 4, 240, 10)
    assert sorted(begins.tolist()) == [0, 60, 120, 180]
    hits = np.zeros(64 * 300, np.int32)
    harness.visit_inside(thread_pool.load_pool(), hits.ctypes.data, 300)
    assert (hits == 1).all()

    def call(count: int) -> set[int]:
        return visits(harness, count, 7, 50)

    with ThreadPoolExecutor(3) as callers:
        assert list(callers.map(call, range(900, 930))) == [{50}] * 30


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_empty_loops(harness: ctypes.CDLL, count: int) -> None:
    assert harness.visit(thread_pool.load_pool(), None, count, 1, 1) == 0


def test_threads_begin_at_shares_of_their_own(harness: ctypes.CDLL) -> None:
    thread_pool.set_num_threads(4)
    begins = np.full(4, -1, np.int64)
    for _ in range(20):
        harness.first_chunks(thread_pool.load_pool(), begins.ctypes.data, 4, 240, 10)
        assert sorted(begins.tolist()) == [0, 60, 120, 180]


def test_many_loops_in_a_row(harness: ctypes.CDLL) -> None:
    thread_pool.set_num_threads(4)
    assert visits(harness, 500, 8, times=20_000) == {20_000}


def test_loop_inside_a_loop(harness: ctypes.CDLL) -> None:
    thread_pool.set_num_threads(4)
    hits = np.zeros(64 * 300, np.int32)
    harness.visit_inside(thread_pool.load_pool(), hits.ctypes.data, 300)
    assert set(hits.tolist()) == {1}


def test_several_callers_and_changes_of_the_count(harness: ctypes.CDLL) -> None:
    def call(number: int) -> set[int]:
        found: set[int] = set()
        for turn in range(50):
            if number == 0:
                thread_pool.set_num_threads(1 + turn % 5)
            found |= visits(harness, 1000 + number, 10, times=20)
        return found

    with ThreadPoolExecutor(6) as callers:
        assert list(callers.map(call, range(6))) == [{20}] * 6


PHASES = """
static long a[3000], b[3000], c[3000];
static void first(void *round, long begin, long end) {
  for (long i = begin; i < end; i++) a[i] = i + *(long *)round;
}
static void turned(void *round, long begin, long end) {
  (void)round;
  for (long i = begin; i < end; i++) b[i] = 2 * a[2999 - i];
}
static void beside(void *round, long begin, long end) {
  (void)round;
  for (long i = begin; i < end; i++) c[i] = a[i] + a[2999 - i];
}
static void check(void *round, long begin, long end) {
  (void)begin, (void)end;
  for (long i = 0; i < 3000; i++)
    if (b[i] != 2 * (2999 - i + *(long *)round) || c[i] != 2999 + 2 * *(long *)round) ++*((long *)round + 1);
}
void (*const tasks[])(void *, long, long) = {first, turned, beside, check};
"""


@pytest.mark.parametrize("threads", [1, 2, 4, 9])
def test_phases_wait_for_each_other(harness: ctypes.CDLL, threads: int) -> None:
    run_phases(threads, 1000)


@pytest.mark.usefixtures("openmp_threads")
def test_phases_on_the_threads_of_openmp() -> None:
    for threads in (2, 4):
        run_phases(threads, 200)


def run_phases(threads: int, times: int) -> None:
    """Elements are read in another task than the one that wrote them; a phase of one task is run by whoever comes to it."""
    compiler, caller = find_c_compiler(), thread_pool.pool_library()
    assert compiler is not None and caller is not None
    library = ctypes.CDLL(str(compiler.compile_shared(PHASES, DiskCache())))
    first, turned, beside, check = (ctypes.c_void_p * 4).in_dll(library, "tasks")
    state = (ctypes.c_long * 2)()
    at = ctypes.addressof(state)
    rows = [LoopRow(first or 0, at, 3000, 7, 0, REGION), LoopRow(turned or 0, at, 3000, 50)]
    rows += [LoopRow(beside or 0, at, 3000, 9, 0, 0), LoopRow(check or 0, at, 1, 1), LoopRow(first or 0, at, 3000, 3)]
    table = (Loop * len(rows))(*rows)
    thread_pool.set_num_threads(threads)
    for number in range(times):
        state[0] = number
        caller.fuse_run_loops(ctypes.byref(table), ctypes.c_long(len(rows)))
    assert state[1] == 0


def test_python_tasks() -> None:
    address = thread_pool.load_pool()
    if not address:
        pytest.skip("no C compiler")
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)
    pool = ctypes.CFUNCTYPE(None, task_type, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)(address)
    thread_pool.set_num_threads(3)
    seen: list[int] = []

    def task(_: object, begin: int, end: int) -> None:
        seen.extend(range(begin, end))

    pool(task_type(task), None, 1000, 10)
    assert sorted(seen) == list(range(1000))


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


COUNT_IN_PROCESS = """
import ctypes, sys, os
import numpy as np
from fuse_opt.runtime.host import thread_pool
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.disk_cache import DiskCache
visit = ctypes.CDLL(str(find_c_compiler().compile_shared(HARNESS, DiskCache()))).visit
visit.argtypes = [ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_long] * 3
def check():
    hits = np.zeros(1000, np.int32)
    visit(thread_pool.load_pool(), hits.ctypes.data, 1000, 10, 200)
    return set(hits.tolist()) == {200}
def workers():
    return len(os.listdir("/proc/self/task")) - 1
""".replace("HARNESS", repr(HARNESS))

FORKS = """
import threading
assert check() and workers() == 3, workers()
stop = False
def keep_busy():
    while not stop: check()
thread = threading.Thread(target=keep_busy)
thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        good = workers() == 0 and check() and workers() == 3
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if check() else 1)
        os._exit(0 if good and os.waitpid(grandchild, 0)[1] == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert check()
stop = True
thread.join()
print("fine")
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_children_start_their_own_threads(harness: ctypes.CDLL) -> None:
    environment = {"FUSE_OPT_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "1"}
    done = run_python(COUNT_IN_PROCESS + FORKS, **environment)
    assert done.stdout == "fine\n", done.stderr


OPENMP = """
ctypes.CDLL("libgomp.so.1")
assert thread_pool.use_openmp_threads() and check()
child = os.fork()
if child == 0:
    good = workers() == 0 and check() and workers() == 3
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert check()
print("fine")
"""


@pytest.mark.usefixtures("openmp_threads")
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_a_child_has_threads_of_its_own_where_openmp_had_them(harness: ctypes.CDLL) -> None:
    done = run_python(COUNT_IN_PROCESS + OPENMP, FUSE_OPT_NUM_THREADS="4", OPENBLAS_NUM_THREADS="1")
    assert done.stdout == "fine\n", done.stderr


def test_ends_while_another_thread_is_in_a_loop(harness: ctypes.CDLL) -> None:
    program = COUNT_IN_PROCESS + "import threading, time\n"
    program += "def forever():\n    while True: check()\n"
    program += "threading.Thread(target=forever, daemon=True).start(); time.sleep(0.2); print('end')"
    done = run_python(program)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_count_from_the_environment(harness: ctypes.CDLL) -> None:
    program = "from fuse_opt.runtime.host import thread_pool; print(thread_pool.num_threads())"
    assert run_python(program, FUSE_OPT_NUM_THREADS="3").stdout == "3\n"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert run_python(program, FUSE_OPT_NUM_THREADS="").stdout == f"{usable}\n"
    for wrong in ("0", "-1", "many", "1.5", "4097", "100000", str(10**20)):
        assert f"FUSE_OPT_NUM_THREADS='{wrong}': expected" in run_python(program, FUSE_OPT_NUM_THREADS=wrong).stderr


@pytest.mark.parametrize("count", [0, -1, 4097, 100_000, 10**20, True])
def test_wrong_count(count: int) -> None:
    with pytest.raises(ValueError, match=f"expected an integer from 1 to 4096, got {count}"):
        thread_pool.set_num_threads(count)


def test_a_count_of_no_integer() -> None:
    with pytest.raises(TypeError):
        thread_pool.set_num_threads(2.5)  # pyright: ignore[reportArgumentType]


def test_without_a_compiler(tmp_path: Path) -> None:
    program = "from fuse_opt.runtime.host import thread_pool as t; t.set_num_threads(2); print(t.load_pool(), t.num_threads())"
    done = run_python(program, PATH=str(tmp_path), CC="", FUSE_OPT_CC="")
    assert done.stdout == "0 1\n", done.stderr


def test_without_threads_of_the_system(harness: ctypes.CDLL, tmp_path: Path) -> None:
    compiler = find_c_compiler()
    assert compiler is not None
    picky = tmp_path / "picky"
    picky.write_text(f'#!/bin/sh\nfor a; do [ "$a" = -pthread ] && exit 1; done\nexec {compiler.path} "$@"\n')
    picky.chmod(0o700)
    done = run_python(
        COUNT_IN_PROCESS + "print(check(), thread_pool.num_threads())",
        FUSE_OPT_CC=str(picky),
        FUSE_OPT_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.stdout == "True 1\n", done.stderr


BEGUN = """
import threading
from fuse_opt.runtime.host import thread_pool
from fuse_opt.runtime.host.c_compiler import CCompiler
asked, build = [], CCompiler.compile_shared
def compiled(self, source, cache, *rest):
    asked.append((threading.current_thread() is threading.main_thread(), cache, "fuse_parallel_for" in source))
    return build(self, source, cache, *rest)
CCompiler.compile_shared = compiled
thread_pool.begin_pool()
thread_pool.begin_pool()
assert thread_pool.load_pool()
thread_pool.begin_pool()
print([(main, cache.stats.misses, cache.stats.hits) for main, cache, is_pool in asked if is_pool])
"""


def test_a_pool_that_was_begun_is_waited_for(tmp_path: Path) -> None:
    """Compiled once, in another thread."""
    if find_c_compiler() is None:
        pytest.skip("no C compiler")
    environment = {**os.environ, "FUSE_OPT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", BEGUN], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[(False, 1, 0), (True, 0, 1)]\n", "")
