"""The solver beside trying everything, on random graphs; reductions are exact, and results repeat."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fuse_opt.passes.layouts.quadratic_assignment import Assignment, solve


def random_problem(seed: int, most: int = 9, alternatives: int = 3, degree: int = 2) -> Assignment:
    """Sites that read up to so many earlier ones; conversions cost alike, and nothing where layouts are the same."""
    rng = random.Random(seed)
    problem = Assignment()
    count = rng.randint(2, most)
    kinds: list[list[int]] = []
    for node in range(count):
        kinds.append(rng.sample(range(4), rng.randint(1, alternatives)))
        problem.node([float(rng.randint(0, 20)) for _ in kinds[-1]])
        for other in rng.sample(range(node), min(node, rng.randint(1, degree))):
            cost = float(rng.randint(1, 12))
            problem.connect(other, node, [[0.0 if a == b else cost for b in kinds[node]] for a in kinds[other]])
    return problem


def least(problem: Assignment) -> float:
    """Of all choices, each an element of an array with an axis for each node; costs are whole numbers, so sums are exact."""
    extents = [len(costs) for costs in problem.costs]
    totals = np.zeros(extents)
    for node, (costs, edges) in enumerate(zip(problem.costs, problem.edges, strict=True)):
        totals += np.reshape(costs, [n if axis == node else 1 for axis, n in enumerate(extents)])
        for other, matrix in edges.items():
            if other > node:
                totals += np.reshape(matrix, [n if axis in (node, other) else 1 for axis, n in enumerate(extents)])
    return float(totals.min())


@pytest.mark.parametrize("part", range(6))
def test_the_solution_is_the_best_of_all(part: int) -> None:
    for seed in range(part * 50, part * 50 + 50):
        problem = random_problem(seed)
        solution = solve(problem)
        assert problem.total(solution.chosen) == least(problem), f"seed {seed}"
        assert not solution.guessed
        assert solve(problem) == solution


def test_nodes_that_share_costs_and_matrices_are_solved_as_by_themselves() -> None:
    """Results are kept by the identity of lists: here all nodes have one of two, and all edges one of three matrices."""
    for seed in range(100):
        rng = random.Random(seed)
        lists = [[float(rng.randint(0, 9)) for _ in range(3)] for _ in range(2)]
        matrices = [[[0.0 if a == b else cost for b in range(3)] for a in range(3)] for cost in (2.0, 3.0, 7.0)]
        shared, apart = Assignment(), Assignment()
        for node in range(9):
            costs = rng.choice(lists)
            shared.node(costs)
            apart.node(list(costs))
            for other in rng.sample(range(node), min(node, rng.randint(1, 2))):
                matrix = rng.choice(matrices)
                shared.connect(other, node, matrix)
                apart.connect(other, node, [list(row) for row in matrix])
            if rng.random() < 0.3:
                shared.add(node, lists[0])
                apart.add(node, list(lists[0]))
        assert solve(shared) == solve(apart), f"seed {seed}"
        assert shared.total(solve(shared).chosen) == least(shared), f"seed {seed}"


def test_dense_graphs_are_tried_out() -> None:
    for seed in range(40):
        problem = random_problem(1000 + seed, most=7, degree=6)
        solution = solve(problem)
        assert problem.total(solution.chosen) == least(problem)


def test_large_cores_are_no_worse_than_one_layout_for_all() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        problem = Assignment()
        for node in range(120):
            problem.node([float(rng.randint(0, 9)) for _ in range(3)])
            for other in rng.sample(range(node), min(node, 4)):
                problem.connect(other, node, [[0.0 if a == b else 5.0 for b in range(3)] for a in range(3)])
        solution = solve(problem)
        assert solution.guessed
        one = min(problem.total([number] * 120) for number in range(3))
        greedy = problem.total([costs.index(min(costs)) for costs in problem.costs])
        assert problem.total(solution.chosen) <= min(one, greedy)


def test_ties_go_to_the_first_alternative() -> None:
    problem = Assignment()
    for _ in range(4):
        problem.node([1.0, 1.0])
    for node in range(3):
        problem.connect(node, node + 1, [[0.0, 1.0], [1.0, 0.0]])
    problem.connect(0, 0, [[1.0, 9.0], [9.0, 1.0]])
    assert solve(problem).chosen == [0, 0, 0, 0]


def test_edges_between_the_same_nodes_add_up() -> None:
    problem = Assignment()
    a, b = problem.node([0.0, 2.0]), problem.node([2.0, 0.0])
    for _ in range(3):
        problem.connect(a, b, [[0.0, 1.0], [1.0, 0.0]])
    assert problem.total([0, 1]) == 3.0 and problem.total(solve(problem).chosen) == 2.0
