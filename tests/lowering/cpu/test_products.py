"""Generated products: every extent, transposition, batch and epilogue gives what NumPy gives, and touches nothing else."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from draws import scaled
from guard_pages import guarded, needs_guard_pages
from ir_testing import apply, evaluate, kernels, parse
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.products import MATMUL, product_of
from fuse_opt.lowering.cpu.matmul.tilings.choice import choose_tiling
from fuse_opt.lowering.cpu.matmul.tilings.tiling import Tiling
from fuse_opt.lowering.emit.c import build_program
from fuse_opt.runtime.cpu.program import CpuProgram

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64}


def tensor(*parts: object) -> str:
    return f"tensor<{'x'.join(map(str, parts))}>"


def extents_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.removeprefix("tensor<").removesuffix(">").split("x")[:-1])


class Case:
    """A program of one product, with arguments."""

    def __init__(
        self,
        rows: int,
        depth: int,
        columns: int,
        *,
        lhs: Sequence[int] = (),
        rhs: Sequence[int] = (),
        transposed: tuple[bool, bool] = (False, False),
        epilogue: str = "",
        element: str = "f32",
    ) -> None:
        batch = np.broadcast_shapes(tuple(lhs), tuple(rhs))
        left = (depth, rows) if transposed[0] else (rows, depth)
        right = (columns, depth) if transposed[1] else (depth, columns)
        self.types = [tensor(*lhs, *left, element), tensor(*rhs, *right, element), tensor(columns, element)]
        self.result = tensor(*batch, rows, columns, element)
        self.types.append(self.result)
        flags = {"transpose_lhs = true": transposed[0], "transpose_rhs = true": transposed[1]}
        attributes = ", ".join(text for text, given in flags.items() if given)
        arguments = ", ".join(f"%{name}: {type_}" for name, type_ in zip("xwbr", self.types, strict=True))
        body = epilogue.replace("T", self.result).replace("B", self.types[2])
        last = "%y" if epilogue else "%p"
        self.text = f"""
func.func @main({arguments}) -> {self.result} {{
  %p = graph.matmul %x, %w {{{attributes}}} : ({self.types[0]}, {self.types[1]}) -> {self.result}
{body}  func.return {last} : {self.result}
}}"""
        self.element = element

    def tiling(self) -> Tiling:
        kernel = kernels(apply(parse(self.text), ["wrap-kernels"]))[0]
        return choose_tiling(product_of(kernel).contraction, 4 if self.element == "f32" else 8)

    def arguments(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(extents_of(text)).astype(NUMPY[self.element]) for text in self.types]

    def check(self, **options: Any) -> CpuProgram:
        """Runs it as code of its own, within rounding of the reference's, and with nothing written beside the result."""
        module = parse(self.text)
        wanted = evaluate(module, self.arguments())[0]
        program = fuse_opt.compile(self.text, **options)
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [MATMUL]
        assert program.stats.library_calls == 0
        guarded = np.full(wanted.size + 128, 7.5, wanted.dtype)
        out = guarded[64:-64].reshape(wanted.shape)
        program(*self.arguments(), out=out)
        assert (guarded[:64] == 7.5).all() and (guarded[-64:] == 7.5).all()
        scale = 1e-5 if self.element == "f32" else 1e-13
        np.testing.assert_allclose(out, wanted, rtol=scale, atol=scale * max(float(np.abs(wanted).max()), 1.0))
        return program.native


BIAS_GELU_RESIDUAL = """  %a = graph.add %p, %b : (T, B) -> T
  %g = graph.gelu %a : (T) -> T
  %y = graph.add %g, %r : (T, T) -> T
"""


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("columns", [16, 17, 31, 47, 63, 64, 65, 100, 129, 197])
def test_every_width_has_its_tail(columns: int) -> None:
    for rows in (1, 2, 5, 6, 7, 13, 33, 40):
        Case(rows, 19, columns, epilogue=BIAS_GELU_RESIDUAL if rows % 2 else "").check()


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)], ids=["right", "left", "both"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(33, 16, 16), (37, 45, 70), (64, 33, 48), (50, 530, 19)])
def test_transposed_operands(rows: int, depth: int, columns: int, transposed: tuple[bool, bool]) -> None:
    Case(rows, depth, columns, transposed=transposed, epilogue=BIAS_GELU_RESIDUAL).check()
    Case(rows, depth, columns, transposed=transposed, element="f64").check()


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [((3,), ()), ((3,), (3,)), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((1,), (4,)), ((2, 3), (2, 1))],
)
def test_batches(lhs: Sequence[int], rhs: Sequence[int]) -> None:
    for transposed in ((False, False), (True, True)):
        Case(35, 18, 40, lhs=lhs, rhs=rhs, transposed=transposed, epilogue=BIAS_GELU_RESIDUAL).check()
    Case(1, 18, 40, lhs=lhs, rhs=rhs).check()


