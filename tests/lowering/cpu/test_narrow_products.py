"""Generated products of narrow elements: bf16 and f16 widened or in pairs, bytes in fours, beside NumPy's wide ones."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from draws import scaled
from graph_op_table import converted, noise, wide
from guard_pages import guarded, needs_guard_pages
from ir_testing import kernels
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.product_copies import FEW_TRANSPOSED, MOST_STREAMED
from fuse_opt.dialects.analysis.contractions.products import MATMUL
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Any] = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32}
FAST = [text.replace("schedule-kernels", "schedule-kernels{math=fast}") for text in DEFAULT_PIPELINE]
KERNEL = [text.replace("schedule-kernels", "schedule-kernels{precision=kernel}") for text in DEFAULT_PIPELINE]
EXTENTS = [(1, 1, 1), (3, 5, 7), (40, 33, 70), (1, 130, 33), (4, 64, 64), (37, 300, 65), (33, 20, 1), (70, 1300, 100)]
FLAGS = [(False, False), (False, True), (True, False), (True, True)]
GELU = "  %y = graph.gelu %p : (T) -> T\n"


class Narrow:
    """A program of one product of narrow elements, with arguments."""

    def __init__(
        self, extents: tuple[int, int, int], types: tuple[str, str, str], flags: tuple[bool, bool], epilogue: str = ""
    ) -> None:
        rows, depth, columns = extents
        self.types, self.flags = types, flags
        self.shapes = (depth, rows) if flags[0] else (rows, depth), (columns, depth) if flags[1] else (depth, columns)
        x, w = (f"tensor<{a}x{b}x{t}>" for (a, b), t in zip(self.shapes, types[:2], strict=True))
        y = f"tensor<{rows}x{columns}x{types[2]}>"
        names = [
            name for name, flag in zip(("transpose_lhs = true", "transpose_rhs = true"), flags, strict=True) if flag
        ]
        names += [f"dtype = {types[2]}"] if types[2] != types[0] else []
        self.text = f"""
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %p = graph.matmul %x, %w {{{", ".join(names)}}} : ({x}, {w}) -> {y}
{epilogue.replace("T", y)}  func.return {"%y" if epilogue else "%p"} : {y}
}}"""

    def arguments(self) -> list[Array]:
        rng = np.random.default_rng(5)
        found: list[Array] = []
        for shape, name in zip(self.shapes, self.types[:2], strict=True):
            if name in ("i8", "ui8"):
                low = -128 if name == "i8" else 0
                found.append(rng.integers(low, low + 256, shape).astype(NUMPY[name]))
            else:
                found.append(noise(name, *shape))
        return found

    def compile(self, pipeline: Sequence[str] | None = None) -> Any:
        program = fuse_opt.compile(self.text, pipeline=pipeline)
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [MATMUL]
        assert program.stats.library_calls == 0
        return program

    def exact(self) -> Array:
        """The product in wide numbers, of integers or of f64."""
        given = [each.astype(np.int64) if self.types[2] == "i32" else wide(each) for each in self.arguments()]
        x, w = (each.T if flag else each for each, flag in zip(given, self.flags, strict=True))
        return x @ w


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("flags", FLAGS)
def test_strict_products_are_those_of_f32_rounded_once(element: str, flags: tuple[bool, bool]) -> None:
    for number, extents in enumerate(EXTENTS):
        if element == "f16" and number % 2 == 0:
            continue  # but for how it is widened, it is what bf16 is
        case = Narrow(extents, (element, element, element), flags, GELU if number % 2 else "")
        wanted = wide(fuse_opt.evaluate(case.text, *case.arguments()))
        unit = {"bf16": 2.0**-8, "f16": 2.0**-11}[element]
        actual = wide(case.compile()(*case.arguments()))
        np.testing.assert_allclose(actual, wanted, rtol=2.1 * unit, atol=1e-4 * max(np.abs(wanted).max(), 1))


@needs_compiler
@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_narrow_number_is_widened_as_it_is(element: str, transposed: bool) -> None:
    """Denormals too, by rows, by squares in registers, and where these end: a product with an identity leaves them alone."""
    depth, columns = 255, 257
    patterns = np.arange(2**16, dtype=np.uint16)
    values = patterns.view(np.float16).astype(np.float32)
    if element == "bf16":
        values = (patterns.astype(np.uint32) << 16).view(np.float32)
    right = np.resize(np.where(np.isfinite(values), values, 0), (depth, columns))
    case = Narrow((depth, depth, columns), (element, element, element), (False, transposed))
    given = np.ascontiguousarray(right.T) if transposed else right
    actual = case.compile()(converted(np.eye(depth), element), converted(given, element))
    np.testing.assert_array_equal(wide(actual), right)


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("pipeline", "result"), [(FAST, "f32"), (KERNEL, "bf16")], ids=["fast", "kernel"])
def test_products_of_pairs_of_bf16_have_sums_of_f32(
    flags: tuple[bool, bool], pipeline: Sequence[str], result: str
) -> None:
    bound = 1e-4 if result == "f32" else 2.0**-8
    for extents in EXTENTS[sum(flags) % 2 :: 2]:
        case = Narrow(extents, ("bf16", "bf16", result), flags)
        exact = case.exact()
        program = case.compile(pipeline)
        assert ("fo_tile_bf16_" in program.source) == (extents[0] > FEW_TRANSPOSED and extents[2] > 1)
        actual = wide(program(*case.arguments()))
        np.testing.assert_allclose(actual, exact, rtol=bound, atol=1e-4 * max(np.abs(exact).max(), 1))


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize(
    ("extents", "in_pairs"),
    [((7, 70, 40), False), ((8, 70, 40), True), ((12, 37, 16), True), ((12, 37, 15), False), ((13, 37, 15), True)],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_pairs_are_for_as_many_rows_and_columns_as_matrix_registers_take(
    extents: tuple[int, int, int], in_pairs: bool, transposed: bool
) -> None:
    case = Narrow(extents, ("bf16", "bf16", "f32"), (False, transposed))
    exact, program = case.exact(), case.compile(FAST)
    assert ("fo_tile_bf16_" in program.source) == in_pairs
    np.testing.assert_allclose(program(*case.arguments()), exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("element", ["i8", "ui8"])
@pytest.mark.parametrize("flags", FLAGS)
def test_products_of_bytes_are_exact(element: str, flags: tuple[bool, bool]) -> None:
    for extents in EXTENTS[element == "i8" :: 2]:
        case = Narrow(extents, (element, "i8", "i32"), flags)
        np.testing.assert_array_equal(case.compile()(*case.arguments()), case.exact())


@needs_compiler
@pytest.mark.parametrize("element", ["i8", "ui8"])
def test_columns_that_are_no_whole_number_of_groups_apart(element: str) -> None:
    """They are turned by squares of groups, too, and their rows are copied to whole lines."""
    for depth in (69, 131, 263):
        case = Narrow((35, depth, 50), (element, "i8", "i32"), (False, True))
        np.testing.assert_array_equal(case.compile()(*case.arguments()), case.exact())


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("transposed", [False, True], ids=["as it is", "transposed"])
@pytest.mark.parametrize(
    ("pipeline", "types"),
    [(None, ("ui8", "i8", "i32")), (None, ("i8", "i8", "i32")), (FAST, ("bf16", "bf16", "f32"))],
    ids=["ui8", "i8", "bf16"],
)
def test_the_rows_of_a_tile_meet_several_panels(
    pipeline: Sequence[str] | None, types: tuple[str, str, str], transposed: bool
) -> None:
    """Of which the last one is narrower, in tasks of which the last one has fewer; rows of the result are no whole lines."""
    case = Narrow((66, 129, 1125), types, (False, transposed))
    program = case.compile(pipeline)
    assert re.search(r"fo_panels_\w+\(", program.source), "panels of a task lie side by side"
    np.testing.assert_allclose(wide(program(*case.arguments())), case.exact(), rtol=1e-4, atol=1e-3)


@needs_compiler
@pytest.mark.parametrize("kind", [("i8", "i8", "i32"), ("bf16", "bf16", "f32")])
def test_panels_that_are_tasks(kind: tuple[str, str, str]) -> None:
    """Of many rows, that are whole lines: each thread has some panels, which are more than a cache holds, or fewer."""
    case = Narrow((400, 128 if kind[0] == "i8" else 192, 1650), kind, (False, False))
    program = case.compile(FAST if kind[0] == "bf16" else None)
    assert re.search(r"for \(long first = begin; first < end;", program.source)
    results = by_threads(partial(program, *case.arguments()))
    np.testing.assert_allclose(wide(results[0]), case.exact(), rtol=1e-4, atol=1e-3)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("kind", [("ui8", "i8", "i32"), ("i8", "i8", "i32"), ("bf16", "bf16", "f32")])
@pytest.mark.parametrize("extents", [(75, 385, 200), (66, 1537, 33), (1400, 65, 17), (40, 1024, 96), (13, 131, 900)])
def test_rows_that_are_no_whole_lines_are_copied_tile_by_tile(
    kind: tuple[str, str, str], extents: tuple[int, int, int]
) -> None:
    """Those that would evict each other, too; with panels that are tasks, or blocks of rows, and weights that are packed."""
    for transposed in (False, True):
        case = Narrow(extents, kind, (False, transposed))
        program = case.compile(FAST if kind[0] == "bf16" else None)
        x, w = case.arguments()
        assert re.search(r"for \(long tile[^\n]*\n(?!\s*for)[^}]*fo_rows_\w+\(", program.source)
        results = by_threads(partial(program, x, w))
        np.testing.assert_allclose(wide(results[0]), case.exact(), rtol=1e-4, atol=1e-3)
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])
        program.freeze({1: w})
        np.testing.assert_array_equal(program(x), results[0])


@needs_compiler
def test_every_product_of_a_batch_has_copies_of_its_rows() -> None:
    text = """
