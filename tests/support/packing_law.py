"""What every packing must satisfy, stated without the solver, and problems to try it on."""

from itertools import permutations

from hypothesis import strategies as st

from fuse_opt.passes.memory.packing.packing import Buffer, Problem


def rounded(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment


def assert_law(problem: Problem, offsets: tuple[int, ...], arena: int) -> None:
    """Compare all pairs: buffers alive together share no rounded byte; all are aligned, pinned ones at their pins."""
    ends = [0]
    assert len(offsets) == len(problem.buffers)
    for i, (b, at) in enumerate(zip(problem.buffers, offsets, strict=True)):
        assert at >= 0 and at % problem.alignment == 0
        assert b.offset is None or at == b.offset
        if not b.size or b.start == b.stop:
            assert at == (b.offset or 0)
            continue
        end = at + rounded(b.size, problem.alignment)
        ends.append(end)
        for c, other in zip(problem.buffers[:i], offsets[:i], strict=True):
            together = c.size and max(b.start, c.start) < min(b.stop, c.stop)
            assert not together or end <= other or other + rounded(c.size, problem.alignment) <= at
    assert arena == max(ends)


def smallest_arena(problem: Problem) -> int:
    """The optimum: some sequence of "each as low as it can go, but not below the one before" is optimal; try them all."""
    best = sum(rounded(b.size, problem.alignment) for b in problem.buffers)
    for order in permutations(problem.buffers):
        placed: list[tuple[int, int, Buffer]] = []
        for b in order:
            meets = [(lo, hi) for lo, hi, c in placed if max(b.start, c.start) < min(b.stop, c.stop)]
            size = rounded(b.size, problem.alignment)
            low = min(
                at for at in [0, *(hi for _, hi in meets)] if all(at + size <= lo or hi <= at for lo, hi in meets)
            )
            placed.append((low, low + size, b))
        best = min(best, max(hi for _, hi, _ in placed))
    return best


@st.composite
def problems(draw: st.DrawFn, most: int = 30, shortest: int = 0) -> Problem:
    alignment = draw(st.sampled_from([1, 3, 64]))
    births = st.integers(-5, 20)
    sizes = st.integers(shortest, 6 * alignment)
    rows = draw(st.lists(st.tuples(sizes, births, st.integers(shortest, 12)), max_size=most))
    return Problem(tuple(Buffer(size, start, start + life) for size, start, life in rows), alignment)