@needs_compiler
def test_random_extents() -> None:
    rng = random.Random(7)
    for number in range(scaled(6)):
        rows, depth, columns = (rng.choice((1, 7, 33, 64, 97, 131)), rng.randint(1, 700), rng.randint(1, 150))
        epilogue = BIAS_GELU_RESIDUAL if number % 2 else ""
        Case(rows, depth, columns, epilogue=epilogue, element=rng.choice(("f32", "f64"))).check()


@pytest.mark.sampled(6)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("tail", range(1, 65))
@pytest.mark.parametrize("of", ["rows", "depth", "columns"])
def test_nothing_beside_operands_and_results_is_touched(of: str, tail: int) -> None:
    rng = random.Random(f"{of} {tail}")
    extents = {"rows": rng.choice((1, 3, 6, 33, 40)), "depth": rng.choice((1, 7, 33, 300))}
    extents |= {"columns": rng.choice((1, 5, 16, 33, 65, 193)), of: tail + rng.choice((0, 0, 64, 128))}
    flags, element = (rng.random() < 0.4, rng.random() < 0.4), rng.choice(("f32", "f32", "f64"))
    epilogue = rng.choice(("", BIAS_GELU_RESIDUAL))
    case = Case(*extents.values(), transposed=flags, epilogue=epilogue, element=element)
    program, arguments = fuse_opt.compile(case.text), case.arguments()
    wanted = evaluate(parse(case.text), arguments)[0]
    with guarded() as allocate:
        for at_end in (True, False):
            given = [allocate(array, at_end=at_end) for array in arguments]
            out = allocate(np.zeros_like(wanted), at_end=at_end)
            program(*given, out=out)
            np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
            del given, out


@needs_compiler
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_few_rows_of_a_transposed_operand_are_sums_along_the_contracted_dimension(element: str) -> None:
    shapes = ((1, 32, 5), (2, 45, 66), (3, 131, 17), (4, 64, 67), (5, 1030, 65), (16, 1030, 130))
    for number, (rows, depth, columns) in enumerate(shapes):
        follows = number % 2 == (element == "f32")
        epilogue = BIAS_GELU_RESIDUAL if follows else ""
        case = Case(rows, depth, columns, transposed=(False, True), element=element, epilogue=epilogue)
        assert case.tiling().along_depth
        case.check()


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
def test_few_columns(transposed: tuple[bool, bool]) -> None:
    shapes = ((70, 20, 1), (1, 300, 1), (33, 64, 2), (100, 131, 3), (97, 19, 7), (40, 2100, 15))
    for number, (rows, depth, columns) in enumerate(shapes):
        epilogue = BIAS_GELU_RESIDUAL if (number + sum(transposed)) % 2 else ""
        Case(rows, depth, columns, transposed=transposed, epilogue=epilogue).check()


@needs_compiler
@pytest.mark.parametrize("transposed", [False, True])
def test_columns_of_most_of_a_vector_are_a_whole_one_where_sums_are_short(transposed: bool) -> None:
    shapes = ((70, 32, 12, "f32"), (16, 1, 9, "f32"), (97, 64, 15, "f32"), (41, 19, 5, "f64"))
    for number, (rows, depth, columns, element) in enumerate(shapes):
        epilogue = BIAS_GELU_RESIDUAL if number % 2 == transposed else ""
        case = Case(rows, depth, columns, transposed=(False, transposed), element=element, epilogue=epilogue)
        assert case.tiling().pads
        assert ("fo_stored_bits" in case.check().source) == (columns > 8)  # masks, where half a vector is too short
    for depth, columns in ((65, 12), (32, 8), (32, 16)):
        assert not Case(70, depth, columns, transposed=(False, transposed)).tiling().pads


@needs_compiler
def test_small_products() -> None:
    for extent in (1, 2, 3, 4, 5, 8, 12, 13, 16, 24, 31, 64):
        Case(extent, extent, extent, lhs=(3,), rhs=(3,)).check()


@needs_compiler
def test_long_rows_of_a_transposed_left_operand_are_copied_by_blocks() -> None:
    for epilogue in ("", BIAS_GELU_RESIDUAL):
        case = Case(300, 1100, 600, transposed=(True, False), epilogue=epilogue)
        assert 0 < case.tiling().copied_depth < 1100
        case.check()


