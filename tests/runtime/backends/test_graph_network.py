"""The example of a graph network: its values, and that nothing is made dense."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

_FILE = Path(__file__).parents[3] / "examples" / "graph_network.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("graph_network", _FILE)
    assert spec is not None and spec.loader is not None
    module = sys.modules["graph_network"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_compiler
def test_forward_and_backward(example: ModuleType) -> None:
    sizes = example.Sizes(60, 200, 9, 7, 3)
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
    sizes = example.Sizes(60, 200, 9, 7, 3)
    text = example.source(sizes, example.random_graph(sizes)[1].size)
    assert str(fuse_opt.compile(text.replace(" {graph.frozen}", "")).module).count("graph.csr_transpose") == 1
