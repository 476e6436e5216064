"""Long chains of products: what passes that look for attention do for each product hangs on what is near it alone."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from ir_testing import CONTEXT, parse

from fuse_opt.tools.compiler.pipeline import make_passes

T = "tensor<8x8xf32>"
CALLS = {"separate-attention": 20_000, "fuse-attention-gradient": 4_000, "fuse-attention": 1_000}
"""Of Python functions, for a product; many times as many where everything near is looked at again for each group near it."""


def residual(layers: int) -> str:
    """Products of which each result is added to that of the seventh before it."""
    lines = [f"%v0 = graph.exp %x : ({T}) -> {T}"]
    for n in range(layers):
        lines.append(f"%m{n} = graph.matmul %v{n}, %w : ({T}, {T}) -> {T}")
        lines.append(f"%v{n + 1} = graph.add %m{n}, %v{max(0, n - 7)} : ({T}, {T}) -> {T}")
    body = "\n".join(lines)
    return f"func.func @main(%x: {T}, %w: {T}) -> {T} {{\n{body}\nfunc.return %v{layers} : {T}\n}}"


@pytest.mark.parametrize("name", CALLS)
def test_calls_for_a_product_are_bounded(name: str) -> None:
    module, calls, layers = parse(residual(200)), 0, 200
    (chosen,) = make_passes([name])

    def count(frame: Any, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        chosen.apply(CONTEXT, module)
    finally:
        sys.setprofile(before)
    assert calls < CALLS[name] * layers
