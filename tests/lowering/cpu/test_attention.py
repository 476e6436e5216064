"""Generated attention: masks, lengths, grouped heads, strides and types give what the reference gives, in one launch."""

from __future__ import annotations

import random
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
from fuse_opt.dialects.analysis.contractions.attention import ATTENTION, attention_of
from fuse_opt.lowering.program.float_formats import computed
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE


def tensor(extents: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, (*extents, element)))}>"


def program_text(
    q: Sequence[int], k: Sequence[int], width: int, attributes: str = "", mask: str = "", element: str = "f32"
) -> str:
    """Attention of queries and keys of these shapes, and values of the given width."""
    v, y = (*k[:-1], width), (*q[:-1], width)
    types = [tensor(extents, element) for extents in (q, k, v)] + ([mask] if mask else [])
    names = ["%q", "%k", "%v", "%m"][: len(types)]
    arguments = ", ".join(map(": ".join, zip(names, types, strict=True)))
    given = f" {{{attributes}}}" if attributes else ""
    result = tensor(y, element)
    return f"""
func.func @main({arguments}) -> {result} {{
  %y = graph.scaled_dot_product_attention {", ".join(names)}{given} : ({", ".join(types)}) -> {result}
  func.return %y : {result}
}}"""


def check(text: str, *, seed: int = 1, others: int = 0) -> Any:
    """Runs as one kernel of attention (and so many others), within rounding of the reference's; gives the program."""
    module = parse(text)
    arguments = random_arguments(module, seed)
    wanted = evaluate(module, arguments)
    program = fuse_opt.compile(text)
    kinds = [kernel.schedule_kind() for kernel in kernels(program.module)]
    assert kinds.count(ATTENTION) == 1 and len(kinds) == 1 + others
    assert program.stats.library_calls == 0
    results: list[Array] = [np.empty_like(value) for value in wanted]
    program(*arguments, out=results[0] if len(results) == 1 else tuple(results))
    for actual, expected in zip(results, wanted, strict=True):
        scale = 1e-5 if expected.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(actual, expected, rtol=10 * scale, atol=10 * scale)
    return program


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(1, 90), (3, 7), (5, 417), (6, 2), (7, 15), (13, 16), (31, 33), (50, 64), (64, 129), (197, 197)],
)
def test_lengths(queries: int, keys: int) -> None:
    for depth, width in ((1, 1), (24, 40), (64, 17), (300, 33)):
        check(program_text((2, queries, depth), (2, keys, depth), width))


@needs_compiler
@pytest.mark.usefixtures("wide_host")
@pytest.mark.parametrize(("keys", "width"), [(197, 64), (70, 128)])
def test_a_last_panel_of_few_keys_has_narrower_tiles(keys: int, width: int) -> None:
    source = check(program_text((2, 30, 64), (2, keys, 64), width)).source
    columns = {int(found) for found in re.findall(r"static .* void fo_tile_f32_\d+x(\d+)\(", source)}
    assert len(columns) == 2 and min(columns) < max(columns)


@pytest.mark.sampled(4)
@needs_compiler
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("mask", ["", "tensor<1x3x50x37xE>", "tensor<50x37xi1>", "tensor<2x1x1x37xi1>", "tensor<1xE>"])
@pytest.mark.parametrize("attributes", ["", "is_causal = true", "scale = 0.5 : f64"])
def test_masks_and_scales(element: str, mask: str, attributes: str) -> None:
    """Queries that a mask leaves no key give 0."""
    check(program_text((2, 3, 50, 24), (2, 3, 37, 24), 40, attributes, mask.replace("E", element), element))


DROPS = "is_causal = true, dropout_p = 0.25 : f64, seed = 7 : i64"


@needs_compiler
@pytest.mark.parametrize("mask", ["", "tensor<50x37xf32>", "tensor<1x1x1x37xi1>"])
def test_dropout_is_drawn_where_weights_are(mask: str) -> None:
    """What is dropped follows from the seed, the offset and the position: nothing of it is in memory."""
    text = program_text((2, 4, 50, 24), (2, 2, 37, 24), 40, f"{DROPS}, enable_gqa = true", mask)
    check(text)
    names = ("%q, %k, %v, %m" if mask else "%q, %k, %v"), ("%q, %k, %v, %m, %o" if mask else "%q, %k, %v, %o")
    text = text.replace(f"attention {names[0]} ", f"attention {names[1]} ").replace(
        ") -> ", ", %o: tensor<i64>) -> ", 1
    )
    head, _, rest = text.rpartition(") -> ")
    check(f"{head}, tensor<i64>) -> {rest}")


