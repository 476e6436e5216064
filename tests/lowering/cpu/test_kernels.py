"""Generated loops against the reference: every record at every type, and every kind of kernel."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from ir_testing import apply, evaluate, parse, text_of
from lowered_programs import KernelList, check, needs_compiler, softmax_program

import fuse_opt
from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.graph.reductions.reductions import Reduction
from fuse_opt.dialects.interfaces.properties import bool_value, int_array
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.dtypes import DTYPES, F32, I32
from fuse_opt.lowering.emit import emit_c

RECORDS = [op for op in GRAPH.operations if issubclass(op, StructuredOp)]


@needs_compiler
def test_broadcasting():
    kernels = KernelList()
    add = next(op for op in RECORDS if op.name == "graph.add")
    for shapes in (
        [(3, 1), (1, 5)],
        [(), (4, 5)],
        [(5,), (2, 3, 5)],
        [(2, 1, 5), (3, 1)],
        [(1,), (1, 1)],
        [(2, 3, 1, 7), (1, 4, 7)],
        [(65, 1), (65, 33)],
        [(0, 3), (1, 3)],
        [(), ()],
    ):
        for element in (F32, I32):
            assert kernels.add(add, [(element, shape) for shape in shapes])
    kernels.check(specials=False)


@needs_compiler
def test_reductions_over_any_axes():
    kernels = KernelList()
    reductions = {op.name.partition(".")[2]: op for op in RECORDS if issubclass(op, Reduction)}
    types = {name: [e for e in DTYPES if e.bits != 16] for name in reductions}
    for (name, op), shape in itertools.product(reductions.items(), [(2, 3, 5), (1, 3, 1)]):
        subsets = [axes for count in range(4) for axes in itertools.combinations(range(3), count)]
        for number, axes in enumerate(subsets):
            for element in types[name] if axes == (2,) else types[name][number % 12 :: 12]:
                kernels.add(op, [(element, shape)], axes=int_array(axes), keepdims=bool_value(number % 2 == 0))
    sums = reductions["sum"]
    for shape, axes in (((0, 3), (0,)), ((0, 3), (1,)), ((3, 0), (1,)), ((), ()), ((100, 333), (1,)), ((70, 3), (0,))):
        assert kernels.add(sums, [(F32, shape)], axes=int_array(axes))
    kernels.check(specials=False)


@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize(
    ("shape", "kept", "axis"),
    [
        ("8x33xf32", "8x1xf32", "1"),
        ("300x130xf64", "300x1xf64", "1"),
        ("5x7x9xf32", "1x7x9xf32", "0"),
        ("5x7x9xf32", "5x1x9xf32", "1"),
        ("5x7x9xf32", "5x1x1xf32", "1, 2"),
        ("5x7x9xf32", "1x7x1xf32", "0, 2"),
        ("3x1xf32", "3x1xf32", "1"),
        ("1x70000xf32", "1x1xf32", "1"),
        ("6x40xf16", "6x1xf16", "1"),
    ],
)
def test_softmax(shape: str, kept: str, axis: str):
    check(softmax_program(shape, kept, axis))


LAYER_NORM = """func.func @main(%x: tensor<40x65xf32>, %g: tensor<65xf32>)
    -> (tensor<40x65xf32>, tensor<40x1xf32>, tensor<40xf32>, tensor<40x65xi1>) {
  %y, %mean, %rstd, %p = fused.kernel(%a = %x : tensor<40x65xf32>, %w = %g : tensor<65xf32>)
      -> (tensor<40x65xf32>, tensor<40x1xf32>, tensor<40xf32>, tensor<40x65xi1>) {
    %n = graph.constant dense<0.015384615> : tensor<f32>
    %e = graph.constant dense<1.0e-5> : tensor<f32>
    %s = graph.sum %a {axes = array<i64: 1>, keepdims = true} : (tensor<40x65xf32>) -> tensor<40x1xf32>
    %m = graph.multiply %s, %n : (tensor<40x1xf32>, tensor<f32>) -> tensor<40x1xf32>
    %c = graph.subtract %a, %m : (tensor<40x65xf32>, tensor<40x1xf32>) -> tensor<40x65xf32>
    %q = graph.square %c : (tensor<40x65xf32>) -> tensor<40x65xf32>
    %v = graph.sum %q {axes = array<i64: 1>} : (tensor<40x65xf32>) -> tensor<40xf32>
    %v1 = graph.multiply %v, %n : (tensor<40xf32>, tensor<f32>) -> tensor<40xf32>
    %v2 = graph.add %v1, %e : (tensor<40xf32>, tensor<f32>) -> tensor<40xf32>
    %r = graph.rsqrt %v2 : (tensor<40xf32>) -> tensor<40xf32>
    %r2 = graph.reshape %r {shape = array<i64: 40, 1>} : (tensor<40xf32>) -> tensor<40x1xf32>
    %z = graph.multiply %c, %r2 : (tensor<40x65xf32>, tensor<40x1xf32>) -> tensor<40x65xf32>
    %o = graph.multiply %z, %w : (tensor<40x65xf32>, tensor<65xf32>) -> tensor<40x65xf32>
    %b = graph.greater %a, %m : (tensor<40x65xf32>, tensor<40x1xf32>) -> tensor<40x65xi1>
    fused.yield %o, %m, %r, %b : tensor<40x65xf32>, tensor<40x1xf32>, tensor<40xf32>, tensor<40x65xi1>
  }
  func.return %y, %mean, %rstd, %p : tensor<40x65xf32>, tensor<40x1xf32>, tensor<40xf32>, tensor<40x65xi1>
}"""


@needs_compiler
def test_row_kernel_with_results_of_rows_and_elements():
    program = check(LAYER_NORM)
    assert program.stats.kernels == 1


def test_independent_reductions_share_a_loop_and_costly_elements_are_kept():
    text = """func.func @main(%x: tensor<8x32xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
      %p, %q, %r = fused.kernel(%a = %x : tensor<8x32xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
        %e = graph.exp %a : (tensor<8x32xf32>) -> tensor<8x32xf32>
        %s = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<8x32xf32>) -> tensor<8x1xf32>
        %m = graph.max %a {axes = array<i64: 1>} : (tensor<8x32xf32>) -> tensor<8xf32>
        %d = graph.divide %e, %s : (tensor<8x32xf32>, tensor<8x1xf32>) -> tensor<8x32xf32>
        %n = graph.min %d {axes = array<i64: 1>} : (tensor<8x32xf32>) -> tensor<8xf32>
        %t = graph.reshape %s {shape = array<i64: 8>} : (tensor<8x1xf32>) -> tensor<8xf32>
        fused.yield %t, %m, %n : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
      }
      func.return %p, %q, %r : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
    }"""
    source = emit_c(parse(text))
    body = source[source.index("static void kernel_") :]
    assert body.count("for (long column") == 2
    assert body.count("fo_exp_f32") == 1
    assert "e_row[32]" in body


RESIDUAL = """func.func @main(%x: tensor<6x160xf32>, %y: tensor<6x160xf32>) -> (tensor<6x160xf32>, tensor<6x160xf32>) {
  %p, %q = fused.kernel(%a = %x : tensor<6x160xf32>, %b = %y : tensor<6x160xf32>)
      -> (tensor<6x160xf32>, tensor<6x160xf32>) attributes {KERNEL} {
    %t = graph.add %a, %b : (tensor<6x160xf32>, tensor<6x160xf32>) -> tensor<6x160xf32>
    %m = graph.max %t {axes = array<i64: 1>, keepdims = true} : (tensor<6x160xf32>) -> tensor<6x1xf32>
    %s = graph.subtract %t, %m : (tensor<6x160xf32>, tensor<6x1xf32>) -> tensor<6x160xf32>
    fused.yield %t, %s : tensor<6x160xf32>, tensor<6x160xf32>
  }
  func.return %p, %q : tensor<6x160xf32>, tensor<6x160xf32>
}"""


@needs_compiler
@pytest.mark.parametrize(("attributes", "kept"), [("", 0), ("inplace = array<i64: 1, 0>", 1)])
def test_a_kept_row_is_that_of_the_result(attributes: str, kept: int):
    """Unless storing it early would change what is read later."""
    text = RESIDUAL.replace("attributes {KERNEL}", f"attributes {{{attributes}}}" if attributes else "")
    if attributes:
        text = text.replace("%x: tensor<6x160xf32>", "%x: tensor<6x160xf32> {graph.donated}")
    source = emit_c(parse(text))
    assert source.count("_row[160]") == kept, source
    check(text)


@needs_compiler
@pytest.mark.parametrize(("columns", "early"), [(163, True), (119, False), (160, True)])
def test_a_row_that_is_not_read_back_from_a_result_is_stored_to_it_early(columns: int, early: bool) -> None:
    """Not where registers have the row."""
    text = RESIDUAL.replace("160", str(columns)).replace("attributes {KERNEL}", "")
    source = emit_c(parse(text))
    stores = [bool(re.search(r"^ +p\[.*\] = ", part, re.MULTILINE)) for part in source.split("float m = ")]
    assert stores == [early, not early]
    check(text)


@needs_compiler
@pytest.mark.parametrize(("columns", "donated", "kept"), [(261, False, 0), (245, False, 1), (261, True, 1)])
def test_long_rows_are_kept_in_the_result(columns: int, donated: bool, kept: int) -> None:
    """Not where its memory is the operand's, which later loops read."""
    text = softmax_program(f"5x{columns}xf32", "5x1xf32", "1", donated=donated)
    assert len(re.findall(r"float \w+_row\[", emit_c(parse(text)))) == kept
    check(text)


