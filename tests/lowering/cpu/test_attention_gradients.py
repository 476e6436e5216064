"""Generated gradients of attention: one kernel beside the sums of rows, with the values of the reference, from few bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from ir_testing import Array, apply, evaluate, kernels, parse, random_arguments
from lowered_programs import needs_compiler
from thread_counts import by_threads

import fuse_opt
from fuse_opt.dialects.analysis.contractions.attention_gradients import ATTENTION_GRADIENT, attention_gradient_of
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

Shape = tuple[int, ...]


def tensor(extents: Sequence[int], element: str) -> str:
    return f"tensor<{'x'.join(map(str, (*extents, element)))}>"


def program_text(q: Shape, k: Shape, width: int, attributes: str = "", mask: str = "", element: str = "f32") -> str:
    """The gradients of attention of queries and keys of these shapes, and values of the given width, from what it gives."""
    x, y, z, v = (tensor(s, element) for s in (q, k, (*k[:-1], width), (*q[:-1], width)))
    sums = tensor(q[:-1], "f64" if element == "f64" else "f32")
    name, typed, argument = (", %m", f", {mask}", f", %m: {mask}") if mask else ("", "", "")
    given = f"{{{attributes}}}" if attributes else ""
    return f"""
func.func @main(%g: {v}, %q: {x}, %k: {y}, %v: {z}, %o: {v}, %l: {sums}{argument}) -> ({x}, {y}, {z}) {{
  %dq, %dk, %dv = graph.scaled_dot_product_attention_backward %g, %q, %k, %v, %o, %l{name} {given}
      : ({v}, {x}, {y}, {z}, {v}, {sums}{typed}) -> ({x}, {y}, {z})
  func.return %dq, %dk, %dv : {x}, {y}, {z}
}}"""


def operands(text: str, seed: int = 1) -> list[Array]:
    """Numbers about 1, masks that leave some keys, and large sums of exponentials, so that weights are about 1 at most."""
    random = np.random.default_rng(seed)
    found: list[Array] = []
    for given in random_arguments(parse(text), seed):
        values = random.standard_normal(given.shape)
        found.append(values > -0.5 if given.dtype == np.bool_ else values.astype(given.dtype))
    found[3 if len(found) == 4 else 5] += 4
    return found


def check(text: str, seed: int = 1) -> Any:
    """Gradients come from one kernel, within rounding of the reference's; gives the program."""
    given = operands(text, seed)
    program = fuse_opt.compile(text)
    kinds = [kernel.schedule_kind() for kernel in kernels(program.module)]
    assert kinds.count(ATTENTION_GRADIENT) == 1 and "matmul" not in kinds and program.stats.library_calls == 0
    wanted = evaluate(parse(text), given)
    results: list[Array] = [np.empty_like(array) for array in wanted]
    program(*given, out=tuple(results) if len(results) > 1 else results[0])
    for actual, expected in zip(results, wanted, strict=True):
        slack = 2e-5 if expected.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(actual, expected, rtol=slack, atol=slack * max(float(abs(expected).max()), 1))
    return program


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("depth", [(1, 1), (24, 40), (64, 17), (130, 33)])
@pytest.mark.parametrize(("queries", "keys"), [(6, 2), (7, 15), (31, 33), (50, 129), (197, 197), (131, 257)])
def test_lengths(queries: int, keys: int, depth: tuple[int, int]) -> None:
    check(program_text((2, queries, depth[0]), (2, keys, depth[0]), depth[1]))


@needs_compiler
@pytest.mark.parametrize("attributes", ["", "is_causal = true"])
def test_scores_of_a_last_panel_of_few_keys_have_narrower_tiles(attributes: str) -> None:
    source = check(program_text((2, 30, 64), (2, 197, 64), 64, attributes)).source
    columns = {int(found) for found in re.findall(r"static .* void fo_tile_f32_\d+x(\d+)\(", source)}
    assert len(columns) == 2 and min(columns) < max(columns)


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(
    "mask", ["", "tensor<1x4x150x137xE>", "tensor<150x137xi1>", "tensor<2x1x1x137xi1>", "tensor<1xE>"]
)
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize(
    "attributes", ["", "is_causal = true", "scale = 0.5 : f64, dropout_p = 0.25 : f64, seed = 7 : i64"]
)
def test_masks_heads_and_dropout(element: str, mask: str, heads: int, attributes: str) -> None:
    grouped = ", ".join(filter(None, [attributes, "enable_gqa = true" if heads < 4 else ""]))
    check(program_text((2, 4, 150, 24), (2, heads, 137, 24), 40, grouped, mask.replace("E", element), element))