@needs_compiler
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_narrow_floats_are_widened_as_they_are_copied(element: str) -> None:
    for text in (
        program_text((2, 3, 50, 24), (2, 3, 37, 24), 40, "", "", element),
        program_text((2, 19, 40), (2, 70, 40), 24, "is_causal = true", "", element),
    ):
        module = parse(text)
        arguments = random_arguments(module, 2)
        program = fuse_opt.compile(text)
        assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [ATTENTION]
        actual, expected = (
            computed(array).astype(np.float32) for array in (program(*arguments), evaluate(module, arguments)[0])
        )
        np.testing.assert_allclose(actual, expected, rtol=2**-7, atol=2**-9)


@needs_compiler
@pytest.mark.parametrize("heads", [(4, 2), (6, 1), (3, 3)])
def test_grouped_heads(heads: tuple[int, int]) -> None:
    """The queries of the heads of a group are rows of one product."""
    for attributes in ("enable_gqa = true", "enable_gqa = true, is_causal = true"):
        check(program_text((2, heads[0], 9, 16), (2, heads[1], 21, 16), 24, attributes))


HEADS = """
func.func @main(%x: XX, %g: tensor<48xf32>) -> (YY) {
  %q0 = graph.slice %x {starts = array<i64: 0, 0, 0>, stops = array<i64: 2, 41, 48>} : (XX) -> FF
  %k0 = graph.slice %x {starts = array<i64: 0, 0, 48>, stops = array<i64: 2, 41, 96>} : (XX) -> FF
  %v0 = graph.slice %x {starts = array<i64: 0, 0, 96>, stops = array<i64: 2, 41, 144>} : (XX) -> FF
  %q1 = graph.reshape %q0 {shape = array<i64: 2, 41, 3, 16>} : (FF) -> SS
  %k1 = graph.reshape %k0 {shape = array<i64: 2, 41, 3, 16>} : (FF) -> SS
  %v1 = graph.reshape %v0 {shape = array<i64: 2, 41, 3, 16>} : (FF) -> SS
  %q = graph.permute_dims %q1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %k = graph.permute_dims %k1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %v = graph.permute_dims %v1 {axes = array<i64: 0, 2, 1, 3>} : (SS) -> HH
  %s = graph.matmul %q, %k {transpose_rhs = true} : (HH, HH) -> PP
  %c = graph.tanh %s : (PP) -> PP
  %p = graph.softmax %c {axis = -1 : i64} : (PP) -> PP
  %y0 = graph.matmul %p, %v : (PP, HH) -> HH
  %y1 = graph.permute_dims %y0 {axes = array<i64: 0, 2, 1, 3>} : (HH) -> SS
  %y = graph.reshape %y1 {shape = array<i64: 2, 41, 48>} : (SS) -> FF
  END
}"""
TYPES = {"XX": (2, 41, 144), "FF": (2, 41, 48), "SS": (2, 41, 3, 16), "HH": (2, 3, 41, 16), "PP": (2, 3, 41, 41)}


def heads(end: str, results: str = "FF") -> str:
    text = HEADS.replace("END", end).replace("YY", results)
    for short, extents in TYPES.items():
        text = text.replace(short, tensor(extents))
    return text


@needs_compiler
def test_heads_of_one_tensor_are_read_and_stored_by_strides() -> None:
    """What a softmax of another kind of score, here one that is limited, is between the products."""
    program = check(heads("func.return %y : FF"))
    assert program.stats.kernels == 1


@needs_compiler
def test_what_follows_is_stored_with_it() -> None:
    """Weights that are returned, too, are stored from the rows that are in a cache."""
    check(heads("func.return %y, %p : FF, PP", "FF, PP"))


@needs_compiler
def test_grouped_heads_by_strides() -> None:
    """Queries at two distances: of tokens, and of heads."""
    text = """
func.func @main(%x: tensor<2x9x4x16xf32>, %k: tensor<2x2x21x16xf32>, %v: tensor<2x2x21x24xf32>) -> tensor<2x9x4x24xf32> {
  %q = graph.permute_dims %x {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x9x4x16xf32>) -> tensor<2x4x9x16xf32>
  %y = graph.scaled_dot_product_attention %q, %k, %v {enable_gqa = true}
      : (tensor<2x4x9x16xf32>, tensor<2x2x21x16xf32>, tensor<2x2x21x24xf32>) -> tensor<2x4x9x24xf32>
  %z = graph.permute_dims %y {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x4x9x24xf32>) -> tensor<2x9x4x24xf32>
  func.return %z : tensor<2x9x4x24xf32>
}"""
    check(text)


