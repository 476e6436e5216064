"""A sample of tests/support/torch_fuzz.py, and that its judge sees what it looks for."""

import dataclasses
from typing import Any

import pytest
from torch_fuzz import check_cases, difference, fault, run
from torch_mixes import random_mix
from torch_networks import random_network
from torch_programs import Program, parsed_argument, random_program
from torch_testing import fresh as fresh


def test_random_functions_are_as_in_eager():
    summary = check_cases(range(12))
    assert summary.reports == [], "\n".join(summary.reports)
    assert summary.left.total() <= 3, summary.left


def test_random_networks_are_as_in_eager():
    summary = check_cases(range(100, 106), kind="networks")
    assert summary.reports == [], "\n".join(summary.reports)
    assert summary.left.total() <= 2, summary.left


def test_random_mixes_are_as_in_eager():
    summary = check_cases(range(100, 106), kind="mixes")
    assert summary.reports == [], "\n".join(summary.reports)
    assert summary.left.total() <= 3, summary.left


def test_random_positions_are_as_in_eager():
    summary = check_cases(range(100, 106), kind="positions")
    assert summary.reports == [], "\n".join(summary.reports)
    assert summary.left.total() <= 2, summary.left


def test_programs_are_those_of_their_seeds():
    assert random_network(5) == random_network(5) and random_network(5) != random_network(6)
    assert random_mix(5) == random_mix(5) and random_mix(5) != random_mix(6)
    assert random_program(5) == random_program(5) and random_program(5) != random_program(6)
    assert {p.dynamic for p in map(random_program, range(20))} == {True, False}
    assert any(p.owned for p in map(random_program, range(20)))


def test_strides_that_only_the_graph_has_are_no_fault():
    """An index of permuted numbers has their strides in eager, and those of C order for fake tensors and whoever asks them."""
    numbers = parsed_argument("n", "int64 2x3x4x6 last")
    program = Program((numbers, parsed_argument("b", "bool 4")), (), ("z = b[n.abs() % 2]",), ("z",), False, 3)
    assert fault(program) == (None, "aot_eager: strides are others than its graph says")


def rewritten(change: Any) -> Any:
    """A backend at fault: it changes what a graph gives."""

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        def call(*args: Any) -> Any:
            return change(args, graph_module(*args))

        return call

    return backend


def _value(_: Any, results: Any) -> Any:
    return tuple(r.add_(1) for r in results)


def _shape(_: Any, results: Any) -> Any:
    return tuple(r.reshape(-1) for r in results)


def _type(_: Any, results: Any) -> Any:
    return tuple(r.double() for r in results)


def _strides(_: Any, results: Any) -> Any:
    return tuple(r.t().contiguous().t() for r in results)


def _alias(_: Any, results: Any) -> Any:
    return (results[0].clone(), *results[1:])


def _argument(arguments: Any, results: Any) -> Any:
    arguments[0].data.add_(1)
    return results


FAULTS = {
    "value": (_value, "result 0 of call 0:"),
    "shape": (_shape, "what it is"),
    "element type": (_type, "what it is"),
    "strides": (_strides, "what it is"),
    "alias": (_alias, "what aliases what"),
    "argument": (_argument, "argument 0 after call 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen(name: str):
    program = Program((parsed_argument("x0", "float32 3x4"),), (), ("z = x0 * 2",), ("z", "z", "z.t()"), False, 3)
    wanted = run(program, None)
    change, expected = FAULTS[name]
    assert difference(run(program, None), wanted) is None
    assert expected in (difference(run(program, rewritten(change)), wanted) or "")
    assert dataclasses.replace(program, lines=()).smaller()
