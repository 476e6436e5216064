"""In-place inference: what may be taken over, what is chosen, and that nothing reads what was overwritten."""

import random
from collections.abc import Iterable

import numpy as np
import pytest
from planned_programs import (
    ROW_OPS,
    WINDOW_OPS,
    WINDOW_SHAPES,
    apply,
    as_one_kernel,
    function_of,
    kernels_of,
    parse,
    random_arguments,
    random_program,
    run_adversary,
    run_pair,
)
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects.analysis.kernel_access import kernel_access
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.verify.memory_plan import verify_plan
from fuse_opt.lowering.reference.interpreter import evaluate_function
from fuse_opt.passes.fusion.fuse_elementwise import FuseElementwisePass
from fuse_opt.passes.fusion.fuse_injective import FuseInjectivePass
from fuse_opt.passes.fusion.fuse_row import FuseRowPass
from fuse_opt.passes.fusion.wrap_kernels import WrapKernelsPass
from fuse_opt.passes.memory.infer_inplace import InferInplacePass
from fuse_opt.passes.memory.plan_memory import PlanMemoryPass
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.passes.scheduling.bulk_launches import BulkLaunchesPass
from fuse_opt.passes.scheduling.schedule_kernels import ScheduleKernelsPass

T = "tensor<4x6xf32>"


def pairs(body: str, returned: str = "%r", type_: str = T, donated_only: bool = False) -> list[list[tuple[int, int]]]:
    """The pairs of each kernel of a function on %x (the caller's) and %d (donated)."""
    return [kernel.inplace_pairs() for kernel in kernels_of(inferred(body, returned, type_, donated_only))]


def inferred(body: str, returned: str = "%r", type_: str = T, donated_only: bool = False) -> ModuleOp:
    text = f"""func.func @main(%x: {T}, %d: {T} {{graph.donated}}) -> {type_} {{
      {body}
      func.return {returned} : {type_}
    }}"""
    return apply(parse(text), WrapKernelsPass(), InferInplacePass(donated_only=donated_only))


EXP = f"%a = graph.exp %x : ({T}) -> {T}\n"


def unary(name: str, result: str, operand: str, attributes: str = "") -> str:
    return f"{result} = graph.{name} {operand} {attributes}: ({T}) -> {T}\n"


def binary(name: str, result: str, lhs: str, rhs: str) -> str:
    return f"{result} = graph.{name} {lhs}, {rhs} : ({T}, {T}) -> {T}\n"


def test_last_reader_takes_over() -> None:
    assert pairs(EXP + unary("exp", "%r", "%a")) == [[], [(0, 0)]]


def test_the_same_value_twice_is_taken_over() -> None:
    assert pairs(EXP + binary("multiply", "%r", "%a", "%a")) == [[], [(0, 0)]]


def test_argument_is_taken_over_only_when_donated() -> None:
    assert pairs(unary("exp", "%r", "%x")) == [[]]
    assert pairs(unary("exp", "%r", "%d")) == [[(0, 0)]]


def test_donated_memory_comes_first_and_alone_when_asked() -> None:
    assert pairs(EXP + binary("add", "%r", "%a", "%d")) == [[], [(0, 1)]]
    body = EXP + unary("exp", "%b", "%a") + binary("add", "%c", "%b", "%d") + unary("exp", "%r", "%c")
    assert pairs(body, donated_only=True) == [[], [], [(0, 1)], [(0, 0)]]


def test_later_reader_forbids() -> None:
    assert pairs(EXP + unary("exp", "%b", "%a") + binary("add", "%r", "%a", "%b")) == [[], [], [(0, 0)]]


def test_reader_of_a_view_forbids() -> None:
    view = "%v = graph.reshape %a {shape = array<i64: 24>} : (tensor<4x6xf32>) -> tensor<24xf32>\n"
    after = view + unary("exp", "%b", "%a") + "%s = graph.sum %v : (tensor<24xf32>) -> tensor<f32>\n"
    assert pairs(EXP + after + "%r = graph.add %b, %s : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>")[1] == []


