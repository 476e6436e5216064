"""Phases of launches: whatever overlaps in memory is ordered, or task by task the same."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fuse_opt.lowering.emit.barriers import plan_phases
from fuse_opt.lowering.program import BufferRef, Launch

KERNELS = {"none": (None, None, None), "four": (4, 4, 4), "eight": (8, 8, 8), "mixed": (4, None, 8)}
"""By kernel the bytes of each task in each of its buffers."""


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    refs: list[BufferRef] = []
    for _ in range(3):
        buffer, offset = draw(st.integers(0, 1)), draw(st.sampled_from([0, 16, 32, 64, 128]))
        refs.append(BufferRef(buffer, offset, (draw(st.sampled_from([0, 8, 8, 16, 32])),), "f32"))
    tasks = draw(st.sampled_from([4, 8, 8]))
    stores = draw(st.sampled_from([(2,), (1, 2), None]))
    name = draw(st.sampled_from(sorted(KERNELS)))
    return Launch(name, tuple(refs), tasks, draw(st.sampled_from([1, 2, 64])), loads=(0, 1), stores=stores)


def accesses(launch: Launch) -> list[tuple[BufferRef, bool, int | None]]:
    everything = range(len(launch.buffers))
    slices = KERNELS[launch.kernel]
    read = everything if launch.loads is None else launch.loads
    written = everything if launch.stores is None else launch.stores
    return [(launch.buffers[k], writes, slices[k]) for writes, some in ((False, read), (True, written)) for k in some]


def conflicts(first: Launch, second: Launch) -> list[bool]:
    """For each overlap of which one writes: whether both are sliced alike."""
    return [
        s is not None and (s, a.offset) == (t, b.offset)
        for a, a_writes, s in accesses(first)
        for b, b_writes, t in accesses(second)
        if (a_writes or b_writes) and a.buffer == b.buffer
        if max(a.offset, b.offset) < min(a.offset + a.nbytes, b.offset + b.nbytes)
    ]


def places(given: Sequence[Launch]) -> dict[int, tuple[int, int, int, int, bool]]:
    """By identity of a launch: phase, loop, bundle, position, and whether its tasks are shared."""
    phases = plan_phases(given, KERNELS.__getitem__)
    return {
        id(launch): (p, k, b, n, not loop.whole)
        for p, phase in enumerate(phases)
        for k, loop in enumerate(phase)
        for b, bundle in enumerate(loop.bundles)
        for n, launch in enumerate(bundle)
    }


def is_legal(launch: Launch) -> bool:
    """Whether no task overwrites what another one reads."""
    return all(conflicts(launch, launch)) or launch.tasks <= launch.grain


@given(st.lists(launches().filter(is_legal), min_size=1, max_size=14))
def test_what_overlaps_is_in_order_or_aligned(given: list[Launch]) -> None:
    found = places(given)
    assert len(found) == len(given)
    for position, second in enumerate(given):
        for first in given[:position]:
            alike = conflicts(first, second)
            if not alike:
                continue
            before, after = found[id(first)], found[id(second)]
            if before[0] == after[0]:
                assert before[:3] == after[:3] and before[3] < after[3], "one loop, one after the other"
                if before[4]:
                    assert all(alike) and first.tasks == second.tasks
            else:
                assert before[0] < after[0]


def test_little_work_is_one_loop_in_order() -> None:
    given = [Launch("none", (BufferRef(k, 0, (8,), "f32"),) * 3, 4, 64) for k in range(5)]
    (phase,) = plan_phases(given, KERNELS.__getitem__)
    assert [loop.bundles for loop in phase] == [(tuple(given),)]


def test_independent_small_launches_share_a_phase_as_bundles() -> None:
    """Eight launches of half a chunk each are four tasks."""
    given = [Launch("none", (BufferRef(k, 0, (8,), "f32"),) * 3, 4, 8) for k in range(8)]
    (phase,) = plan_phases(given, KERNELS.__getitem__)
    assert [(len(loop.bundles), loop.tasks, loop.grain, loop.whole) for loop in phase] == [(4, 4, 1, True)]


def test_near_linear() -> None:
    def seconds(count: int) -> float:
        refs = [BufferRef(0, 32 * (k % 97), (8,), "f32") for k in range(count + 3)]
        given = [Launch("four", tuple(refs[k : k + 3]), 8, 1, loads=(0, 1), stores=(2,)) for k in range(count)]
        before = time.process_time()
        plan_phases(given, KERNELS.__getitem__)
        return time.process_time() - before

    assert seconds(8000) < 16 * max(seconds(1000), 0.005)