@needs_compiler
def test_long_rows_of_cheap_scalars_are_kept_in_memory_of_their_own() -> None:
    """A sum waits for its operands: fetching a row of the result beside them would take longer than it does."""
    wide, one = "tensor<5x771xf32>", "tensor<5x1xf32>"
    text = f"""func.func @main(%x: {wide}, %y: {wide}) -> {wide} {{
      %r = fused.kernel(%a = %x : {wide}, %b = %y : {wide}) -> ({wide}) {{
        %s = graph.add %a, %b : ({wide}, {wide}) -> {wide}
        %n = graph.sum %s {{axes = array<i64: 1>, keepdims = true}} : ({wide}) -> {one}
        %d = graph.divide %s, %n : ({wide}, {one}) -> {wide}
        fused.yield %d : {wide}
      }}
      func.return %r : {wide}
    }}"""
    assert len(re.findall(r"float \w+_row\[", emit_c(parse(text)))) == 1
    check(text)


@pytest.mark.sampled(3)
@needs_compiler
@pytest.mark.parametrize(
    ("rows", "columns", "donated", "asks"),
    [(701, 771, False, 1), (5, 771, False, 0), (4001, 129, False, 0), (101, 5801, False, 0), (701, 771, True, 1)],
)
def test_a_loop_that_computes_asks_for_the_next_row_of_the_result(
    rows: int, columns: int, donated: bool, asks: int
) -> None:
    """Rows of 1 to 20 KiB of kernels that move 2 MiB; none of the operand, which caches hold."""
    text = softmax_program(f"{rows}x{columns}xf32", f"{rows}x1xf32", "1", donated=donated)
    assert len(re.findall(r"^ +fo_prefetch_next_f32\(", emit_c(parse(text)), re.MULTILINE)) == asks
    check(text)