def test_returned_value_is_not_overwritten_but_may_take_over() -> None:
    assert pairs(EXP + unary("exp", "%b", "%a"), "%a") == [[], []]


def test_constant_is_not_overwritten() -> None:
    constant = "%c = graph.constant dense<[1.0, 2.0]> : tensor<2xf32>\n"
    exp = "%r = graph.exp %c : (tensor<2xf32>) -> tensor<2xf32>"
    assert pairs(constant + exp, type_="tensor<2xf32>") == [[]]


def test_transposed_and_broadcast_reads_forbid() -> None:
    square = "tensor<6x6xf32>"
    make = "%a = graph.matmul %t, %x : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>\n"
    turn = f"%r = graph.permute_dims %a {{axes = array<i64: 1, 0>}} : ({square}) -> {square}"
    first = "%t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<4x6xf32>) -> tensor<6x4xf32>\n"
    assert pairs(first + make + turn, type_=square) == [[], [], []]


def test_equal_bytes_of_another_width_are_not_the_same_elements() -> None:
    body = EXP + "%h = graph.astype %a {dtype = i32} : (tensor<4x6xf32>) -> tensor<4x6xi32>\n"
    assert pairs(body, "%h", "tensor<4x6xi32>") == [[], [(0, 0)]]
    body = EXP + "%h = graph.astype %a {dtype = f64} : (tensor<4x6xf32>) -> tensor<4x6xf64>\n"
    body += "%s = graph.reshape %h {shape = array<i64: 24>} : (tensor<4x6xf64>) -> tensor<24xf64>\n"
    body += "%r = graph.astype %s {dtype = i64} : (tensor<24xf64>) -> tensor<24xi64>"
    assert pairs(body, type_="tensor<24xi64>") == [[], [], [(0, 0)]]


def test_library_call_takes_over_nothing() -> None:
    square = "tensor<4x4xf32>"
    body = f"%a = graph.matmul %x, %t : ({T}, tensor<6x4xf32>) -> {square}\n"
    first = "%t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<4x6xf32>) -> tensor<6x4xf32>\n"
    last = f"%r = graph.matmul %a, %a : ({square}, {square}) -> {square}"
    assert pairs(first + body + last, type_=square) == [[], [], []]


def kernel_pairs(text: str) -> list[tuple[int, int]]:
    module = apply(parse(text), InferInplacePass())
    return kernels_of(module)[-1].inplace_pairs()


SOFTMAX = """
func.func @main(%x: tensor<4x6xf32> {{graph.donated}}) -> ({types}) {{
  %r:{count} = fused.kernel(%a = %x : tensor<4x6xf32>) -> ({types}) {{
    %m = graph.max %a {{axes = array<i64: 1>, keepdims = true}} : (tensor<4x6xf32>) -> tensor<4x1xf32>
    %s = graph.subtract %a, %m : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
    %n = graph.negative %a : (tensor<4x6xf32>) -> tensor<4x6xf32>
    fused.yield {yielded} : {types}
  }}
  func.return {returned} : {types}
}}
"""


def softmax(*yielded: str) -> str:
    types = ", ".join([T] * len(yielded))
    returned = ", ".join(f"%r#{number}" for number in range(len(yielded)))
    return SOFTMAX.format(types=types, count=len(yielded), yielded=", ".join(yielded), returned=returned)


def test_row_kernel_overwrites_what_no_later_stage_reads() -> None:
    assert kernel_pairs(softmax("%s").replace("%r:1", "%r").replace("%r#0", "%r")) == [(0, 0)]
    assert kernel_pairs(softmax("%s", "%n")) == [(0, 0)]
    assert kernel_pairs(softmax("%n", "%s")) == [(1, 0)]


ROW_STORE = """
func.func @main(%x: tensor<4x6xf32>, %b: tensor<4x1xf32> {{graph.donated}}) -> ({types}) {{
  {results} = fused.kernel(%a = %x : tensor<4x6xf32>, %c = %b : tensor<4x1xf32>) -> ({types}) {{
    %s = graph.sum %a {{axes = array<i64: 1>, keepdims = true}} : (tensor<4x6xf32>) -> tensor<4x1xf32>
    %t = graph.add %s, %c : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>
    %u = graph.multiply %a, %c : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
    %v = graph.multiply %u, %s : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
    fused.yield {yielded} : {types}
  }}
  func.return {returned} : {types}
}}
"""