@needs_compiler
def test_random_extents_and_strides() -> None:
    rng = random.Random(5)
    for number in range(6):
        batch = rng.choice(((), (3,), (2, 3), (1, 4)))
        queries, keys, depth = rng.randint(6, 90), rng.randint(1, 140), rng.choice((3, 16, 33, 64, 80))
        mask = rng.choice(("", tensor((queries, keys)), tensor((queries, 1), "i1")))
        text = program_text((*batch, queries, depth), (*batch, keys, depth), rng.randint(1, 90), "", mask)
        check(text, seed=number)


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        program_text((3, 150, 40), (3, 131, 40), 72, "is_causal = true"),
        program_text((2, 40, 16), (2, 9000, 16), 24),
        program_text((2, 40, 16), (2, 131, 16), 24, DROPS, "tensor<40x131xi1>"),
    ],
)
def test_threads_change_no_bit(text: str) -> None:
    program, arguments = fuse_opt.compile(text), random_arguments(parse(text), 3)
    results = by_threads(lambda: program(*arguments).copy())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


LONG = {
    "few queries": program_text((2, 3, 7, 8), (2, 3, 9001, 8), 40),
    "one matrix": program_text((90, 33), (8005, 33), 65),
    "causal": program_text((2, 500, 16), (2, 9000, 16), 24, "is_causal = true"),
    "mask": program_text((2, 61, 24), (2, 6000, 24), 40, "", "tensor<61x6000xi1>"),
    "f64": program_text((31, 40), (4100, 40), 24, element="f64"),
    "16-bit": program_text((31, 40), (9000, 40), 24, element="bf16"),
    "rows that are not kept": program_text((9, 3), (40000, 3), 5),
}


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("kind", LONG)
def test_long_keys_are_copied_by_a_launch_of_their_own(kind: str) -> None:
    """Panels of all matrices lie in the arena, and several tiles go over each of them."""
    text = LONG[kind]
    arguments = random_arguments(parse(text), 6)
    program, wanted = fuse_opt.compile(text), evaluate(parse(text), arguments)[0]
    assert [kernel.schedule_kind() for kernel in kernels(program.module)] == [ATTENTION]
    assert program.stats.launches == 2
    assert program.stats.arena_bytes > 1 << 20
    slack = 2**-7 if kind == "16-bit" else 1e-4
    actual, expected = (computed(array).astype(np.float64) for array in (program(*arguments), wanted))
    np.testing.assert_allclose(actual, expected, rtol=slack, atol=slack / 100)


@needs_compiler
@needs_guard_pages
def test_nothing_beside_operands_and_results_is_touched() -> None:
    for number, text in enumerate(
        [
            program_text((2, 7, 5), (2, 1, 5), 3),
            program_text((2, 33, 33), (2, 65, 33), 17, "", tensor((33, 65))),
            program_text((2, 3, 1, 33), (2, 3, 69, 33), 17, "", tensor((1, 69))),
            program_text((2, 4, 5), (2, 29, 5), 3, element="f64"),
            program_text((50, 24), (37, 24), 40, "is_causal = true", element="f64"),
            heads("func.return %y : FF"),
            program_text((11, 8), (9001, 8), 40),
        ]
    ):
        program, arguments = fuse_opt.compile(text), random_arguments(parse(text), number)
        wanted = evaluate(parse(text), arguments)[0]
        for at_end in (True, False):
            with guarded() as allocate:
                given = [allocate(array, at_end=at_end) for array in arguments]
                out = allocate(np.zeros_like(wanted), at_end=at_end)
                program(*given, out=out)
                np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
                del given, out


MASKS = {
    "%kept = graph.greater_equal %i, %j : (ROW, COLUMN) -> MASK": 1,
    "%kept = graph.less %j, %i : (COLUMN, ROW) -> MASK": 0,
    "%kept = graph.greater %later, %j : (ROW, COLUMN) -> MASK": 5,
    "%c = graph.less_equal %j, %i : (COLUMN, ROW) -> MASK\n  %kept = graph.logical_and %any, %c : (MASK, MASK) -> MASK": 1,
    "%kept = graph.less_equal %i, %j : (ROW, COLUMN) -> MASK": None,
}
"""How many keys beyond its own number a query sees."""