@pytest.mark.parametrize(("rows", "stores", "asks"), [(9001, "", 1), (12001, "", 2), (12001, "nontemporal", 1)])
def test_a_loop_asks_for_the_next_row_of_what_no_cache_holds(rows: int, stores: str, asks: int) -> None:
    """Results that go past the caches are not asked for."""
    text = softmax_program(f"{rows}x771xf32", f"{rows}x1xf32", "1")
    if stores:
        schedule = f'attributes {{schedule = {{kind = "row", stores = "{stores}"}}}}'
        text = text.replace(f"-> (tensor<{rows}x771xf32>)", f"-> (tensor<{rows}x771xf32>) {schedule}", 1)
    assert len(re.findall(r"^ +fo_prefetch_next_f32\(", emit_c(parse(text)), re.MULTILINE)) == asks


@pytest.mark.parametrize(("word", "near", "usual"), [("usual", 0, 2), ("asked", 2, 0), ("left", 0, 0)])
def test_an_entry_says_whether_the_next_row_is_asked_for(word: str, near: int, usual: int) -> None:
    """Where it does not, C compilers for AMD's processors find nothing to do: these are slower with it."""
    schedule = f'attributes {{schedule = {{kind = "row", next_row = "{word}"}}}}'
    text = softmax_program("12001x771xf32", "12001x1xf32", "1")
    source = emit_c(parse(text.replace("-> (tensor<12001x771xf32>)", f"-> (tensor<12001x771xf32>) {schedule}", 1)))
    found = [len(re.findall(rf"^ +fo_prefetch_{each}_f32\(", source, re.MULTILINE)) for each in ("near", "next")]
    assert found == [near, usual]


