"""Indices out of range: one IndexError for the caller, on the reference and in C, that names the op and what was expected."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from ir_testing import Array, evaluate, parse

import fuse_opt
from fuse_opt.tools.commands import fuse_run_main

X = "tensor<4x5xf32>"
OPS: dict[str, tuple[str, str, int]] = {
    "take": ("graph.take %x, %i {axis = 1 : i64}", "tensor<4x2xf32>", 5),
    "embedding": ("graph.embedding %x, %i", "tensor<2x5xf32>", 4),
    "take_along_axis": ("graph.take_along_axis %x, %j", "tensor<4x2xf32>", 5),
    "gather_nd": ("graph.gather_nd %x, %k", "tensor<2x5xf32>", 4),
    "index": ("graph.index %x, %i, %i", "tensor<2xf32>", 4),
    "index_apart": ("graph.index %y, %i, %i {axes = array<i64: 0, 2>}", "tensor<2x3xf32>", 6),
    "scatter": ("graph.scatter %x, %j, %u", X, 4),
    "scatter_add": ("graph.scatter_add %x, %j, %u {axis = 1 : i64}", X, 5),
    "scatter_reduce": ('graph.scatter_reduce %x, %j, %u {reduce = "mul"}', X, 4),
    "scatter_nd": ("graph.scatter_nd %x, %k, %v", X, 4),
    "index_put": ("graph.index_put %x, %v, %i", X, 4),
    "index_put_apart": ("graph.index_put %y, %s, %i {axes = array<i64: 2>}", "tensor<6x3x6xf32>", 6),
    "embedding_backward": ("graph.embedding_backward %v, %i {rows = 3 : i64}", "tensor<3x5xf32>", 3),
}
"""By op: the line, its result, and the extent of the axis that indices are for."""
ARGUMENTS: dict[str, tuple[str, Array]] = {
    "x": (X, np.zeros((4, 5), np.float32)),
    "y": ("tensor<6x3x6xf32>", np.zeros((6, 3, 6), np.float32)),
    "u": ("tensor<1x2xf32>", np.zeros((1, 2), np.float32)),
    "v": ("tensor<2x5xf32>", np.zeros((2, 5), np.float32)),
    "s": ("tensor<f32>", np.zeros((), np.float32)),
}


def program(name: str, bad: int) -> tuple[str, list[Array]]:
    """A function of the op, and arguments whose second index is `bad`."""
    line, result, _ = OPS[name]
    index = np.array([0, bad], np.int32)
    values = {**ARGUMENTS, "i": ("tensor<2xi32>", index)}
    values |= {"j": ("tensor<1x2xi32>", index.reshape(1, 2)), "k": ("tensor<2x1xi32>", index.reshape(2, 1))}
    used = [key for key in values if f"%{key}" in line]
    operands, _, attributes = line.partition(" {")
    order = [part.strip(" %") for part in operands.split(" ", 1)[1].split(",")]
    types = ", ".join(values[key][0] for key in order)
    attributes = f" {{{attributes}" if attributes else ""
    parameters = ", ".join(f"%{key}: {values[key][0]}" for key in used)
    body = f"  %r = {operands}{attributes} : ({types}) -> {result}\n  func.return %r : {result}"
    text = f"func.func @main({parameters}) -> {result} {{\n{body}\n}}"
    return text, [values[key][1] for key in used]


def expected_message(name: str, bad: int) -> str:
    extent = OPS[name][2]
    op = "take" if name == "embedding" else name.removesuffix("_apart")
    return (
        rf"'graph\.{op}': index {bad} at .*1.* out of range for axis \d of extent {extent}; expected -{extent} <= index"
    )


@pytest.mark.parametrize("name", OPS)
def test_reference(name: str) -> None:
    for bad in (OPS[name][2], -OPS[name][2] - 1, 2**31 - 1):
        text, given = program(name, bad)
        with pytest.raises(IndexError, match=expected_message(name, bad)):
            evaluate(parse(text), given)
    text, given = program(name, -OPS[name][2])
    evaluate(parse(text), given)


@pytest.mark.sampled(7)
@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", OPS)
def test_c(name: str) -> None:
    """The program can be called again after the error."""
    text, given = program(name, 0)
    compiled = fuse_opt.compile(text)
    before = compiled(*given)
    _, wrong = program(name, 99)
    with pytest.raises(IndexError, match=expected_message(name, 99)):
        compiled(*wrong)
    np.testing.assert_array_equal(compiled(*given), before)


def test_command_says_it_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = program("take", 0)
    (tmp_path / "take.mlir").write_text(text)
    np.savez(tmp_path / "inputs.npz", x=ARGUMENTS["x"][1], i=np.array([0, 7], np.int32))
    assert fuse_run_main.main([str(tmp_path / "take.mlir"), "--inputs", str(tmp_path / "inputs.npz")]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "error: 'graph.take': index 7 at [1]" in printed