func.func @main(%x: tensor<3x70x77xui8>, %w: tensor<3x77x41xi8>) -> tensor<3x70x41xi32> {
  %p = graph.matmul %x, %w {dtype = i32} : (tensor<3x70x77xui8>, tensor<3x77x41xi8>) -> tensor<3x70x41xi32>
  func.return %p : tensor<3x70x41xi32>
}"""
    rng = np.random.default_rng(8)
    x, w = rng.integers(0, 256, (3, 70, 77)).astype(np.uint8), rng.integers(-128, 128, (3, 77, 41)).astype(np.int8)
    np.testing.assert_array_equal(fuse_opt.compile(text)(x, w), x.astype(np.int32) @ w.astype(np.int32))


@needs_compiler
def test_extreme_bytes() -> None:
    case = Narrow((15, 2048, 17), ("i8", "i8", "i32"), (False, False))
    x, w = (np.full_like(each, -128) for each in case.arguments())
    assert (case.compile()(x, w) == 128 * 128 * 2048).all()


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    rng = random.Random(3)
    kinds = [("bf16", "bf16", "bf16"), ("f16", "f16", "f16"), ("i8", "i8", "i32"), ("ui8", "i8", "i32")]
    for number in range(scaled(8)):
        extents = (
            rng.choice((1, 5, 14, 33, 70)),
            rng.choice((1, 2, 3, 7, 64, 131, 301)),
            rng.choice((1, 3, 16, 33, 65, 130)),
        )
        case = Narrow(extents, kinds[number % 4], (rng.random() < 0.4, rng.random() < 0.4))
        program, arguments = case.compile(FAST if number % 8 > 3 else None), case.arguments()
        wanted = case.exact()
        with guarded() as allocate:
            given = [allocate(array, at_end=number % 3 > 0) for array in arguments]
            out = allocate(np.zeros(wanted.shape, NUMPY.get(case.types[2], arguments[0].dtype)), at_end=number % 3 > 0)
            program(*given, out=out)
            tolerance = 0 if case.types[2] == "i32" else 0.02
            np.testing.assert_allclose(out if not tolerance else wide(out), wanted, rtol=tolerance, atol=10 * tolerance)
            del given, out


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = Narrow((150, 700, 131), ("bf16", "bf16", "bf16"), (False, True), GELU)
    for fast in (False, True):
        program = case.compile(FAST if fast else None)
        results = [result.view(np.uint16) for result in by_threads(partial(program, *case.arguments()))]
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def up_to_the_end(program: Any, arguments: Sequence[Array]) -> Array:
    """What a program gives of arguments behind which no memory is."""
    with guarded() as allocate:
        x, w = (allocate(each, at_end=True) for each in arguments)
        actual = wide(program(x, w).copy())
        del x, w
    return actual


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_few_rows_stream_narrow_weights(element: str) -> None:
    """Both operands are widened as they are read, up to where memory ends."""
    for number, extents in enumerate([(1, 771, 259), (4, 37, 300), (MOST_STREAMED, 1100, 267)]):
        case = Narrow(extents, (element, element, element), (number == 1, False), "" if number else GELU)
        program = case.compile()
        assert f"fo_streamed_{element}_{element}_{extents[0]}" in program.source and "panel[" not in program.source
        actual = up_to_the_end(program, case.arguments())
        exact, unit = wide(fuse_opt.evaluate(case.text, *case.arguments())), {"bf16": 2.0**-8, "f16": 2.0**-11}[element]
        np.testing.assert_allclose(actual, exact, rtol=2.1 * unit, atol=1e-5 * max(np.abs(exact).max(), 1))


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_few_rows_read_narrow_weights_where_they_lie(element: str) -> None:
    """Transposed ones, whose tiles widen them in registers: in no copy, up to where memory ends."""
    for extents in [(1, 771, 130), (4, 37, 64), (5, 1100, 67), (FEW_TRANSPOSED, 129, 90)]:
        case = Narrow(extents, (element, element, element), (False, True))
        program = case.compile()
        assert f"fo_dot_{element}_" in program.source and "panel[" not in program.source
        actual = up_to_the_end(program, case.arguments())
        exact, unit = case.exact(), {"bf16": 2.0**-8, "f16": 2.0**-11}[element]
        np.testing.assert_allclose(actual, exact, rtol=unit, atol=1e-5 * max(np.abs(exact).max(), 1))


@needs_compiler
@pytest.mark.parametrize("epilogue", ["", GELU], ids=["rounded", "with what follows"])
def test_tiles_ask_for_the_lines_that_what_follows_stores(epilogue: str) -> None:
    """Of the result, not of their sums, which are near."""
    case = Narrow((77, 192, 170), ("bf16", "bf16", "bf16"), (False, True), epilogue)
    program = case.compile(KERNEL)
    assert re.search(r"fo_tile_bf16_\w+a2\(\w+, .*, registers, [py], ", program.source)
    wanted = wide(fuse_opt.evaluate(case.text, *case.arguments()))
    actual = wide(program(*case.arguments()))
    np.testing.assert_allclose(actual, wanted, rtol=2.0**-7, atol=1e-4 * np.abs(wanted).max())
