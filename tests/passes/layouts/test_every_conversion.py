"""Each encoding of a set converted to each other one and back, as kernels of their own: on the reference and compiled."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt

SHAPE = (4, 8, 6)
ENCODINGS = (
    "",
    "#graph.order<2, 0, 1>",
    "#graph.order<1, 2, 0>",
    "#graph.panel<axis = 1, width = 4>",
    "#graph.panel<axis = 2, width = 3, group = 4>",
    "#graph.encoding<#graph.order<2, 1, 0>, #graph.panel<axis = 1, width = 2>>",
    "#graph.encoding<#graph.order<0, 2, 1>, #graph.panel<axis = 2, width = 4, group = 2>>",
)
PASSES = "wrap-kernels,schedule-kernels,plan-memory,bulk-launches"
"""Nothing that would join conversions, or take them away."""


def tensor(encoding: str, element: str) -> str:
    extents = "x".join(map(str, SHAPE))
    return f"tensor<{extents}x{element}{', ' * bool(encoding)}{encoding}>"


def text_of(element: str) -> str:
    """The argument in each encoding, that in each other one, and all of these as they were."""
    plain, lines, results = tensor("", element), list[str](), list[str]()
    for number, encoding in enumerate(ENCODINGS[1:], 1):
        lines.append(f"%v{number} = graph.to_layout %v0 : ({plain}) -> {tensor(encoding, element)}")
    for a, b in permutations(range(len(ENCODINGS)), 2):
        given, made = tensor(ENCODINGS[a], element), tensor(ENCODINGS[b], element)
        lines.append(f"%t{a}_{b} = graph.to_layout %v{a} : ({given}) -> {made}")
        lines.append(f"%r{a}_{b} = graph.to_layout %t{a}_{b} : ({made}) -> {plain}")
        results.append(f"%r{a}_{b}")
    kinds, body = ", ".join([plain] * len(results)), "\n  ".join(lines)
    return f"func.func @main(%v0: {plain}) -> ({kinds}) {{\n  {body}\n  func.return {', '.join(results)} : {kinds}\n}}"


@needs_compiler
@pytest.mark.parametrize("element", ["f32", "i8"])
def test_there_and_back(element: str) -> None:
    x = np.random.default_rng(0).integers(-100, 100, SHAPE).astype("f4" if element == "f32" else "i1")
    program = fuse_opt.compile(text_of(element), pipeline=PASSES)
    for results in (program(x), fuse_opt.evaluate(text_of(element), x)):
        assert len(results) == len(ENCODINGS) * (len(ENCODINGS) - 1)
        for result in results:
            np.testing.assert_array_equal(result, x)