@pytest.mark.parametrize(("other", "expected"), [("", [(0, 1)]), ("%v", []), ("%u", [(0, 1)])])
def test_row_result_waits_for_the_elements_of_its_row(other: str, expected: list[tuple[int, int]]) -> None:
    row = "tensor<4x1xf32>"
    if other:
        names = {"results": "%r:2", "returned": "%r#0, %r#1", "types": f"{row}, {T}", "yielded": f"%t, {other}"}
    else:
        names = {"results": "%r", "returned": "%r", "types": row, "yielded": "%t"}
    assert kernel_pairs(ROW_STORE.format(**names)) == expected


def test_another_loop_of_the_same_stage_forbids() -> None:
    """%v doubles %c while a loop over rows of %a may still read it; the sum of that loop comes later."""
    row = "tensor<4x1xf32>"
    text = f"""
    func.func @main(%x: {T}, %y: {row} {{graph.donated}}) -> ({row}, {row}) {{
      %r:2 = fused.kernel(%a = %x : {T}, %c = %y : {row}) -> ({row}, {row}) {{
        %s = graph.add %a, %c : ({T}, {row}) -> {T}
        %v = graph.add %c, %c : ({row}, {row}) -> {row}
        %u = graph.max %c {{axes = array<i64: 1>, keepdims = true}} : ({row}) -> {row}
        %m = graph.max %s {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> {row}
        fused.yield %m, %v : {row}, {row}
      }}
      func.return %r#0, %r#1 : {row}, {row}
    }}"""
    (kernel,) = kernels_of(parse(text))
    assert kernel_access(kernel).replaceable == (frozenset({1}), frozenset())


def test_results_share_out_the_operands() -> None:
    """Result 0 could have either operand, result 1 only the first: both get one."""
    text = f"""
    func.func @main(%x: {T} {{graph.donated}}, %y: {T} {{graph.donated}}) -> ({T}, {T}) {{
      %r:2 = fused.kernel(%a = %x : {T}, %b = %y : {T}) -> ({T}, {T}) {{
        %m = graph.max %a {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> tensor<4x1xf32>
        %q = graph.add %a, %m : ({T}, tensor<4x1xf32>) -> {T}
        %f = graph.multiply %q, %b : ({T}, {T}) -> {T}
        %n = graph.max %f {{axes = array<i64: 1>, keepdims = true}} : ({T}) -> tensor<4x1xf32>
        %p = graph.add %b, %n : ({T}, tensor<4x1xf32>) -> {T}
        fused.yield %p, %q : {T}, {T}
      }}
      func.return %r#0, %r#1 : {T}, {T}
    }}
    """
    assert kernel_pairs(text) == [(0, 1), (1, 0)]


def test_two_results_never_share_one_operand() -> None:
    text = f"""
    func.func @main(%x: {T} {{graph.donated}}) -> ({T}, {T}) {{
      %v = graph.reshape %x {{shape = array<i64: 24>}} : ({T}) -> tensor<24xf32>
      %r:2 = fused.kernel(%a = %x : {T}, %b = %v : tensor<24xf32>) -> ({T}, {T}) {{
        %c = graph.reshape %b {{shape = array<i64: 4, 6>}} : (tensor<24xf32>) -> {T}
        %p = graph.exp %a : ({T}) -> {T}
        %q = graph.sin %c : ({T}) -> {T}
        fused.yield %p, %q : {T}, {T}
      }}
      func.return %r#0, %r#1 : {T}, {T}
    }}"""
    assert kernel_pairs(text) == [(0, 0)]


def test_no_inplace_is_kept() -> None:
    assert pairs(EXP + unary("exp", "%r", "%a", "{no_inplace} ")) == [[], []]