@needs_compiler
@pytest.mark.parametrize("size", [1, 63, 64, 65, 100003])
def test_sizes_of_pointwise_kernels(size: int):
    text = f"""func.func @main(%x: tensor<{size}xf32>, %y: tensor<{size}xf32>) -> tensor<{size}xf32> {{
      %r = fused.kernel(%a = %x : tensor<{size}xf32>, %b = %y : tensor<{size}xf32>) -> (tensor<{size}xf32>) {{
        %s = graph.multiply %a, %b : (tensor<{size}xf32>, tensor<{size}xf32>) -> tensor<{size}xf32>
        %t = graph.tanh %s : (tensor<{size}xf32>) -> tensor<{size}xf32>
        fused.yield %t : tensor<{size}xf32>
      }}
      func.return %r : tensor<{size}xf32>
    }}"""
    check(text)


VIEWS = """func.func @main(%x: tensor<4x6x10xf32>, %y: tensor<10x24xf32>, %z: tensor<0x24xf32>) -> (
    tensor<24x10xf32>, tensor<13x24xf32>, tensor<4x10x6xf32>, tensor<240xf32>) {
  %p = fused.kernel(%a = %x : tensor<4x6x10xf32>, %b = %y : tensor<10x24xf32>) -> (tensor<24x10xf32>) {
    %f = graph.reshape %a {shape = array<i64: 24, 10>} : (tensor<4x6x10xf32>) -> tensor<24x10xf32>
    %t = graph.permute_dims %b {axes = array<i64: 1, 0>} : (tensor<10x24xf32>) -> tensor<24x10xf32>
    %r = graph.slice %t {starts = array<i64: -1, 0>, stops = array<i64: -25, 10>, steps = array<i64: -1, 1>}
      : (tensor<24x10xf32>) -> tensor<24x10xf32>
    %s = graph.add %f, %r : (tensor<24x10xf32>, tensor<24x10xf32>) -> tensor<24x10xf32>
    fused.yield %s : tensor<24x10xf32>
  }
  %q = fused.kernel(%b = %y : tensor<10x24xf32>, %c = %z : tensor<0x24xf32>) -> (tensor<13x24xf32>) {
    %h = graph.slice %b {starts = array<i64: 0, 0>, stops = array<i64: 9, 24>, steps = array<i64: 3, 1>}
      : (tensor<10x24xf32>) -> tensor<3x24xf32>
    %n = graph.exp %h : (tensor<3x24xf32>) -> tensor<3x24xf32>
    %k = graph.concat %n, %c, %b {axis = 0 : i64}
      : (tensor<3x24xf32>, tensor<0x24xf32>, tensor<10x24xf32>) -> tensor<13x24xf32>
    %o = graph.negative %k : (tensor<13x24xf32>) -> tensor<13x24xf32>
    fused.yield %o : tensor<13x24xf32>
  }
  %u = fused.kernel(%a = %x : tensor<4x6x10xf32>) -> (tensor<4x10x6xf32>) {
    %t = graph.permute_dims %a {axes = array<i64: 0, 2, 1>} : (tensor<4x6x10xf32>) -> tensor<4x10x6xf32>
    %e = graph.erf %t : (tensor<4x10x6xf32>) -> tensor<4x10x6xf32>
    fused.yield %e : tensor<4x10x6xf32>
  }
  %v = fused.kernel(%a = %x : tensor<4x6x10xf32>) -> (tensor<240xf32>) {
    %t = graph.permute_dims %a {axes = array<i64: 2, 0, 1>} : (tensor<4x6x10xf32>) -> tensor<10x4x6xf32>
    %f = graph.reshape %t {shape = array<i64: 240>} : (tensor<10x4x6xf32>) -> tensor<240xf32>
    %e = graph.sin %f : (tensor<240xf32>) -> tensor<240xf32>
    fused.yield %e : tensor<240xf32>
  }
  func.return %p, %q, %u, %v : tensor<24x10xf32>, tensor<13x24xf32>, tensor<4x10x6xf32>, tensor<240xf32>
}"""


