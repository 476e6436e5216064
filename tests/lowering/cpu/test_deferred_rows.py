"""Results of a row that are stored while the next one is computed: which kernels do it, and that no bit of them changes."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import as_list, assert_close, needs_compiler
from scheduled_kernels import in_pieces

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.cpu.stepwise import StepwiseProgram

from sanitizer import sanitize  # isort: skip

PASSES = ["decompose", "fuse-row", "wrap-kernels", "schedule-kernels"]


def several(rows: int, columns: int, kind: str = "f32") -> str:
    """A softmax of sums, scaled by column and by row, with what lies beside it; a row's sum is stored once."""
    t, row = (f"tensor<{rows}x{n}x{kind}>" for n in (columns, 1))
    line = f"tensor<{columns}x{kind}>"
    return f"""func.func @main(%x: {t}, %bias: {row}, %scale: {line}) -> ({t}, {t}, {row}) {{
      %z = graph.add %x, %bias : ({t}, {row}) -> {t}
      %m = graph.max %z {{axes = array<i64: 1>, keepdims = true}} : ({t}) -> {row}
      %d = graph.subtract %z, %m : ({t}, {row}) -> {t}
      %e = graph.exp %d : ({t}) -> {t}
      %s = graph.sum %e {{axes = array<i64: 1>, keepdims = true}} : ({t}) -> {row}
      %y = graph.divide %e, %s : ({t}, {row}) -> {t}
      %w = graph.multiply %y, %scale : ({t}, {line}) -> {t}
      %v = graph.multiply %w, %bias : ({t}, {row}) -> {t}
      %u = graph.add %v, %x : ({t}, {t}) -> {t}
      func.return %w, %u, %s : {t}, {t}, {row}
    }}"""


def softmax(rows: int, columns: int, kind: str = "f32") -> str:
    t = f"tensor<{rows}x{columns}x{kind}>"
    return f"func.func @main(%x: {t}) -> {t} {{ %y = graph.softmax %x : ({t}) -> {t} func.return %y : {t} }}"


def lowered(text: str, stores: str, *, kind: str = "row", more: str = "") -> Program:
    module = apply(parse(text), PASSES)
    given = parse(f'func.func @f() attributes {{s = {{kind = "{kind}", stores = "{stores}"{more}}}}} {{ func.return }}')
    (function,) = given.ops
    for op in module.walk():
        if isinstance(op, KernelOp):
            op.schedule = function.attributes["s"]  # pyright: ignore[reportAttributeAccessIssue]
    return build_program(apply(module, ["schedule-kernels"]))


def is_deferred(program: Program) -> bool:
    return "long before = " in program.source


def drawn(rows: int, columns: int, dtype: str = "f4") -> list[np.ndarray]:
    rng = np.random.default_rng(columns)
    shapes = ((rows, columns), (rows, 1), (columns,))
    return [rng.normal(0, 2, shape).astype(dtype) for shape in shapes]


@pytest.mark.sampled(8)
@needs_compiler
@pytest.mark.parametrize("rows", (0, 1, 2, 37))
@pytest.mark.parametrize("columns", (128, 143, 203, 771))
def test_values(rows: int, columns: int) -> None:
    """Wherever in a line results begin, and however rows are handed out; nothing beside them is stored to."""
    given, text = drawn(rows, columns), several(rows, columns)
    program = lowered(text, "deferred")
    assert rows < 2 or is_deferred(program)
    first = as_list(CpuProgram(program)(*given))
    assert_close(first, evaluate(parse(text), given))
    for got, wanted in zip(first, as_list(CpuProgram(lowered(text, "nontemporal"))(*given)), strict=True):
        np.testing.assert_array_equal(got, wanted)
    compiled, loop = CpuProgram(program), in_pieces(random.Random(rows))
    stepwise = StepwiseProgram(program, parallel_for=ctypes.cast(loop, ctypes.c_void_p).value)
    for a, b in zip(as_list(stepwise(*given)), first, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="in pieces")
    for behind in (1, 5, 16):
        room = [np.zeros(a.size + 2 * behind, a.dtype) for a in first]
        views = [r[behind : behind + a.size].reshape(a.shape) for r, a in zip(room, first, strict=True)]
        compiled(*given, out=views)
        for view, whole, a in zip(views, room, first, strict=True):
            np.testing.assert_array_equal(view, a)
            assert not whole[:behind].any() and not whole[behind + a.size :].any(), "stores beyond the result"


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("lanes", (8, 16, 32, 64, 128))
def test_any_number_of_accumulators(lanes: int) -> None:
    given, text, more = drawn(9, 301)[:1], softmax(9, 301), f", lanes = {lanes} : i64"
    program = lowered(text, "deferred", more=more)
    assert is_deferred(program) == (lanes >= 16), "whole lines at a time"
    wanted = CpuProgram(lowered(text, "nontemporal", more=more))(*given)
    np.testing.assert_array_equal(np.asarray(CpuProgram(program)(*given)), np.asarray(wanted))


@needs_compiler
@pytest.mark.parametrize("kind", ("f64", "f16", "bf16"))
def test_other_types(kind: str) -> None:
    t, wide = f"tensor<9x300x{kind}>", "tensor<9x300xf64>"
    text = f"""func.func @main(%w: {wide}) -> {wide} {{
      %x = graph.astype %w {{dtype = {kind}}} : ({wide}) -> {t}
      %s = graph.softmax %x : ({t}) -> {t}
      %r = graph.astype %s {{dtype = f64}} : ({t}) -> {wide}
      func.return %r : {wide}
    }}"""
    given = np.random.default_rng(2).normal(0, 4, (9, 300))
    found, wanted = (np.asarray(CpuProgram(lowered(text, stores))(given)) for stores in ("deferred", "nontemporal"))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("text", "kind"), [(softmax(64, 96), "row"), (softmax(64, 256).replace("softmax", "exp"), "pointwise")]
)
def test_rows_that_are_short_or_none_store_as_they_would_without(text: str, kind: str) -> None:
    program = lowered(text, "deferred", kind=kind)
    assert not is_deferred(program)
    assert program.source == lowered(text, "nontemporal", kind=kind).source


def test_results_that_lie_in_place_store_as_they_would_without() -> None:
    text = softmax(64, 256).replace("f32>)", "f32> {graph.donated})", 1)
    module = apply(parse(text), [*PASSES, "infer-inplace"])
    assert "inplace" in text_of(module)
    entry = text_of(module).replace('kind = "row"', 'kind = "row", stores = "deferred"')
    assert not is_deferred(build_program(parse(entry)))


@needs_compiler
def test_nothing_undefined_is_done(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    given, text = drawn(5, 203), several(5, 203)
    sanitize(monkeypatch)
    assert_close(as_list(CpuProgram(lowered(text, "deferred"))(*given)), evaluate(parse(text), given))
    assert "runtime error" not in capfd.readouterr().err
