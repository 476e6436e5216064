"""The process's pool of threads that generated C programs share; the pool itself is parallel_for.c and pool_waiting.c."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Protocol

from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, runtime_text
from fuse_opt.runtime.host.processors import usable_processors

_SOURCES = (
    "host/pool_waiting.c",
    "host/parallel_for.c",
    "host/python_objects.c",
    "host/program_call.c",
    "host/sized_call.c",
    "host/recent_calls.c",
)
_FUNCTIONS = (
    "fuse_parallel_for",
    "fuse_set_num_threads",
    "fuse_num_threads",
    "fuse_take_pool",
    "fuse_give_pool",
    "fuse_run_frame",
    "fuse_take_frame",
    "fuse_keep_frame",
    "fuse_drop_frame",
    "fuse_call",
    "fuse_call_sized",
    "fuse_call_recent",
    "fuse_describe",
)
"""What Python asks of either text."""

_POOL_FLAGS = ("-pthread",)

_SERIAL_SOURCE = """\
struct fuse_loop {
  void (*task)(void *, long, long);
  void *arg;
  long count, grain;
  long (*prepare)(void *);
  long first, chunk, chunks;
};
void fuse_run_loops(struct fuse_loop *loop, long count) {
  for (struct fuse_loop *end = loop + count; loop < end; loop++) {
    if (loop->prepare) loop->count = loop->prepare(loop->arg);
    if (loop->count > 0) loop->task(loop->arg, 0, loop->count);
  }
}
void fuse_parallel_for(void (*task)(void *, long, long), void *arg, long count, long grain) {
  (void)grain;
  if (count > 0) task(arg, 0, count);
}
void fuse_set_num_threads(int count) { (void)count; }
void fuse_take_pool(void) {}
void fuse_give_pool(void) {}
int fuse_num_threads(void) { return 1; }
"""


MOST_THREADS = 4096
"""More than any machine has processors; threads cost memory."""


def load_pool() -> int:
    """
    The address of `fuse_parallel_for`, which a generated program receives as a function pointer of type
    `void (*)(void (*task)(void *, long, long), void *arg, long count, long grain)`; valid until the process ends.

    The first call compiles the pool, or takes it from the disk cache; threads start with the first loop that needs
    them. Where the system has no POSIX threads the function runs each loop on its caller; where there is no C compiler
    the answer is 0. Raises `ValueError` if `$FUSE_OPT_NUM_THREADS` is not an integer from 1 to MOST_THREADS.
    """
    library = pool_library()
    return 0 if library is None else address_in(library, "fuse_parallel_for")


def set_num_threads(count: int) -> None:
    """
    Lets `count` threads, the caller included, share each loop from the next one on, in place of the count from
    `$FUSE_OPT_NUM_THREADS` or, without it, the number of processors this process may use. Waits for a loop in
    progress, so it must not be called from inside one. Raises `ValueError` if `count` is not from 1 to
    MOST_THREADS, `TypeError` if it is no integer.
    """
    if isinstance(count, bool) or not 1 <= operator.index(count) <= MOST_THREADS:
        raise ValueError(f"number of threads: expected an integer from 1 to {MOST_THREADS}, got {count}")
    if (library := pool_library()) is not None:
        library.fuse_set_num_threads(count)
        for changed in list(_observers):
            changed.threads_changed()


@contextmanager
def without_pool() -> Generator[None]:
    """
    The pool's threads have nothing to do in the body: loops of other threads' programs are run by their callers alone. Waits for
    one in progress; must not be entered again inside, nor from a loop.
    """
    library = pool_library()
    if library is None:
        yield
        return
    library.fuse_take_pool()
    try:
        yield
    finally:
        library.fuse_give_pool()


class _Limit:
    """How many threads there were before somebody else's setting limited them, and the limit."""

    def __init__(self) -> None:
        self.own = self.limited = 0


_LIMIT = _Limit()


def limit_threads(most: int) -> None:
    """Lets no more than `most` threads share a loop, until another limit is given: as many as there were before, at most."""
    count = num_threads()
    if count != _LIMIT.limited:
        _LIMIT.own = count  # nobody limited them yet, or they were set since
    _LIMIT.limited = max(min(_LIMIT.own, most), 1)
    if _LIMIT.limited != count:
        set_num_threads(_LIMIT.limited)


