"""Products of matrices with zeros behind their rows, on devices: their values, and what is copied for it."""

from __future__ import annotations

import numpy as np
import pytest
from ir_testing import evaluate, graph_ops, op_names, optimized, parse, random_arguments

from fuse_opt.lowering.program.float_formats import widen

PIPELINE = "gpu-attach-device{device=h100},align-rows{device=h100}"


def product(x: str, w: str, result: str, attributes: str = "", dtype: str = "f16", frozen: str = "") -> str:
    types = [f"tensor<{shape}x{dtype}>" for shape in (x, w, result)]
    line = f"%r = graph.matmul %x, %w {{{attributes}}} : ({types[0]}, {types[1]}) -> {types[2]}"
    return f"func.func @main(%x: {types[0]}, %w: {types[1]}{frozen}) -> {types[2]} {{\n{line}\nfunc.return %r : {types[2]}\n}}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("x", "w", "result", "attributes"),
    [
        ("515x771", "771x517", "515x517", ""),
        ("771x515", "517x771", "515x517", "transpose_lhs = true, transpose_rhs = true"),
        ("9x257x515", "515x259", "9x257x259", ""),
        ("515x768", "517x768", "515x517", "transpose_rhs = true"),
        ("515x771", "771x520", "515x520", ""),
    ],
)
def test_products_are_the_same(x: str, w: str, result: str, attributes: str, dtype: str) -> None:
    text = product(x, w, result, attributes, dtype)
    module = parse(text)
    arguments = random_arguments(module, 5)
    aligned = optimized(text, PIPELINE)
    assert "pad" in op_names(graph_ops(aligned))
    found, expected = (evaluate(each, arguments)[0] for each in (aligned, module))
    is_wide = dtype == "bf16"
    a, b = (widen(each) if is_wide else each.astype(np.float32) for each in (found, expected))
    np.testing.assert_allclose(a, b, 2e-2, 2e-2)


def test_frozen_weights_are_padded_once() -> None:
    text = product("1021x768", "768x517", "1021x517", frozen=" {graph.frozen}")
    found = str(optimized(text, "gpu-attach-device{device=h100},default"))
    before, _, prepared = found.partition("@main.prepare(")
    assert "graph.pad" in prepared and "graph.pad" not in before.partition("func.func private")[0]


def test_what_makes_an_operand_writes_the_zeros() -> None:
    text = product("1021x771", "771x520", "1021x520", frozen=" {graph.frozen}")
    made = "%x = graph.relu %y : (tensor<1021x771xf16>) -> tensor<1021x771xf16>\n%r = graph.matmul"
    text = text.replace("@main(%x:", "@main(%y:").replace("%r = graph.matmul", made)
    found = str(optimized(text, "gpu-attach-device{device=h100},default"))
    main = found[found.index("@main(") :].partition("func.func private")[0]
    assert main.count("fused.kernel") == 2 and "graph.pad" in main
