"""Kernels for aarch64, run by an emulator where a cross compiler and one are found: they compute what the reference does.

Several functions of odd extents in one program: products of each type, convolutions, attention, rows with masked tails.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from aarch64_gcc import missing, run_on_arm
from ir_testing import apply, evaluate, parse, random_arguments

from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program.float_formats import computed
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

needs_arm = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

_OPS = {
    "products": [
        ("graph.matmul", "", ("37x53xf32", "53x71xf32"), "37x71xf32"),
        ("graph.matmul", "", ("4x300xf32", "300x130xf32"), "4x130xf32"),
        ("graph.matmul", "transpose_rhs = true", ("40x70xf32", "90x70xf32"), "40x90xf32"),
        ("graph.matmul", "", ("17x23xf64", "23x31xf64"), "17x31xf64"),
        ("graph.matmul", "", ("37x53xbf16", "53x71xbf16"), "37x71xbf16"),
        ("graph.matmul", "", ("37x53xf16", "53x71xf16"), "37x71xf16"),
        ("graph.matmul", "dtype = i32", ("37x130xui8", "130x71xi8"), "37x71xi32"),
        ("graph.matmul", "dtype = i32", ("37x131xi8", "131x71xi8"), "37x71xi32"),
    ],
    "others": [
        ("graph.conv", "pads = array<i64: 1, 1, 1, 1>", ("2x5x13x15xf32", "7x5x3x3xf32"), "2x7x13x15xf32"),
        (
            "graph.conv",
            "pads = array<i64: 1, 1, 1, 1>, groups = 6 : i64",
            ("2x6x13x15xf32", "6x1x3x3xf32"),
            "2x6x13x15xf32",
        ),
        (
            "graph.scaled_dot_product_attention",
            "is_causal = true, dropout_p = 0.25 : f64, seed = 7 : i64",
            ("2x37x24xf32", "2x51x24xf32", "2x51x19xf32"),
            "2x37x19xf32",
        ),
        ("graph.softmax", "axis = -1 : i64", ("9x127xf32",), "9x127xf32"),
        ("graph.softmax", "axis = -1 : i64", ("9x33xbf16",), "9x33xbf16"),
        ("graph.gelu", "", ("9x7xf32",), "9x7xf32"),
    ],
}


def text_of(name: str) -> str:
    """A function of the ops, each on arguments of its own."""
    arguments, lines, results = list[str](), list[str](), list[str]()
    for number, (op, attributes, operands, result) in enumerate(_OPS[name]):
        names = [f"%a{number}_{k}" for k in range(len(operands))]
        types = [f"tensor<{operand}>" for operand in operands]
        arguments += [f"{a}: {t}" for a, t in zip(names, types, strict=True)]
        results.append(f"tensor<{result}>")
        lines.append(f"%r{number} = {op} {', '.join(names)} {{{attributes}}} : ({', '.join(types)}) -> {results[-1]}")
    values = ", ".join(f"%r{k}" for k in range(len(results)))
    body = "\n".join(lines)
    kinds = ", ".join(results)
    return f"func.func @main({', '.join(arguments)}) -> ({kinds}) {{\n{body}\nfunc.return {values} : {kinds}\n}}"


@needs_arm
@pytest.mark.parametrize("name", list(_OPS))
def test_kernels_compute_what_the_reference_does(name: str, tmp_path: Path) -> None:
    module = parse(text_of(name))
    arguments = random_arguments(module, 3)
    wanted = evaluate(module, [array.copy() for array in arguments])
    program = build_program(apply(apply(module, DEFAULT_PIPELINE), ["convert-fused-to-loops"]))
    found = run_on_arm(program, arguments, tmp_path)
    for number, (actual, expected) in enumerate(zip(found, wanted, strict=True)):
        last = _OPS[name][number][-1].rpartition("x")[2]
        limit = {"f16": 2e-3, "bf16": 1e-2, "f64": 1e-13, "i32": 0.0}.get(last, 1e-5)
        actual, expected = (
            computed(array.view(wanted[number].dtype)).astype(np.float64) for array in (actual, expected)
        )
        np.testing.assert_allclose(actual, expected, rtol=limit, atol=10 * limit, err_msg=str(_OPS[name][number]))