def use_openmp_threads(wanted: bool = True) -> bool:
    """
    Lets the threads of an OpenMP runtime that this process has loaded already, as PyTorch does, share loops in place of the
    pool's own, or these again: two sets of threads that spin while they wait take each other's processors. Returns whether
    OpenMP's are used from now on: False where there is no such runtime. A child after a fork has the pool's own.
    """
    library = pool_library()
    if library is None or not hasattr(library, "fuse_set_team"):
        return False
    found = _loaded_openmp() if wanted else None
    if found is None:
        library.fuse_set_team(None, None)
    else:
        entries = (found.GOMP_parallel, found.omp_get_thread_num)
        library.fuse_set_team(*(ctypes.cast(entry, ctypes.c_void_p) for entry in entries))
    return found is not None


def _loaded_openmp() -> ctypes.CDLL | None:
    """The runtime of gcc, or one of those of LLVM and Intel, which have gcc's entries, too."""
    for name in ("libgomp.so.1", "libiomp5.so", "libomp.so.5", "libomp.so"):
        with suppress(OSError, AttributeError):
            found = ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
            if found.GOMP_parallel and found.omp_get_thread_num:
                return found
    return None


def num_threads() -> int:
    """How many threads may share a loop, the caller included; 1 where there is no pool."""
    library = pool_library()
    return 1 if library is None else int(library.fuse_num_threads())


class Observer(Protocol):
    """Whoever made plans for a number of threads."""

    def threads_changed(self) -> None: ...


_observers: weakref.WeakSet[Observer] = weakref.WeakSet()


def observe(observer: Observer) -> None:
    """Tells the observer, as long as it lives, when the number of threads was changed."""
    _observers.add(observer)


def _initial_count() -> int:
    text = os.environ.get("FUSE_OPT_NUM_THREADS")
    if not text:
        return min(usable_processors(), MOST_THREADS)
    digits = text.strip()
    if not digits.isdecimal() or len(digits) > 20 or not 1 <= int(digits) <= MOST_THREADS:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise ValueError(f"FUSE_OPT_NUM_THREADS={shown!r}: expected a positive integer, at most {MOST_THREADS}")
    return int(digits)


_begun: dict[int, Thread] = {}
"""By process: what compiles the pool."""


def begin_pool() -> None:
    """Lets the pool be compiled while the caller does something else, where it is not: who asks for it waits for that."""
    if os.getpid() in _begun or pool_library.cache_info().currsize or (compiler := find_c_compiler()) is None:
        return

    def build() -> None:
        with suppress(CompileError):  # who asks for it is told
            compiler.compile_shared(_pool_source(), DiskCache(), _POOL_FLAGS)

    thread = _begun[os.getpid()] = Thread(target=build, name="fuse_opt pool")
    thread.start()


def _pool_source() -> str:
    return "".join(map(runtime_text, _SOURCES))


@functools.cache
def pool_library() -> ctypes.CDLL | None:
    """
    The pool with what runs programs on it (program_call.c), or None where there is no C compiler. Loaded for the rest of
    the process: its threads run code of it, so it is never unloaded.
    """
    count = _initial_count()
    if (begun := _begun.get(os.getpid())) is not None:
        begun.join()
    if (compiler := find_c_compiler()) is None:
        return None
    cache = DiskCache()
    try:
        library = compiler.load_shared(_pool_source(), cache, _FUNCTIONS, _POOL_FLAGS)
    except CompileError:
        library = compiler.load_shared(_SERIAL_SOURCE + "".join(map(runtime_text, _SOURCES[2:])), cache, _FUNCTIONS)
    library.fuse_set_num_threads.argtypes, library.fuse_set_num_threads.restype = [ctypes.c_int], None
    if hasattr(library, "fuse_set_team"):
        library.fuse_set_team.argtypes, library.fuse_set_team.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    library.fuse_num_threads.argtypes, library.fuse_num_threads.restype = [], ctypes.c_int
    library.fuse_set_num_threads(count)
    return library