_HEADS = """
func.func @main(%g: FF, %x: XX, %o: FF, %l: tensor<2x3x141xf32>) -> XX {
  %q0 = graph.slice %x {starts = array<i64: 0, 0, 0>, stops = array<i64: 2, 141, 48>} : (XX) -> FF
  %k0 = graph.slice %x {starts = array<i64: 0, 0, 48>, stops = array<i64: 2, 141, 96>} : (XX) -> FF
  %v0 = graph.slice %x {starts = array<i64: 0, 0, 96>, stops = array<i64: 2, 141, 144>} : (XX) -> FF
  %q1 = graph.reshape %q0 {shape = array<i64: 2, 141, 3, 16>} : (FF) -> SS
  %k1 = graph.reshape %k0 {shape = array<i64: 2, 141, 3, 16>} : (FF) -> SS
  %v1 = graph.reshape %v0 {shape = array<i64: 2, 141, 3, 16>} : (FF) -> SS
  %g1 = graph.reshape %g {shape = array<i64: 2, 141, 3, 16>} : (FF) -> SS
  %o1 = graph.reshape %o {shape = array<i64: 2, 141, 3, 16>} : (FF) -> SS
  %q = graph.permute_dims %q1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %k = graph.permute_dims %k1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %v = graph.permute_dims %v1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %gh = graph.permute_dims %g1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %oh = graph.permute_dims %o1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %dq, %dk, %dv = graph.scaled_dot_product_attention_backward %gh, %q, %k, %v, %oh, %l {is_causal = true}
      : (HH, HH, HH, HH, HH, tensor<2x3x141xf32>) -> (HH, HH, HH)
  %dq1 = graph.permute_dims %dq {axes = array<i64: 0, 2, 1, 3>} : (HH) -> SS
  %dk1 = graph.permute_dims %dk {axes = array<i64: 0, 2, 1, 3>} : (HH) -> SS
  %dv1 = graph.permute_dims %dv {axes = array<i64: 0, 2, 1, 3>} : (HH) -> SS
  %dq2 = graph.reshape %dq1 {shape = array<i64: 2, 141, 48>} : (SS) -> FF
  %dk2 = graph.reshape %dk1 {shape = array<i64: 2, 141, 48>} : (SS) -> FF
  %dv2 = graph.reshape %dv1 {shape = array<i64: 2, 141, 48>} : (SS) -> FF
  %dx = graph.concat %dq2, %dk2, %dv2 {axis = 2 : i64} : (FF, FF, FF) -> XX
  func.return %dx : XX
}"""
EXTENTS = {"XX": (2, 141, 144), "FF": (2, 141, 48), "SS": (2, 141, 3, 16), "HH": (2, 3, 141, 16)}


@needs_compiler
def test_heads_are_read_and_stored_where_they_lie() -> None:
    text = _HEADS
    for short, extents in EXTENTS.items():
        text = text.replace(short, tensor(extents, "f32"))
    program = check(text)
    gradient = next(k for k in kernels(program.module) if k.schedule_kind() == ATTENTION_GRADIENT)
    assert {type(op).__name__ for op in gradient.ops()} >= {"SliceOp", "PermuteDimsOp", "ReshapeOp"}


@needs_compiler
@pytest.mark.parametrize("heads", [4, 2])
def test_scores_that_a_causal_mask_hides_are_not_computed(heads: int) -> None:
    """Sums stay as they are where what is hidden is finite; with something else they are those of all scores."""
    text = program_text((1, 4, 300, 16), (1, heads, 300, 16), 16, "is_causal = true, enable_gqa = true")
    module = apply(parse(text), DEFAULT_PIPELINE)
    (found,) = [attention_gradient_of(k) for k in kernels(module) if k.schedule_kind() == ATTENTION_GRADIENT]
    assert (found.parts, found.rows, found.seen) == (4 // heads, 300, 1)
    program = check(text)
    for number, place in ((0, (0, 1, 2, 0)), (3, (0, 1, 299, 0)), (5, (0, 1, 2))):
        given = operands(text)
        given[number][place] = np.nan
        with np.errstate(invalid="ignore"):
            wanted = evaluate(parse(text), given)
        for actual, expected in zip(program(*given), wanted, strict=True):
            np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(expected))


@needs_compiler
def test_threads_change_no_bit() -> None:
    text = program_text(
        (2, 4, 150, 24), (2, 2, 137, 24), 40, "dropout_p = 0.25 : f64, seed = 7 : i64, enable_gqa = true"
    )
    program, given = fuse_opt.compile(text), operands(text)
    results = by_threads(lambda: [array.tobytes() for array in program(*given)])
    assert all(each == results[0] for each in results)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    for seed, text in enumerate(
        [
            program_text((2, 7, 5), (2, 1, 5), 3),
            program_text((2, 133, 33), (2, 65, 33), 17, "is_causal = true", tensor((133, 65), "f32")),
            program_text((3, 50, 24), (3, 37, 24), 40, element="f64"),
        ]
    ):
        program, arguments = fuse_opt.compile(text), operands(text, seed)
        wanted = evaluate(parse(text), arguments)
        for at_end in (True, False):
            with guarded() as allocate:
                given = [allocate(array, at_end=at_end) for array in arguments]
                out = tuple(allocate(np.zeros_like(array), at_end=at_end) for array in wanted)
                program(*given, out=out)
                for number in range(3):
                    np.testing.assert_allclose(out[number], wanted[number], rtol=1e-4, atol=1e-4)
                del given, out


def test_unfuse_takes_it_apart_and_few_queries_are_products() -> None:
    text = program_text((2, 20, 8), (2, 20, 8), 8)
    module = apply(parse(text), DEFAULT_PIPELINE)
    assert ATTENTION_GRADIENT in [kernel.schedule_kind() for kernel in kernels(module)]
    assert kernels(apply(module, ["unfuse"])) == []
    for q, k in (((2, 5, 8), (2, 20, 8)), ((20, 8), (20, 8)), ((2, 9, 300), (2, 9, 300))):
        apart = apply(parse(program_text(q, k, 8)), DEFAULT_PIPELINE)
        assert ATTENTION_GRADIENT not in [kernel.schedule_kind() for kernel in kernels(apart)]


def test_what_was_chosen_for_a_cpu_is_products_on_cuda() -> None:
    text = program_text((2, 20, 8), (2, 20, 8), 8)
    lowered = str(apply(fuse_opt.optimize(text), ["convert-fused-to-gpu"]))
    assert lowered.count("graph.matmul") == 5 and "reference" not in lowered
