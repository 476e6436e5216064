"""The last loop of a row together with the first of the next: which kernels do it, and that values stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from draws import all_pairs
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import assert_close, needs_compiler
from narrow_vectors import NARROW as FOR_NARROW

import fuse_opt
from fuse_opt.lowering.emit import build_program
from fuse_opt.lowering.kernel import loop_splitting
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.thread_pool import num_threads, set_num_threads
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

PASSES = ["decompose", "fuse-row", "wrap-kernels", "schedule-kernels"]


def of_rows(op: str, rows: int, columns: int, kind: str = "f32") -> str:
    t = f"tensor<{rows}x{columns}x{kind}>"
    return f"func.func @main(%x: {t}) -> {t} {{ %y = graph.{op} %x : ({t}) -> {t} func.return %y : {t} }}"


def several_results(rows: int, columns: int) -> str:
    """A softmax with the rows' maxima and sums, some of which are stored once for a row."""
    t, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}x1xf32>"
    return f"""func.func @main(%x: {t}, %bias: {row}) -> ({t}, {row}, {row}) {{
      %z = graph.add %x, %bias : ({t}, {row}) -> {t}
      %m = graph.max %z {{axes = array<i64: 1>, keepdims = true}} : ({t}) -> {row}
      %d = graph.subtract %z, %m : ({t}, {row}) -> {t}
      %e = graph.exp %d : ({t}) -> {t}
      %s = graph.sum %e {{axes = array<i64: 1>, keepdims = true}} : ({t}) -> {row}
      %y = graph.divide %e, %s : ({t}, {row}) -> {t}
      func.return %y, %m, %s : {t}, {row}, {row}
    }}"""


def loops(text: str) -> str:
    return text_of(apply(parse(text), [*PASSES, "convert-fused-to-loops"]))


@pytest.mark.parametrize("op", ("softmax", "layer_norm", "l2_normalize"))
def test_rows_overlap(op: str) -> None:
    text = loops(of_rows(op, 64, 256))
    assert "%next = arith.addi %row" in text
    assert text.count("scf.if") == 2


@pytest.mark.parametrize("op", ("softmax", "layer_norm", "l2_normalize"))
def test_the_first_stage_of_the_next_short_row_comes_first(op: str) -> None:
    text = loops(of_rows(op, 64, 96))
    body = text[text.index("scf.for %row") :]
    assert text.count("scf.if") == 2
    first, stored = body.index("%next = arith.addi %row"), body.index("memref.store")
    assert first < stored, "before anything of the row is made"


