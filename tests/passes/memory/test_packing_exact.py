"""The exact stage of packing: optimal on small problems, the same in C and in Python, and as far as published instances ask."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from packing_law import assert_law, smallest_arena

from fuse_opt.passes.memory.packing.exact import Outcome, Question, TreeSearch, spans_of
from fuse_opt.passes.memory.packing.first_fit import Block
from fuse_opt.passes.memory.packing.packing import Buffer, Problem, lower_bound, pack
from fuse_opt.passes.memory.packing.restarts import SEARCH, parts_of
from fuse_opt.tools.commands.fuse_pack import read_rows
from fuse_opt.tools.compiler import native_packing as packing_core
from fuse_opt.tools.compiler.native_packing import CompiledSearch, compiled_packing, compiled_search

INSTANCES = sorted(
    (Path(__file__).resolve().parents[3] / "benchmarks" / "memplan" / "minimalloc").glob("?.1048576.csv")
)
needs_core = pytest.mark.skipif(packing_core._library() is None, reason="no C compiler works here")  # pyright: ignore[reportPrivateUsage]


SEVEN = ((3, 5, 6), (2, 3, 5), (3, 0, 2), (1, 1, 5), (1, 1, 4), (3, 4, 8), (3, 0, 1))
"""Size, birth and death of seven buffers that need seven bytes, one more than are alive at once."""

HARD = Problem(tuple(Buffer(*row) for row in SEVEN), 1)


def random_problem(seed: int, count: int = 7, alignment: int = 1) -> Problem:
    """Buffers much like those of `SEVEN`: of quite random ones hardly any needs more than is alive at once."""
    rng = random.Random(seed)
    buffers: list[Buffer] = []
    for at in range(count):
        size, start, stop = (n + rng.choice((-1, 1)) * (rng.random() < 0.15) for n in SEVEN[at % 7])
        buffers.append(Buffer(max(size, 1) * alignment, max(start, 0), max(stop, start + 1, 1)))
    return Problem(tuple(buffers), alignment)


def fits(problem: Problem, capacity: int) -> bool:
    """Whether some offsets keep the law, trying every byte for every buffer."""

    def place(at: int, offsets: tuple[int, ...]) -> bool:
        if at == len(problem.buffers):
            return True
        b = problem.buffers[at]
        for offset in range(capacity - b.size + 1):
            free = all(
                offset + b.size <= other or other + c.size <= offset or b.stop <= c.start or c.stop <= b.start
                for c, other in zip(problem.buffers, offsets, strict=False)
            )
            if free and place(at + 1, (*offsets, offset)):
                return True
        return False

    return place(0, ())


def instance(path: Path) -> Problem:
    return Problem(tuple(row.buffer for row in read_rows(str(path))), 1)


def test_tiny_problems_are_solved_to_the_optimum() -> None:
    gaps = 0
    for seed in range(200):
        problem = random_problem(seed, count=5 + seed % 3)
        solution = pack(problem, "exact")
        assert_law(problem, solution.offsets, solution.arena)
        assert solution.optimal and fits(problem, solution.arena)
        if solution.arena > solution.lower_bound:
            gaps += 1
            assert not fits(problem, solution.arena - 1)
    assert gaps > 3, "some of these have no packing at the bound"


@pytest.mark.parametrize("capacity", [6, 7])
def test_the_optimum_by_another_route(capacity: int) -> None:
    assert fits(HARD, capacity) == (capacity >= smallest_arena(HARD))


def test_random_problems_keep_the_law_and_never_get_worse() -> None:
    better = 0
    for seed in range(500):
        problem = random_problem(seed, count=5 + seed % 17, alignment=(1, 64)[seed % 2])
        first_fit, solution = pack(problem, nodes=0), pack(problem, nodes=400)
        assert_law(problem, solution.offsets, solution.arena)
        assert lower_bound(problem) <= solution.arena <= first_fit.arena
        assert solution.optimal or solution.arena > solution.lower_bound
        assert (solution.method == "exact") == (solution.arena < first_fit.arena)
        better += solution.arena < first_fit.arena
    assert better >= 3


def questions(seed: int) -> list[Question]:
    """Of each part of a random problem whether it fits at the bound."""
    problem = random_problem(seed, count=7 * (1 + seed % 3))
    blocks = [Block(i, b.size, b.start, b.stop, b.start, b.stop, None) for i, b in enumerate(problem.buffers)]
    parts = parts_of(blocks, max(b.stop for b in problem.buffers), dict.fromkeys(range(len(blocks)), 0))
    return [Question(part.spans, lower_bound(problem)) for part in parts]


@needs_core
def test_the_compiled_core_visits_the_same_nodes() -> None:
    outcomes: set[Outcome] = set()
    for question in (question for seed in range(200) for question in questions(seed)):
        ours, compiled = TreeSearch(question), compiled_search(question)
        assert isinstance(compiled, CompiledSearch)
        for _ in range(9):
            outcomes.add(outcome := ours.run(7))
            assert compiled.run(7) == outcome
            assert compiled.nodes == ours.nodes
            assert list(compiled.conflicts) == ours.conflicts
            assert outcome is not Outcome.FOUND or list(compiled.offsets) == ours.offsets
    assert outcomes == set(Outcome)


@pytest.mark.sampled(6)
@needs_core
@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.name[0])
def test_it_does_so_on_published_instances(path: Path) -> None:
    buffers = instance(path).buffers
    blocks = [Block(i, b.size, b.start, b.stop, b.start, b.stop, None) for i, b in enumerate(buffers)]
    spans, _ = spans_of(blocks, max(b.stop for b in buffers))
    ours, compiled = (make(Question(spans, 1 << 20)) for make in (TreeSearch, compiled_search))
    assert ours.run(300) is compiled.run(300)
    assert (ours.nodes, list(ours.conflicts)) == (compiled.nodes, list(compiled.conflicts))


@needs_core
def test_solutions_do_not_depend_on_the_core() -> None:
    for seed in range(200):
        problem = random_problem(seed, count=7 + seed % 15)
        with compiled_packing():
            compiled = pack(problem, nodes=300)
        assert compiled == pack(problem, nodes=300)


@pytest.mark.sampled(6)
@needs_core
@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.name[0])
def test_the_instances_of_minimalloc_fit(path: Path) -> None:
    problem = instance(path)
    with compiled_packing():
        solution = pack(problem, capacity=1 << 20)
    assert solution.arena <= 1 << 20
    assert_law(problem, solution.offsets, solution.arena)


@pytest.mark.parametrize("name", "BCFHK")
def test_five_of_them_fit_soon_in_python(name: str) -> None:
    (path,) = (path for path in INSTANCES if path.name[0] == name)
    solution = pack(instance(path), capacity=1 << 20, nodes=20_000)
    assert (solution.arena, solution.method, solution.optimal) == (solution.lower_bound, "exact", True)


def test_without_a_compiler_the_search_runs_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_core, "_library", lambda: None)
    with compiled_packing():
        assert isinstance(SEARCH.get()(Question([(1, 0, 1)], 1)), TreeSearch)
    assert SEARCH.get() is TreeSearch


def test_sums_beyond_64_bits_are_searched_in_python() -> None:
    assert isinstance(compiled_search(Question([(1 << 62, 0, 1), (1 << 62, 0, 1)], 1 << 63)), TreeSearch)


def test_an_arena_above_the_bound_is_proven_optimal() -> None:
    solution = pack(HARD)
    assert (solution.arena, solution.lower_bound, solution.optimal) == (7, 6, True)
    assert not pack(HARD, nodes=0).optimal


def test_a_capacity_ends_the_search() -> None:
    problem = instance(INSTANCES[0])
    easy = pack(problem, nodes=0).arena
    assert pack(problem, capacity=easy).method != "exact"
    solution = pack(problem, capacity=easy - 1024, nodes=3_000)
    assert lower_bound(problem) <= solution.arena < easy
    assert pack(HARD, capacity=6).arena == pack(HARD, capacity=1).arena == 7


def test_nodes_decide_and_time_aborts() -> None:
    problem = instance(INSTANCES[4])
    assert pack(problem, nodes=1_500) == pack(problem, nodes=1_500)
    aborted = pack(problem, "exact", seconds=1e-9)
    assert aborted == pack(problem, nodes=0)


def test_parts_are_solved_apart() -> None:
    later = tuple(Buffer(b.size, b.start + 100, b.stop + 100) for b in HARD.buffers)
    solution = pack(Problem((*HARD.buffers, *later), 1))
    assert (solution.arena, solution.optimal) == (7, True)
    filled = pack(Problem((*HARD.buffers, Buffer(9, 100, 101)), 1))
    assert (filled.arena, filled.optimal) == (9, True)


def test_pins_are_left_to_first_fit() -> None:
    buffers = (Buffer(3, 5, 6, offset=0), *HARD.buffers[1:])
    problem = Problem(buffers, 1)
    solution = pack(problem, "exact")
    assert_law(problem, solution.offsets, solution.arena)
    assert solution.method != "exact"


def test_deep_searches_do_not_recurse() -> None:
    search = TreeSearch(Question([(at + 1, 0, 1) for at in range(1_200)], 1_200 * 1_201 // 2))
    assert search.run(2_000) is Outcome.FOUND
    assert search.nodes == 1_200


LIMITS: list[tuple[Callable[[], Question], Outcome, int]] = [
    (lambda: Question([(1, 0, 1)], 1), Outcome.FOUND, 1),
    (lambda: Question([(2, 0, 1)], 1), Outcome.EXHAUSTED, 0),
    (lambda: Question([(1, 0, 1), (1, 0, 1), (1, 0, 1)], 2), Outcome.EXHAUSTED, 0),
]


@pytest.mark.parametrize("make, outcome, nodes", LIMITS)
def test_the_smallest_questions(make: Callable[[], Question], outcome: Outcome, nodes: int) -> None:
    for search in (TreeSearch(make()), compiled_search(make())):
        assert search.run(0) is (outcome if not nodes else Outcome.PAUSED)
        assert search.run(9) is outcome
        assert search.nodes == nodes