def masked_text(mask: str, hidden: str = "-1.0e+30", norm: str = "") -> str:
    """Attention of 40 queries to 70 keys, with a mask by positions; `norm` makes %p of the masked scores %w."""
    mask = (
        mask.replace("ROW", "tensor<40x1xi64>")
        .replace("COLUMN", "tensor<1x70xi64>")
        .replace("MASK", "tensor<40x70xi1>")
    )
    norm = norm or "%p = graph.softmax %w {axis = 1 : i64} : (S) -> S"
    for short in ("(S)", "(S,", "-> S"):
        norm = norm.replace(short, short.replace("S", "tensor<40x70xf32>"))
    return f"""
func.func @main(%q: tensor<40x16xf32>, %k: tensor<70x16xf32>, %v: tensor<70x24xf32>) -> tensor<40x24xf32> {{
  %s = graph.matmul %q, %k {{transpose_rhs = true}} : (tensor<40x16xf32>, tensor<70x16xf32>) -> tensor<40x70xf32>
  %i = graph.iota {{shape = array<i64: 40, 1>, axis = 0 : i64, dtype = i64}} : () -> tensor<40x1xi64>
  %five = graph.constant dense<5> : tensor<i64>
  %later = graph.add %i, %five : (tensor<40x1xi64>, tensor<i64>) -> tensor<40x1xi64>
  %j = graph.iota {{shape = array<i64: 1, 70>, axis = 1 : i64, dtype = i64}} : () -> tensor<1x70xi64>
  %any = graph.not_equal %i, %j : (tensor<40x1xi64>, tensor<1x70xi64>) -> tensor<40x70xi1>
  {mask}
  %low = graph.constant dense<{hidden}> : tensor<f32>
  %w = graph.where %kept, %s, %low : (tensor<40x70xi1>, tensor<40x70xf32>, tensor<f32>) -> tensor<40x70xf32>
  {norm}
  %y = graph.matmul %p, %v : (tensor<40x70xf32>, tensor<70x24xf32>) -> tensor<40x24xf32>
  func.return %y : tensor<40x24xf32>
}}"""


@pytest.mark.parametrize(("mask", "seen"), MASKS.items())
def test_keys_behind_a_mask_of_positions_are_known(mask: str, seen: int | None) -> None:
    """Scores that a choice by positions leaves out are not computed, but in panels that hold others."""
    (kernel,) = kernels(apply(parse(masked_text(mask)), DEFAULT_PIPELINE))
    found = attention_of(kernel)
    assert (found.seen and found.seen.constant) == seen
    assert found.hides_alike == (seen is not None)


CAUSAL = next(iter(MASKS))


BIAS = """%x = graph.astype %j {dtype = f32} : (tensor<1x70xi64>) -> tensor<1x70xf32>
  %z = graph.add %w, %x : (S, tensor<1x70xf32>) -> S
  %p = graph.softmax %z {axis = 1 : i64} : (S) -> S"""


def test_columns_that_differ_behind_a_mask_are_gone_over() -> None:
    """A bias by position that is added to masked scores."""
    (kernel,) = kernels(apply(parse(masked_text(CAUSAL, norm=BIAS)), DEFAULT_PIPELINE))
    found = attention_of(kernel)
    assert found.seen is not None and not found.hides_alike
    check(masked_text(CAUSAL, norm=BIAS))


HIDDEN = {
    "0xFF800000": "nothing",  # -inf
    "-1.0e+30": "nothing",
    "0.25": "as other scores",
    "1.0e+30": "more than any other score",
    "0x7F800000": "inf, which makes NaN of every row",
    "0x7FC00000": "NaN",
}


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("spoiled", [None, 17, 39])
def test_what_a_mask_leaves_counts_as_often_as_there_are_columns(hidden: str, spoiled: int | None) -> None:
    """Rows end with the first column that is hidden, but where this one is no 0 in their sum."""
    for mask, seen in list(MASKS.items())[: None if spoiled is None else 1]:
        text = masked_text(mask, hidden)
        arguments = random_arguments(parse(text), 4)
        if spoiled is not None:
            arguments[0][spoiled, 2] = np.inf  # a row of NaN and infinities between others
        with np.errstate(all="ignore"):
            wanted = evaluate(parse(text), arguments)[0]
        np.testing.assert_allclose(fuse_opt.compile(text)(*arguments), wanted, rtol=1e-4, atol=1e-5, err_msg=str(seen))