@pytest.mark.parametrize(
    ("op", "columns", "overlap"),
    [
        ("softmax", 539, True),
        ("softmax", 105, True),
        ("layer_norm", 539, False),
        ("layer_norm", 105, False),
        ("layer_norm", 39, True),
        ("layer_norm", 171, True),
        ("l2_normalize", 539, False),
        ("l2_normalize", 39, True),
        ("l2_normalize", 105, False),
    ],
)
def test_rows_that_memory_holds_overlap_where_something_is_put_down_between(
    op: str, columns: int, overlap: bool
) -> None:
    text = loops(of_rows(op, (80 << 20) // (8 * columns), columns))
    assert ("%next = arith.addi %row" in text) == overlap


@pytest.mark.sampled(9)
@needs_compiler
@pytest.mark.parametrize(
    ("op", "columns", "in_memory"),
    all_pairs(("softmax", "layer_norm", "l2_normalize"), (39, 96, 127, 300, 1021), (False, True)),
)
def test_the_bits_are_those_of_rows_apart(
    op: str, columns: int, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_memory:
        monkeypatch.setattr(loop_splitting, "OUTSIDE_CACHES", 1)
    x = np.random.default_rng(columns).standard_normal((11, columns), np.float32)
    module = text_of(apply(parse(of_rows(op, 11, columns)), PASSES))
    texts = [module.replace("schedule = {", f'schedule = {{overlap = "{word}", ') for word in ("never", "always")]
    apart, together = (build_program(parse(text)) for text in texts)
    assert apart.source != together.source
    np.testing.assert_array_equal(CpuProgram(apart)(x), CpuProgram(together)(x))


@pytest.mark.parametrize("text", (of_rows("softmax", 64, 4), of_rows("exp", 64, 256)))
def test_rows_apart(text: str) -> None:
    """Rows without lanes, and kernels without several loops for a row."""
    assert "%next" not in loops(text)


def test_a_first_loop_that_stores() -> None:
    t = "tensor<64x256xf32>"
    text = loops(f"""func.func @main(%x: {t}, %y: {t}) -> ({t}, {t}) {{
      %z = graph.multiply %x, %y : ({t}, {t}) -> {t}
      %r = graph.layer_norm %z : ({t}) -> {t}
      func.return %z, %r : {t}, {t}
    }}""")
    assert "scf.for %row" in text and "%next" not in text


@pytest.mark.sampled(9)
@needs_compiler
@pytest.mark.parametrize("rows", (0, 1, 2, 67))
@pytest.mark.parametrize("columns", (19, 64, 97, 203, 256))
def test_values(rows: int, columns: int) -> None:
    x = np.random.default_rng(columns).normal(0, 4, (rows, columns)).astype(np.float32)
    bias = np.arange(rows, dtype=np.float32).reshape(rows, 1)
    module = apply(parse(several_results(rows, columns)), PASSES)
    program = CpuProgram(build_program(module))
    assert rows < 2 or "next < end" in program.source
    assert_close(program(x, bias), evaluate(module, [x, bias]))


@needs_compiler
@pytest.mark.parametrize("kind", ("f16", "bf16", "f64"))
def test_other_types(kind: str) -> None:
    t = f"tensor<9x300x{kind}>"
    wide = "tensor<9x300xf64>"
    text = f"""func.func @main(%w: {wide}) -> {wide} {{
      %x = graph.astype %w {{dtype = {kind}}} : ({wide}) -> {t}
      %s = graph.softmax %x : ({t}) -> {t}
      %r = graph.astype %s {{dtype = f64}} : ({t}) -> {wide}
      func.return %r : {wide}
    }}"""
    w = np.random.default_rng(2).normal(0, 4, (9, 300))
    got, expected = fuse_opt.compile(text, "cpu")(w), fuse_opt.compile(text, "reference")(w)
    np.testing.assert_allclose(got, expected, rtol={"f16": 2e-3, "bf16": 1.6e-2, "f64": 1e-13}[kind], atol=1e-7)


@needs_compiler
@needs_guard_pages
@pytest.mark.usefixtures("wide_host")
@pytest.mark.parametrize(("op", "columns"), [("l2_normalize", 263), ("l2_normalize", 331), ("l2_normalize", 1425)])
def test_vectors_that_begin_where_registers_do(op: str, columns: int) -> None:
    """Wherever rows begin: nothing before or behind them is touched, and bits are those of vectors that begin with the row."""
    text, x = of_rows(op, 9, columns), np.random.default_rng(columns).standard_normal((9, columns), np.float32)
    program, other = (fuse_opt.compile(text, pipeline=each) for each in (FOR_NARROW, DEFAULT_PIPELINE))
    assert "= fo_before_register_f32(" in program.source and "= fo_before_register_f32(" not in other.source
    wanted = other(x)
    for place in range(9):
        memory = np.full(x.size + 32, 7.5, np.float32)
        out = memory[16 + place : 16 + place + x.size].reshape(x.shape)
        np.testing.assert_array_equal(program(x, out=out), wanted)
        assert (memory[: 16 + place] == 7.5).all() and (memory[16 + place + x.size :] == 7.5).all()
    for at_end in (False, True):
        with guarded() as allocate:
            out = allocate(np.empty_like(x), at_end=at_end)
            program(allocate(x, at_end=at_end), out=out)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(
    ("op", "columns"), [("l2_normalize", 512), ("l2_normalize", 515), ("l2_normalize", 203), ("softmax", 985)]
)
def test_vectors_that_begin_with_the_row(op: str, columns: int) -> None:
    """Rows of whole vectors, those that have no room to move them by, short ones, and those that are kept in the result."""
    source = fuse_opt.compile(of_rows(op, 9, columns), pipeline=FOR_NARROW).source
    assert "= fo_before_register_f32(" not in source


@needs_compiler
def test_in_place_and_on_any_number_of_threads() -> None:
    text = of_rows("softmax", 67, 203).replace("f32>)", "f32> {graph.donated})", 1)
    x = np.random.default_rng(5).normal(0, 4, (67, 203)).astype(np.float32)
    expected = np.asarray(fuse_opt.compile(of_rows("softmax", 67, 203), "cpu")(x))
    module = apply(parse(text), [*PASSES, "infer-inplace"])
    assert "inplace" in text_of(module)
    program, before = CpuProgram(build_program(module)), num_threads()
    try:
        for threads in (1, 2, 4):
            set_num_threads(threads)
            np.testing.assert_array_equal(program(x.copy()), expected)
    finally:
        set_num_threads(before)


@needs_compiler
def test_what_a_loop_further_out_makes_is_kept_for_every_element() -> None:
    """A scalar of a row of the matrix, which a later loop over all of its elements reads back."""
    t, column = "tensor<8x7xf32>", "tensor<8x1xf32>"
    text = f"""func.func @main(%x: {column}) -> ({t}, {t}) {{
      %g = graph.gelu %x {{approximate = "tanh"}} : ({column}) -> {column}
      %b = graph.broadcast_to %g {{shape = array<i64: 8, 7>}} : ({column}) -> {t}
      %d = graph.subtract %b, %g : ({t}, {column}) -> {t}
      %e = graph.exp %d : ({t}) -> {t}
      %m = graph.amin %b {{keepdims = false}} : ({t}) -> tensor<f32>
      %r = graph.subtract %b, %m : ({t}, tensor<f32>) -> {t}
      func.return %e, %r : {t}, {t}
    }}"""
    x = np.random.default_rng(3).standard_normal((8, 1)).astype(np.float32)
    assert_close(fuse_opt.compile(text)(x), evaluate(parse(text), [x]))
