"""What memory lets a program take that reads a matrix and writes one: `python benchmarks/streaming_limit.py [--rows R]`.

A softmax by its default, and loops in C that only move a matrix of its size: a copy through the caches and one past them, and
reading alone. And the softmax of as many rows that lie in the caches, which waits for no memory: what computing takes. All on one
thread, in turns, by the thread's processor time; medians of turns, and of ratios to the softmax's turn beside.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tuning_programs import softmax

from fuse_opt import compile as compile_program
from fuse_opt.runtime.buffers import result_pool
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import find_c_compiler
from fuse_opt.runtime.host.thread_pool import limit_threads

_CALLS = 3
_LOOPS = """
typedef float line __attribute__((vector_size(64), aligned(4), may_alias));
typedef float aligned_line __attribute__((vector_size(64), may_alias));
#ifdef __AVX512F__
#define PAST(to, value) __builtin_ia32_movntps512((float *)(to), value)
#else
#define PAST(to, value) *(to) = value
#endif
void copy(const line *from, aligned_line *to, long count) { for (long i = 0; i < count; ++i) to[i] = from[i]; }
void past(const line *from, aligned_line *to, long count) {
  for (long i = 0; i < count; ++i) PAST(to + i, from[i]);
#ifdef __AVX512F__
  __builtin_ia32_sfence();
#endif
}
void reading(const line *from, aligned_line *to, long count) {
  aligned_line sums[4] = {{0}, {0}, {0}, {0}};
  for (long i = 0; i + 4 <= count; i += 4) for (int k = 0; k < 4; ++k) sums[k] += from[i + k];
  to[0] = sums[0] + sums[1] + sums[2] + sums[3];
}
"""
_NAMES = {"copy": "a copy through the caches", "past": "a copy past the caches", "reading": "reading alone"}
_CACHED_ROWS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12001)
    parser.add_argument("--columns", type=int, default=771)
    parser.add_argument("--turns", type=int, default=24)
    given = parser.parse_args()
    limit_threads(1)
    print(f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())}, one thread, {given.turns} turns")
    made = _calls(given.rows, given.columns)
    turns: dict[str, list[float]] = {name: [] for name in made}
    for number in range(given.turns):
        for name in list(made)[:: 1 if number % 2 else -1]:
            turns[name].append(min(_seconds(made[name]) for _ in range(_CALLS)))
    first = next(iter(turns.values()))
    for name, found in turns.items():
        ratios = [a / b for a, b in zip(found, first, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name:44s} {1e3 * statistics.median(found):7.3f} ms  {middle:.3f} ({low:.3f} to {high:.3f}) of the first"
        )


def _seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _calls(rows: int, columns: int) -> dict[str, Callable[[], object]]:
    """By name: the softmax, the loops, and the softmax of rows in the caches, as often as there are such."""
    given, out = (result_pool.empty((rows, columns), np.dtype("f4")) for _ in range(2))
    given[:] = np.random.default_rng(0).standard_normal((rows, columns), dtype="f4")
    program: Any = compile_program(softmax(rows, columns), tuned="")
    few: Any = compile_program(softmax(_CACHED_ROWS, columns), tuned="")
    near, result, times = given[:_CACHED_ROWS].copy(), out[:_CACHED_ROWS].copy(), rows // _CACHED_ROWS

    def cached() -> None:
        for _ in range(times):
            few(near, out=[result])

    found: dict[str, Callable[[], object]] = {f"softmax {rows}x{columns}": lambda: program(given, out=[out])}
    compiler = find_c_compiler()
    assert compiler is not None
    library = ctypes.CDLL(str(compiler.compile_shared(_LOOPS, DiskCache())))
    for name, shown in _NAMES.items():
        loop = getattr(library, name)
        loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        loop.restype = None
        arguments = given.ctypes.data, out.ctypes.data, given.nbytes // 64
        found[shown] = lambda loop=loop, arguments=arguments: loop(*arguments)
    return {**found, f"{times} times softmax {_CACHED_ROWS}x{columns}": cached}


if __name__ == "__main__":
    main()
