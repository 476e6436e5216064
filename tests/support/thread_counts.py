"""Calls with several numbers of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fuse_opt.runtime.host import thread_pool

T = TypeVar("T")


def by_threads(call: Callable[[], T], counts: Sequence[int] = (1, 2, 4, 8)) -> list[T]:
    """What a call gives with each of these numbers of threads; then the pool has as many as before."""
    before = thread_pool.num_threads()
    try:
        return [_with(count, call) for count in counts]
    finally:
        thread_pool.set_num_threads(before)


def _with(count: int, call: Callable[[], T]) -> T:
    thread_pool.set_num_threads(count)
    return call()