@needs_compiler
def test_threads_change_no_bit() -> None:
    case = Case(150, 700, 131, lhs=(2,), epilogue=BIAS_GELU_RESIDUAL)
    assert case.tiling().depth < 700 and "n1x1(" in fuse_opt.compile(case.text).source
    program, arguments = fuse_opt.compile(case.text), case.arguments()
    results = by_threads(lambda: program(*arguments).copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@needs_compiler
@pytest.mark.parametrize("epilogue", ["", BIAS_GELU_RESIDUAL], ids=["alone", "with what follows"])
def test_blocks_of_long_rows_meet_several_panels_and_change_no_bit(epilogue: str) -> None:
    case = Case(250, 600, 330, epilogue=epilogue)
    tiling = case.tiling()
    assert tiling.depth_first and tiling.tiles_copy and 1 < tiling.panels_at_a_time < tiling.panels
    case.check()
    program, arguments = fuse_opt.compile(case.text), case.arguments()
    results = by_threads(lambda: program(*arguments).copy(), (1, 2, 3, 8))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@needs_compiler
@pytest.mark.parametrize("columns", [700, 9000], ids=["near", "far, more than sums have room for"])
def test_panels_that_a_thread_has_of_a_single_row_change_no_bit(columns: int) -> None:
    case = Case(1, 45, columns, epilogue=BIAS_GELU_RESIDUAL)
    assert case.tiling().spans_tasks(1)
    case.check()
    program, arguments = fuse_opt.compile(case.text), case.arguments()
    results = by_threads(lambda: program(*arguments).copy(), (1, 3, 8))
    assert all((result == results[0]).all() for result in results)


@needs_compiler
def test_errors_are_no_larger_than_those_of_a_library() -> None:
    """Root mean squares; single rows are another routine there, which sums in short stretches, as ours are."""
    for rows, depth, columns in (
        (64, 384, 96),
        (40, 1536, 64),
        (1, 63, 1021),
        (1, 64, 1021),
        (1, 700, 512),
        (1, 4096, 300),
        (512, 1536, 1),
        (3, 771, 300),
        (8, 771, 300),
    ):
        case = Case(rows, depth, columns)
        x, w, *_ = arguments = case.arguments(3)
        exact = x.astype(np.float64) @ w.astype(np.float64)
        ours, theirs = (float(np.std(found - exact)) for found in (fuse_opt.compile(case.text)(*arguments), x @ w))
        assert ours <= 1.02 * theirs, (rows, depth, columns)


@needs_compiler
def test_several_results_and_types() -> None:
    text = """
func.func @main(%x: tensor<40x24xf32>, %w: tensor<24x64xf32>, %r: tensor<40x64xf32>)
    -> (tensor<40x64xf32>, tensor<40x64xbf16>, tensor<40x64xi1>) {
  %p = graph.matmul %x, %w : (tensor<40x24xf32>, tensor<24x64xf32>) -> tensor<40x64xf32>
  %a = graph.add %p, %r : (tensor<40x64xf32>, tensor<40x64xf32>) -> tensor<40x64xf32>
  %h = graph.astype %a {dtype = bf16} : (tensor<40x64xf32>) -> tensor<40x64xbf16>
  %c = graph.greater %a, %r : (tensor<40x64xf32>, tensor<40x64xf32>) -> tensor<40x64xi1>
  func.return %a, %h, %c : tensor<40x64xf32>, tensor<40x64xbf16>, tensor<40x64xi1>
}"""
    rng = np.random.default_rng(1)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in ((40, 24), (24, 64), (40, 64))]
    program = fuse_opt.compile(text)
    assert program.stats.library_calls == 0 and program.stats.kernels == 1
    for actual, expected in zip(program(*arguments), fuse_opt.evaluate(text, *arguments), strict=True):
        assert actual.dtype == expected.dtype
        if actual.dtype == np.float32:
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_what_follows_is_computed_while_a_first_cache_has_the_sums() -> None:
    source = Case(500, 24, 64, epilogue=BIAS_GELU_RESIDUAL).check().source
    found = re.search(r"float sums\[(\d+)\]", source)
    assert found is not None and int(found[1]) <= 16 * 64, "the sums of one tile"
    Case(70, 1100, 40, epilogue=BIAS_GELU_RESIDUAL).check()  # several blocks of what is contracted


@needs_compiler
def test_rows_meet_all_panels_of_a_small_right_operand_and_share_them_out() -> None:
    case = Case(230, 11, 118, epilogue=BIAS_GELU_RESIDUAL)
    assert case.tiling().rows_first and case.tiling().panels > 1
    case.check()
    few = Case(400, 90, 64).tiling()
    assert few.panels == 1 and few.row_blocks > 2


@pytest.mark.parametrize(("rows", "columns", "grain"), [(197, 2304, 3), (197, 1021, 2)])
def test_threads_share_panels_evenly(rows: int, columns: int, grain: int) -> None:
    case = Case(rows, 768, columns)
    source = build_program(apply(parse(case.text), ["wrap-kernels", "schedule-kernels"])).source
    assert f", {-(-columns // 64)}, {grain});" in source


def test_unfuse_takes_the_product_and_what_follows_apart() -> None:
    module = apply(parse(Case(40, 24, 64, epilogue=BIAS_GELU_RESIDUAL).text), ["fuse-elementwise", "fuse-epilogue"])
    assert [[op.name for op in kernel.ops()] for kernel in kernels(module)] == [
        ["graph.matmul", "graph.add", "graph.gelu", "graph.add"]
    ]
    assert kernels(apply(module, ["unfuse"])) == []
