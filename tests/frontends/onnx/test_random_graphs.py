"""A sample of tests/support/onnx_fuzz.py, and that its judge sees what it looks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx.reference")
pytest.importorskip("onnxruntime")
pytest.importorskip("ml_dtypes")

from draws import draws
from onnx_fuzz import call_fault, check_cases, fault, random_graph, reduced
from onnx_programs import Program, helper


def test_random_graphs_are_as_elsewhere():
    """Most of them on the reference: what is compiled is the business of other tests."""
    for target, count in (("reference", 40), ("cpu", 3)):
        summary = check_cases(draws(count), target)
        assert summary.reports == [], "\n".join(summary.reports)
        assert summary.refused.total() <= 0.1 * count, summary.refused


def test_graphs_are_those_of_their_seeds():
    first, again, other = (random_graph(seed).model().SerializeToString() for seed in (5, 5, 6))
    assert first == again and first != other
    assert any(random_graph(seed).dims for seed in range(10))


class Wrong:
    """A model at fault: `change` is applied to arguments and results of each call."""

    def __init__(self, results: Any, change: Any) -> None:
        self.results, self.change, self.calls = results, change, 0

    def __call__(self, *arrays: Any, target: str) -> Any:
        self.calls += 1
        return self.change(arrays, [result.copy() for result in self.results], self.calls)


def _nothing(_: Any, results: Any, __: int) -> Any:
    return results


def _value(_: Any, results: Any, __: int) -> Any:
    return [result + 1 for result in results]


def _extents(_: Any, results: Any, __: int) -> Any:
    return [result.reshape(-1) for result in results]


def _argument(arrays: Any, results: Any, _: int) -> Any:
    arrays[0][...] = 1 - arrays[0]
    return results


def _later(_: Any, results: Any, call: int) -> Any:
    return [result + (call - 1) * 1e-6 for result in results]


FAULTS: dict[str, Any] = {
    "by ": _value,
    "expected float": _extents,
    "argument x: changed": _argument,
    "second call": _later,
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen(name: str):
    x, node = np.array([[-1.0, 2.0]], np.float32), helper.make_node("Relu", ["x"], ["y"])
    program = Program(0, 21, (node,), {"x": x}, frozenset(), ("y",), {"x": x, "y": np.maximum(x, 0)})
    results = [program.expected[out] for out in program.outputs]
    assert call_fault(program, Wrong(results, _nothing), "reference", again=True) is None
    assert name in (call_fault(program, Wrong(results, FAULTS[name]), "reference", again=True) or "")


def test_faults_are_reduced():
    """To the node whose value is said to be another."""
    program = next(p for p in map(random_graph, range(50)) if len(p.needed()) > 3 and fault(p, "reference") is None)
    node = program.needed()[1]
    name = next(output for output in node.output if output)
    value = program.expected[name]
    wrong = {**program.expected, name: ~value if value.dtype == bool else value + 1}
    broken = replace(program, expected=wrong, outputs=(*dict.fromkeys((*program.outputs, name)),), dims={})
    text = fault(broken, "reference")
    assert text is not None
    smaller, _ = reduced(broken, text, "reference")
    assert len(smaller.needed()) == 1
