"""A sample of tests/support/jax_fuzz.py, and that its judge sees what it looks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="needs jax")

from draws import draws
from jax_functions import Program, jax
from jax_fuzz import calls_fault, check_cases, fault, random_function, reduced


@pytest.fixture(autouse=True)
def narrow_again() -> Any:
    """What was made in f64 and i64 is no business of other tests."""
    with jax.enable_x64(True):
        yield


def test_random_functions_are_as_in_jax():
    """Most of them on the reference: what is compiled is the business of other tests."""
    for target, count in (("reference", 12), ("cpu", 2)):
        summary = check_cases(draws(count), target)
        assert summary.reports == [], "\n".join(summary.reports)
        assert summary.refused.total() <= 3, summary.refused


def test_functions_are_those_of_their_seeds():
    first, again, other = (random_function(seed).text() for seed in (5, 5, 6))
    assert first == again and first != other
    assert len({random_function(seed).how for seed in range(12)}) > 1


def _nothing(_: Any, results: Any, __: int) -> Any:
    return results


def _value(_: Any, results: Any, __: int) -> Any:
    return (results[0] + 1,)


def _extents(_: Any, results: Any, __: int) -> Any:
    return (results[0].reshape(-1),)


def _argument(arrays: Any, results: Any, _: int) -> Any:
    arrays[0][...] = 1 - arrays[0]
    return results


def _later(_: Any, results: Any, call: int) -> Any:
    return (results[0] + (call - 1) * 1e-6,)


def _shared(arrays: Any, _: Any, __: int) -> Any:
    return (arrays[0],)


FAULTS: dict[str, Any] = {
    "by ": _value,
    "expected float": _extents,
    "argument 0: changed": _argument,
    "second call": _later,
    "shares memory": _shared,
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_seen(name: str):
    x = np.array([[1.0, 2.0]], np.float32)

    def calls(change: Any) -> Any:
        count = 0

        def compiled(*arrays: Any) -> Any:
            nonlocal count
            count += 1
            return change(arrays, (x.copy(),), count)

        return calls_fault(compiled, [x], [x], 1e-5)

    assert calls(_nothing) is None
    assert name in (calls(FAULTS[name]) or "")


def test_faults_are_reduced(monkeypatch: pytest.MonkeyPatch):
    """To the line whose value is said to be another."""
    import jax_fuzz

    x = np.array([[1.0, 2.0]], np.float32)
    lines = (("y1_0", "x0 + 1"), ("y2_0", "jnp.sin(y1_0)"), ("y3_0", "y2_0 * 2"))
    values = {"x0": x, "y1_0": x + 1, "y2_0": np.sin(x + 1), "y3_0": np.sin(x + 1) * 2}
    program = Program(0, {"x0": x}, lines, ("y3_0", "y1_0"), values, "vmap")
    assert fault(program, "reference") is None

    def wrong(program: Program, _: str) -> str | None:
        return "result 0: by 1" if any("sin" in text for _, text in program.needed()) else None

    monkeypatch.setattr(jax_fuzz, "fault", wrong)
    smaller, _ = reduced(program, "result 0: by 1", "reference")
    assert [text for _, text in smaller.needed()] in (["jnp.sin(y1_0)"], ["jnp.sin(y1_0)", "y2_0 * 2"])
    assert smaller.how == "plain"