@needs_compiler
def test_chains_of_views():
    check(VIEWS)


def test_addresses_of_a_split_and_merged_head_have_no_division():
    """Attention's last step: heads back into one axis, which a linear loop could only do by dividing."""
    text = """func.func @main(%x: tensor<2x8x16x64xf32>) -> tensor<2x16x512xf32> {
      %r = fused.kernel(%a = %x : tensor<2x8x16x64xf32>) -> (tensor<2x16x512xf32>) {
        %t = graph.permute_dims %a {axes = array<i64: 0, 2, 1, 3>} : (tensor<2x8x16x64xf32>) -> tensor<2x16x8x64xf32>
        %f = graph.reshape %t {shape = array<i64: 2, 16, 512>} : (tensor<2x16x8x64xf32>) -> tensor<2x16x512xf32>
        %e = graph.exp %f : (tensor<2x16x512xf32>) -> tensor<2x16x512xf32>
        fused.yield %e : tensor<2x16x512xf32>
      }
      func.return %r : tensor<2x16x512xf32>
    }"""
    source = emit_c(parse(text))
    inner = source[source.index("for (long i") :]
    assert "/" not in inner[: inner.index("}")] and "%" not in inner[: inner.index("}")]


@needs_compiler
def test_choices_of_a_few_neighbours():
    """gcc 12 gives wrong ones where it moves their loads into branches."""
    lines: list[str] = []
    kinds: list[str] = []
    results: list[tuple[str, str]] = []
    for number, (width, kind) in enumerate(itertools.product((3, 5, 6, 7), ("f16", "f32", "f64"))):
        rows, row = f"tensor<8x{width}x{kind}>", f"tensor<{width}x{kind}>"
        kinds += [f"%x{number}: {rows}", f"%y{number}: {row}"]
        scatter = f"graph.select_scatter %x{number}, %y{number} {{index = 1 : i64}}"
        lines.append(f"  %r{number} = {scatter} : ({rows}, {row}) -> {rows}\n")
        results.append((f"%r{number}", rows))
    given, types = (", ".join(part) for part in zip(*results, strict=True))
    text = f"func.func @main({', '.join(kinds)}) -> ({types}) {{\n{''.join(lines)}  func.return {given} : {types}\n}}"
    check(text_of(apply(parse(text), ["decompose", "wrap-kernels"])))


@needs_compiler
def test_sums_of_negative_zeros_are_positive():
    """By the reference and compiled: of elements that are written out, of rows, of columns, and of totals so far."""
    text = """
        func.func @main(%x: tensor<3x40xf32>) -> (tensor<40xf32>, tensor<3xf32>, tensor<f32>, tensor<3x40xf32>) {
          %0 = graph.sum %x {axes = array<i64: 0>} : (tensor<3x40xf32>) -> tensor<40xf32>
          %1 = graph.sum %x {axes = array<i64: 1>} : (tensor<3x40xf32>) -> tensor<3xf32>
          %2 = graph.mean %x : (tensor<3x40xf32>) -> tensor<f32>
          %3 = graph.cumulative_sum %x {axis = 1 : i64} : (tensor<3x40xf32>) -> tensor<3x40xf32>
          func.return %0, %1, %2, %3 : tensor<40xf32>, tensor<3xf32>, tensor<f32>, tensor<3x40xf32>
        }"""
    zeros = np.full((3, 40), -0.0, np.float32)
    for found in (evaluate(parse(text), [zeros]), fuse_opt.compile(text)(zeros)):
        for values in found:
            assert not np.signbit(values).any() and not np.any(values)
