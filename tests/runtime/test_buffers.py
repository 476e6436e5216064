"""Memory of programs: aligned, private to the process, and never handed out while somebody can see it."""

import ctypes
import gc
import os
import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fuse_opt.runtime import buffers
from fuse_opt.runtime.buffers import AlignedArena, RecyclingPool

LARGE = 1 << 18


def address(array: NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 100_000, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
@pytest.mark.parametrize("alignment", [1, 64, 256, 4096, 1 << 16, 4 << 20])
def test_arena_is_aligned_and_whole(nbytes: int, alignment: int) -> None:
    arena = AlignedArena(nbytes, alignment)
    whole = arena.view(0, [nbytes], np.uint8)
    assert arena.address % alignment == 0
    assert not whole.any()
    whole[...] = 7
    assert int(whole.sum(dtype=np.int64)) == 7 * nbytes


def test_arena_views_share_and_keep_the_memory() -> None:
    arena = AlignedArena(4096)
    first = arena.view(64, (4, 8), np.float32)
    again = arena.view(64 + 32, (8,), "f4")
    assert address(first) == arena.address + 64
    assert first.flags.c_contiguous and first.flags.writeable and first.flags.aligned
    first[1] = 5.0
    assert again.tolist() == [5.0] * 8
    assert arena.view(4096, (0, 3), np.float64).size == 0
    assert arena.view(0, (), np.int64).shape == ()
    del arena
    gc.collect()
    first[...] = 1.0
    assert again.tolist() == [1.0] * 8


@pytest.mark.parametrize("offset, shape", [(-1, [1]), (4093, [1]), (0, [1025]), (4097, [0]), (0, [2**40, 2**40])])
def test_arena_view_outside(offset: int, shape: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="inside the arena's 4096 bytes"):
        AlignedArena(4096).view(offset, shape, np.float32)


def test_arena_refusals() -> None:
    with pytest.raises(ValueError, match="got -1"):
        AlignedArena(-1)
    for alignment in (0, -64, 48):
        with pytest.raises(ValueError, match="power of two"):
            AlignedArena(64, alignment)
    with pytest.raises(MemoryError):
        AlignedArena(1 << 62)
    with pytest.raises(TypeError, match="object"):
        AlignedArena(64).view(0, [1], object)


@given(st.lists(st.integers(0, 60), max_size=3), st.sampled_from(["f4", "f8", "i1", "?", "c16", "f2"]))
def test_outputs_look_like_those_of_numpy(shape: list[int], dtype: str) -> None:
    ours = RecyclingPool().empty(shape, dtype)
    theirs = np.empty(shape, dtype)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert ours.strides == theirs.strides or not ours.size
    assert address(ours) % 64 == 0
    assert ours.flags.writeable and ours.flags.c_contiguous and ours.flags.aligned
    ours[...] = 1
    assert (ours == 1).all()


@pytest.mark.parametrize("shape", [LARGE, [LARGE], (2, LARGE)])
def test_dropping_recycles(shape: int | Sequence[int]) -> None:
    pool = RecyclingPool()
    first = pool.empty(shape, np.float32)
    where = address(first)
    other = pool.empty(shape, np.float32)
    assert address(other) != where
    assert pool.idle_bytes == 0
    del first
    assert pool.idle_bytes > 0
    assert address(pool.empty(shape, np.float32)) == where


class Flavoured(np.ndarray[Any, Any]):
    """An array of another class, whose views numpy ties to their parents in another way."""


HOLDERS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "view of view": lambda array: array[10:20][::2].T.view(np.int32)[1:],
    "reshaped": lambda array: array.ravel()[8:].reshape(-1, 4)[3:],
    "element": lambda array: array[5, 5:6],
    "memoryview": lambda array: array.data[5:],
    "subclass": lambda array: array.view(Flavoured)[3:][2:],
    "dlpack": lambda array: np.from_dlpack(array)[:2],
    "ctypes": lambda array: array.ctypes.data_as(ctypes.c_void_p),
    "buffer": lambda array: np.frombuffer(array.data, np.uint8)[100:],
    "base": lambda array: array[1:].base,
    "base of base": lambda array: array.base,
    "iterator": lambda array: iter(array),
    "cycle": lambda array: [array],
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_memory_in_use_is_never_handed_out(kind: str) -> None:
    pool = RecyclingPool()
    array = pool.empty((512, 512), np.float32)
    array[...] = 3.0
    begin = address(array)
    holder = HOLDERS[kind](array)
    if kind == "cycle":
        holder.append(holder)
    del array
    gc.collect()
    assert pool.idle_bytes == 0
    assert all(address(each) != begin for each in [pool.empty((512, 512), np.float32) for _ in range(3)])
    del holder
    gc.collect()
    assert begin in {address(each) for each in [pool.empty((512, 512), np.float32) for _ in range(4)]}


def test_arrays_outlive_their_pool() -> None:
    pool = RecyclingPool()
    array = pool.empty(LARGE, np.float64)
    array[...] = 2.5
    view = array[5:]
    del pool, array
    gc.collect()
    assert (view == 2.5).all()
    view[...] = 1.0


def test_idle_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    pool = RecyclingPool(max_idle_bytes=3 * LARGE)
    arrays = [pool.empty(LARGE * size // 4, np.uint8) for size in (4, 5, 6)]
    kept = {address(array) for array in arrays[1:]}
    while arrays:
        del arrays[0]
    assert 2 * LARGE <= pool.idle_bytes <= 3 * LARGE
    again = [pool.empty(LARGE * size // 4, np.uint8) for size in (5, 6)]
    assert {address(array) for array in again} == kept
    del again
    before = pool.idle_bytes
    pool.empty(4 * LARGE, np.uint8)
    assert pool.idle_bytes == before


def test_no_more_is_held_than_was_in_use_and_one_array() -> None:
    pool = RecyclingPool()
    choice, alive, most, largest = random.Random(3), deque[NDArray[Any]](), 0, 0
    for _ in range(300):
        alive.append(pool.empty(choice.choice([1, 2, 3, 4, 8, 16]) * LARGE, np.uint8))
        largest = max(largest, alive[-1].nbytes)
        most = max(most, sum(array.nbytes for array in alive))
        while len(alive) > choice.randrange(1, 6):
            alive.popleft()
        assert pool.held_bytes <= most + largest


def test_memory_that_is_not_asked_for_again_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_LONG_UNUSED", 5)
    pool = RecyclingPool()
    both = [pool.empty(LARGE, np.uint8), pool.empty(2 * LARGE, np.uint8)]
    both.clear()
    for _ in range(20):
        pool.empty(LARGE, np.uint8)
    assert pool.idle_bytes == LARGE
    held = pool.empty(LARGE, np.uint8)
    other = pool.empty(LARGE, np.uint8)
    del other
    pool.trim()
    assert (pool.idle_bytes, pool.held_bytes) == (0, LARGE)
    del held


def test_small_arrays_are_not_kept() -> None:
    pool = RecyclingPool()
    pool.empty(1000, np.uint8)
    assert pool.idle_bytes == 0


def test_output_refusals() -> None:
    pool = RecyclingPool()
    with pytest.raises(TypeError, match="object"):
        pool.empty(3, object)
    for shape in (-1, [-3, -LARGE], [-LARGE, 5]):
        with pytest.raises(ValueError, match="0 or more"):
            pool.empty(shape, np.float32)
    with pytest.raises(MemoryError):
        pool.empty(1 << 61, np.uint8)


def test_pool_with_threads_and_arrays_that_cross_them() -> None:
    """Each array is filled with its own number, and must hold it still when another thread drops it later."""
    pool = RecyclingPool(max_idle_bytes=20 * LARGE)
    shared: list[tuple[int, NDArray[np.int64]]] = []

    def call(number: int) -> int:
        choice = random.Random(number)
        wrong = 0
        for turn in range(400):
            array = pool.empty(choice.choice([8192, 10_000, 20_000]), np.int64)
            value = number * 1000 + turn
            array[...] = value
            shared.append((value, array[1:]))
            del array
            if len(shared) > 12:
                expected, view = shared.pop(choice.randrange(8))
                wrong += not (view == expected).all()
                if turn % 5 == 0:
                    cycle: list[Any] = [view]
                    cycle.append(cycle)
        return wrong

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(call, range(6))) == 0
    shared.clear()
    gc.collect()
    assert 0 < pool.idle_bytes <= 20 * LARGE


def test_finalizer_under_the_lock_does_not_wait() -> None:
    pool = RecyclingPool()
    array = pool.empty(LARGE, np.uint8)
    with pool._lock:  # pyright: ignore[reportPrivateUsage]
        del array
        assert pool._idle_bytes == 0  # pyright: ignore[reportPrivateUsage]
    assert pool.idle_bytes == LARGE


def test_child_has_memory_of_its_own() -> None:
    pool = RecyclingPool()
    arena = AlignedArena(4096)
    ours, output = arena.view(0, [1024], np.int32), pool.empty(LARGE, np.int32)
    dropped = pool.empty(LARGE, np.int32)
    ours[...] = output[...] = 1
    del dropped
    with pool._lock:  # pyright: ignore[reportPrivateUsage]
        child = os.fork()
        if child == 0:
            ours[...] = output[...] = 2
            fresh = pool.empty(LARGE, np.int32)
            fresh[...] = 3
            good = (output == 2).all() and pool.idle_bytes == 0
            del fresh
            os._exit(0 if good and pool.idle_bytes > 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (ours == 1).all() and (output == 1).all()


def flags_of_mapping(address: int) -> list[str]:
    """What the kernel says of the mapping that holds an address."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", words[0]):
            start, end = (int(word, 16) for word in words[0].split("-"))
            here = start <= address < end
        elif here and words[0] == "VmFlags:":
            return words[1:]
    return []


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="no transparent huge pages")
def test_huge_pages_are_asked_for_from_their_size_on() -> None:
    small, large = AlignedArena((2 << 20) - 1), AlignedArena(2 << 20)
    result = RecyclingPool().empty((3 << 20,), np.uint8)
    assert "hg" not in flags_of_mapping(small.address)
    assert "hg" in flags_of_mapping(large.address) and large.address % (2 << 20) == 0
    assert "hg" in flags_of_mapping(result.ctypes.data)
