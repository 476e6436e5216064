"""Examples on csr matrices, a graph network and a factorisation machine: their values, and that nothing is made dense."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

_FOLDER = Path(__file__).parents[3] / "examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded("graph_network")


@needs_compiler
def test_forward_and_backward(example: ModuleType) -> None:
    sizes = example.Sizes(600, 2000, 9, 7, 3)
    graph, given = example.random_graph(sizes), example.operands(sizes)
    wanted = example.expected(graph, given)
    text = example.source(sizes, graph[1].size)
    frozen = fuse_opt.compile(text).freeze({"a": graph})
    every = fuse_opt.compile(text.replace(" {graph.frozen}", ""))
    assert frozen.fallbacks == every.fallbacks == (0, 0)
    for found in (frozen(*given), every(graph, *given), fuse_opt.evaluate(text, graph, *given)):
        for value, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(value, right, 1e-4, 1e-4 * np.abs(right).max())


@needs_compiler
def test_transposes_are_made_once(example: ModuleType) -> None:
    sizes = example.Sizes(600, 2000, 9, 7, 3)
    text = example.source(sizes, example.random_graph(sizes)[1].size)
    assert str(fuse_opt.compile(text.replace(" {graph.frozen}", "")).module).count("graph.csr_transpose") == 1


@needs_compiler
def test_factorization_machine() -> None:
    example = loaded("factorization_machine")
    sizes = example.Sizes(40, 70, 5, 9)
    samples, given = example.random_samples(sizes), example.operands(sizes)
    text, wanted = example.source(sizes, samples[1].size), example.expected(samples, given)
    program = fuse_opt.compile(text, pipeline="assign-storage{forbid-fallback},lower-storage,default")
    assert program.fallbacks == (0, 0)
    assert str(program.module).count("graph.csr_transpose") == 1, "X and its squares share a pattern"
    for found in (program(samples, *given), fuse_opt.evaluate(text, samples, *given)):
        for value, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(value, right, 1e-4, 1e-4 * np.abs(right).max())


@needs_compiler
@pytest.mark.parametrize("name", ["graph_network", "factorization_machine"])
def test_examples_say_that_nothing_is_made_dense(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded(name).main()
    assert capsys.readouterr().out.startswith("fallbacks: (0, 0), relative error: ")