def test_keep_live_is_kept() -> None:
    assert pairs(unary("exp", "%a", "%x", "{keep_live} ") + unary("exp", "%r", "%a")) == [[], []]


def test_must_inplace_is_kept_or_an_error_that_names_the_conflict() -> None:
    must = "{must_inplace} "
    assert pairs(EXP + unary("exp", "%r", "%a", must)) == [[], [(0, 0)]]
    assert pairs(EXP + unary("exp", "%r", "%a", must), donated_only=True) == [[], [(0, 0)]]
    with pytest.raises(RefusedError, match="%x is the caller's") as caught:
        inferred(unary("exp", "%r", "%x", must))
    assert caught.value.op.name == "graph.exp"
    with pytest.raises(RefusedError, match="no_inplace forbids"):
        inferred(EXP + unary("exp", "%r", "%a", "{must_inplace, no_inplace} "))
    with pytest.raises(RefusedError, match="%a is read later, by 'fused.kernel'"):
        inferred(EXP + unary("exp", "%b", "%a", must) + binary("add", "%r", "%a", "%b"))


def test_must_inplace_outside_of_kernels_is_an_error() -> None:
    text = f"func.func @main(%x: {T}) -> {T} {{\n{unary('exp', '%r', '%x', '{must_inplace} ')}func.return %r : {T}\n}}"
    with pytest.raises(RefusedError, match="run wrap-kernels"):
        apply(parse(text), InferInplacePass())


def test_pairs_are_inferred_anew() -> None:
    module = inferred(EXP + unary("exp", "%b", "%a") + unary("exp", "%r", "%b"))
    text = str(module)
    assert str(apply(module, InferInplacePass())) == text
    first, second, last = kernels_of(module)
    function_of(module).body.block.last_op.operands = [first.results[0]]  # pyright: ignore
    apply(module, InferInplacePass())
    assert (second.inplace, last.inplace_pairs()) == (None, [(0, 0)])


def test_decisions_and_refusals_are_remarks() -> None:
    with collect() as remarks:
        inferred(EXP + unary("exp", "%r", "%a"))
    assert [(r.code, dict(r.numbers).get("operand")) for r in remarks if r.pass_name == "infer-inplace"] == [
        ("caller-owned", 0),
        ("inplace", 0),
    ]


FUSIONS = (FuseInjectivePass(), FuseElementwisePass(), FuseRowPass())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(40))
def test_planned_programs_compute_the_same_in_real_memory(seed: int) -> None:
    rng = random.Random(seed)
    module = parse(random_program(rng, rng.randrange(1, 25)))
    function = function_of(module)
    arguments = random_arguments(function, rng)
    expected = evaluate_function(function, arguments)
    apply(module, *rng.sample(FUSIONS, rng.randrange(4)), WrapKernelsPass(), InferInplacePass(), PlanMemoryPass())
    apply(module, ScheduleKernelsPass(), BulkLaunchesPass())
    if not kernels_of(module):
        return
    verify_plan(function, complete=True, exact=True)
    text = str(module)
    apply(module, InferInplacePass(), PlanMemoryPass(), ScheduleKernelsPass(), BulkLaunchesPass())
    assert str(module) == text
    assert_equal(run_adversary(function, arguments, rng), expected)


def try_every_pair(programs: Iterable[tuple[str, random.Random]]) -> None:
    """Every pair that the access maps allow, run by an adversary; and that a rule by addresses alone would not do."""
    tried = 0
    for text, rng in programs:
        module = parse(text)
        arguments = random_arguments(function_of(module), rng)
        expected = evaluate_function(function_of(module), arguments)
        kernel = as_one_kernel(module)
        for result, operands in enumerate(kernel_access(kernel).replaceable):
            for operand in sorted(operands):
                tried += 1
                assert_equal(run_pair(kernel, (result, operand), arguments, rng), expected)
    assert tried > 20