@needs_compiler
def test_a_value_that_is_not_finite_counts_though_its_weight_is_0() -> None:
    text = program_text((30, 16), (70, 16), 24, "is_causal = true")
    for value in (np.inf, np.nan):
        arguments = random_arguments(parse(text), 1)
        arguments[2][65, 3] = value
        with np.errstate(invalid="ignore"):
            wanted = evaluate(parse(text), arguments)[0]
        assert np.isnan(wanted[:, 3]).all()
        np.testing.assert_allclose(fuse_opt.compile(text)(*arguments), wanted, rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("keys", [256, 9000])
def test_rows_beside_one_that_is_gone_over_again(keys: int) -> None:
    """A row of NaN has weights in all columns; rows of its tile and of the next ones have none behind the mask."""
    text = program_text((200, 16), (keys, 16), 24, "is_causal = true")
    arguments = random_arguments(parse(text), 2)
    arguments[0][[5, 120]] = np.nan
    wanted = evaluate(parse(text), arguments)[0]
    np.testing.assert_allclose(fuse_opt.compile(text)(*arguments), wanted, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_keys_that_no_cache_holds_are_products_apart() -> None:
    text = program_text((8, 16), (70000, 16), 16)
    program = fuse_opt.compile(text)
    assert ATTENTION not in [kernel.schedule_kind() for kernel in kernels(program.module)]


def test_unfuse_takes_it_apart_and_the_reference_runs_it() -> None:
    text = heads("func.return %y : FF")
    arguments = random_arguments(parse(text), 2)
    module = apply(parse(text), DEFAULT_PIPELINE)
    assert [kernel.schedule_kind() for kernel in kernels(module)] == [ATTENTION]
    wanted = evaluate(parse(text), arguments)[0]
    np.testing.assert_allclose(evaluate(module, arguments)[0], wanted, rtol=1e-6)
    assert kernels(apply(module, ["unfuse"])) == []


def test_what_was_chosen_for_a_cpu_is_one_kernel_on_cuda() -> None:
    """Weights that are returned, too, are products of a library there, with the rows between them as a kernel."""
    lowered = str(apply(fuse_opt.optimize(heads("func.return %y : FF")), ["convert-fused-to-gpu"]))
    assert lowered.count('"gpu.func"') == 2, "one of vectors, and one for arrays that begin anywhere"
    assert lowered.count("gpu.launch_func") == 1 and "gpu.library_call" not in lowered
    text = fuse_opt.optimize(heads("func.return %y, %p : FF, PP", "FF, PP"))
    lowered = str(apply(text, ["convert-fused-to-gpu"]))
    assert lowered.count("graph.matmul") == 2 and "reference" not in lowered


@needs_compiler
@pytest.mark.parametrize("panels", ["queries", "keys", "values"])
def test_rows_of_several_heads_side_by_side_are_made_before(panels: str) -> None:
    """Found by a step of training: each row of what attention gave, as one of both heads, was read as if it were of one."""
    names = {key: f"%{key}" for key in ("queries", "keys", "values")}
    types = {key: f"tensor<{40 if panels == 'queries' != key else 12}x16xf32>" for key in names}
    given = ", ".join(f"{names[key]}: {types[key]}" for key in names if key != panels)
    operands = ", ".join({**names, panels: "%r"}.values())
    text = f"""func.func @main(%x: tensor<2x2x6x8xf32>, {given}) -> {types["queries"]} {{
  %p = graph.permute_dims %x {{axes = array<i64: 0, 2, 1, 3>}} : (tensor<2x2x6x8xf32>) -> tensor<2x6x2x8xf32>
  %r = graph.reshape %p {{shape = array<i64: 12, 16>}} : (tensor<2x6x2x8xf32>) -> tensor<12x16xf32>
  %y = graph.scaled_dot_product_attention {operands} : ({", ".join(types.values())}) -> {types["queries"]}
  func.return %y : {types["queries"]}
}}"""
    arguments = random_arguments(parse(text), 4)
    wanted = evaluate(parse(text), arguments)[0]
    np.testing.assert_allclose(fuse_opt.compile(text)(*arguments), wanted, rtol=1e-4, atol=1e-5)