@pytest.mark.sampled(3)
@pytest.mark.parametrize("block", range(8))
def test_no_pair_lets_a_kernel_read_what_it_overwrote(block: int) -> None:
    seeds = map(random.Random, range(block * 50, (block + 1) * 50))
    try_every_pair((random_program(rng, rng.randrange(2, 9), ROW_OPS), rng) for rng in seeds)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("block", range(4))
def test_no_pair_lets_a_window_read_what_it_overwrote(block: int) -> None:
    seeds = (random.Random(f"windows {seed}") for seed in range(block * 100, (block + 1) * 100))
    try_every_pair((random_program(rng, rng.randrange(2, 8), WINDOW_OPS, WINDOW_SHAPES), rng) for rng in seeds)


W = "tensor<8xi32>"


def window_kernel(*lines: str, yielded: str, type_: str = W) -> KernelOp:
    """The kernel of some lines on the donated %a and %b, of 8 elements."""
    body = "\n".join(lines)
    text = f"""
    func.func @main(%x: {W} {{graph.donated}}, %y: {W} {{graph.donated}}) -> {type_} {{
      %r = fused.kernel(%a = %x : {W}, %b = %y : {W}) -> ({type_}) {{
        {body}
        fused.yield {yielded} : {type_}
      }}
      func.return %r : {type_}
    }}"""
    (kernel,) = kernels_of(parse(text))
    return kernel


def test_windows_forbid_the_operand_that_others_read_too() -> None:
    """Of one size, at the same addresses even: the first element of a window is the last of another."""
    pad = f"%p = graph.concat %a, %a : ({W}, {W}) -> tensor<16xi32>"
    head = "%h = graph.slice %p {starts = array<i64: 0>, stops = array<i64: 9>} : (tensor<16xi32>) -> tensor<9xi32>"
    window = f"%w = graph.window_max %h {{window = array<i64: 2>}} : (tensor<9xi32>) -> {W}"
    both = f"%s = graph.add %w, %b : ({W}, {W}) -> {W}"
    kernel = window_kernel(pad, head, window, both, yielded="%s")
    assert kernel_access(kernel).scheme == "row"
    assert kernel_access(kernel).replaceable == (frozenset({1}),)


def test_windows_side_by_side_are_rows_and_overlapping_ones_are_not() -> None:
    double = f"%d = graph.add %a, %b : ({W}, {W}) -> {W}"
    apart = f"%w = graph.window_sum %d {{window = array<i64: 2>, strides = array<i64: 2>}} : ({W}) -> tensor<4xi32>"
    wide = "%u = graph.repeat %w {repeats = 2 : i64, axis = 0 : i64} : (tensor<4xi32>) -> tensor<8xi32>"
    result = f"%r = graph.subtract %d, %u : ({W}, {W}) -> {W}"
    kernel = window_kernel(double, apart, wide, result, yielded="%r")
    assert kernel_access(kernel).replaceable == (frozenset({0, 1}),)
    over = f"%w = graph.window_sum %d {{window = array<i64: 2>}} : ({W}) -> tensor<7xi32>"
    total = "%t = graph.slice %w {starts = array<i64: 0>, stops = array<i64: 1>} : (tensor<7xi32>) -> tensor<1xi32>"
    kernel = window_kernel(
        double, over, total, f"%r = graph.subtract %d, %t : ({W}, tensor<1xi32>) -> {W}", yielded="%r"
    )
    access = kernel_access(kernel)
    assert (access.scheme, access.code, access.replaceable) == (None, "overlapping-rows", ())


def test_the_adversary_finds_forbidden_pairs() -> None:
    text = softmax("%s", "%n").replace("f32", "i32")
    (kernel,) = kernels_of(module := parse(text))
    rng = random.Random(0)
    arguments = random_arguments(function_of(module), rng)
    expected = evaluate_function(function_of(module), arguments)
    assert kernel_access(kernel).replaceable == (frozenset({0}), frozenset())
    assert_equal(run_pair(kernel, (0, 0), arguments, rng), expected)
    with pytest.raises(AssertionError):
        assert_equal(run_pair(kernel, (1, 0), arguments, rng), expected)


def assert_equal(found: Iterable[object], expected: Iterable[object]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)  # pyright: ignore
