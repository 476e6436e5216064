"""What fusion must do and must not, by name: counts and contents of kernels on programs of a few ops, and on the examples."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from ir_testing import (
    Array,
    apply,
    assert_same_bits,
    evaluate,
    generated_kernels,
    graph_ops,
    kernels,
    op_names,
    optimized,
    parse,
    random_arguments,
    text_of,
)
from program_generator import random_program
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp, NegativeOp
from fuse_opt.dialects.graph.elementwise.math import TanhOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.passes.fusion.engine.group_graph import Group, GroupGraph, Refusal
from fuse_opt.passes.fusion.fuse_elementwise import ElementwiseRule
from fuse_opt.passes.remarks import RefusedError, collect
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

FUSE = ("fuse-injective", "fuse-elementwise", "fuse-row", "fuse-elementwise", "fuse-injective")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def program(signature: str, *lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"func.func @main{signature} {{\n{body}\n}}"


def contents(module: ModuleOp) -> list[list[str]]:
    """The names of the ops of each kernel, without constants."""
    return [[name for name in op_names(kernel.ops()) if name != "constant"] for kernel in kernels(module)]


def check_values(text: str, module: ModuleOp, seed: int = 0) -> None:
    original = parse(text)
    arguments = random_arguments(original, seed)
    assert_same_bits(evaluate(module, arguments), evaluate(original, arguments))


def chain(op: str, count: int, type_: str, first: str = "%x") -> list[str]:
    names = [first, *(f"%{number}" for number in range(count))]
    return [f"{new} = graph.{op} {old} : ({type_}) -> {type_}" for old, new in pairwise(names)]


TWO_GROUPS = program(
    "(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)",
    "%a0 = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%xa = graph.matmul %a0, %a0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%b0 = graph.tanh %xa : (tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%b1 = graph.negative %x : (tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%xb = graph.matmul %b1, %b1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%b = graph.add %b0, %b1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%a1 = graph.abs %xb : (tensor<4x4xf32>) -> tensor<4x4xf32>",
    "%a = graph.multiply %a0, %a1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
    "func.return %a, %b : tensor<4x4xf32>, tensor<4x4xf32>",
)


def test_two_groups_that_are_convex_alone_make_no_cycle_together() -> None:
    """a0 -> xa -> b0 and b1 -> xb -> a1: {a0, a, a1} and {b0, b, b1} would each wait for the other."""
    module = optimized(TWO_GROUPS, "fuse-elementwise")
    found = contents(module)
    assert not ({"exp", "multiply"} <= set(max(found, key=len)) and ["tanh", "negative", "add"] in found)
    assert (
        sum("exp" in names and "multiply" in names for names in found)
        + sum("negative" in names and "add" in names for names in found)
        <= 1
    )
    check_values(TWO_GROUPS, module)


def test_a_path_through_an_opaque_op_keeps_its_ends_apart() -> None:
    text = program(
        "(%x: tensor<4x4xf32>) -> tensor<4x4xf32>",
        "%0 = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>",
        "%1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
        "%2 = graph.add %0, %1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
        "func.return %2 : tensor<4x4xf32>",
    )
    with collect() as remarks:
        module = optimized(text, "fuse-elementwise")
    assert contents(module) == []
    assert [remark.code for remark in remarks] == ["cycle"]


def test_opaque_diamond_is_one_epilogue() -> None:
    """out = a * relu(1 - exp(y)) + relu(y) over y = matmul: one kernel behind the matmul."""
    t = "tensor<4x4xf32>"
    text = program(
        f"(%x: {t}, %a: tensor<f32>) -> {t}",
        f"%y = graph.matmul %x, %x : ({t}, {t}) -> {t}",
        f"%e = graph.exp %y : ({t}) -> {t}",
        "%one = graph.constant dense<1.0> : tensor<f32>",
        f"%s = graph.subtract %one, %e : (tensor<f32>, {t}) -> {t}",
        f"%r = graph.relu %s : ({t}) -> {t}",
        f"%p = graph.multiply %a, %r : (tensor<f32>, {t}) -> {t}",
        f"%q = graph.relu %y : ({t}) -> {t}",
        f"%out = graph.add %p, %q : ({t}, {t}) -> {t}",
        f"func.return %out : {t}",
    )
    module = optimized(text, "fuse-elementwise")
    assert contents(module) == [["exp", "subtract", "relu", "multiply", "relu", "add"]]
    assert [len(kernel.results) for kernel in kernels(module)] == [1]
    check_values(text, module)


@pytest.mark.parametrize(
    ("limits", "index"),
    [
        ("starts = array<i64: -3>, stops = array<i64: -1>", np.s_[-3:-1]),
        ("starts = array<i64: -1>, stops = array<i64: -9>, steps = array<i64: -2>", np.s_[::-2]),
        ("starts = array<i64: 1>, stops = array<i64: 8>, steps = array<i64: 2>", np.s_[1:8:2]),
        ("starts = array<i64: 5>, stops = array<i64: 5>", np.s_[5:5]),
    ],
    ids=["negative", "backwards", "stepped", "empty"],
)
def test_slices_in_the_middle_of_a_kernel(limits: str, index: slice) -> None:
    x = np.arange(8, dtype=np.float32)
    count = len(x[index])
    text = program(
        f"(%x: tensor<8xf32>) -> tensor<{count}xf32>",
        "%0 = graph.negative %x : (tensor<8xf32>) -> tensor<8xf32>",
        f"%1 = graph.slice %0 {{{limits}}} : (tensor<8xf32>) -> tensor<{count}xf32>",
        f"%2 = graph.add %1, %1 : (tensor<{count}xf32>, tensor<{count}xf32>) -> tensor<{count}xf32>",
        f"func.return %2 : tensor<{count}xf32>",
    )
    module = optimized(text, FUSE)
    assert contents(module) == [["negative", "slice", "add"]]
    assert_same_bits(evaluate(module, [x]), [-x[index] - x[index]])


def test_results_of_unequal_sizes_are_no_single_loop() -> None:
    """One value multicast to sums of 10 and of 1000 elements."""
    text = program(
        "(%s: tensor<1xf32>, %x: tensor<10xf32>, %y: tensor<1000xf32>) -> (tensor<10xf32>, tensor<1000xf32>)",
        "%0 = graph.abs %s : (tensor<1xf32>) -> tensor<1xf32>",
        "%1 = graph.add %0, %x : (tensor<1xf32>, tensor<10xf32>) -> tensor<10xf32>",
        "%2 = graph.add %0, %y : (tensor<1xf32>, tensor<1000xf32>) -> tensor<1000xf32>",
        "func.return %1, %2 : tensor<10xf32>, tensor<1000xf32>",
    )
    module = optimized(text, [*FUSE, "wrap-kernels"])
    for kernel in kernels(module):
        assert len({int(np.prod(shape(result))) for result in kernel.results}) == 1
    check_values(text, module)


def test_144_results_of_one_value_are_split() -> None:
    t = "tensor<8xf32>"
    names = [f"%r{number}" for number in range(144)]
    text = program(
        f"(%x: {t}, %y: {t}) -> ({', '.join([t] * 144)})",
        f"%a = graph.exp %x : ({t}) -> {t}",
        *(
            f"{name} = graph.{'add' if n % 2 else 'multiply'} %a, %y : ({t}, {t}) -> {t}"
            for n, name in enumerate(names)
        ),
        f"func.return {', '.join(names)} : {', '.join([t] * 144)}",
    )
    module = optimized(text, [*FUSE, "wrap-kernels"])
    assert max(len(kernel.results) for kernel in kernels(module)) <= 16
    assert sum(len(names) for names in contents(module)) == 145
    check_values(text, module)


def test_300_operands_are_split() -> None:
    t = "tensor<8xf32>"
    arguments = ", ".join(f"%x{number}: {t}" for number in range(300))
    lines = [f"%s1 = graph.add %x0, %x1 : ({t}, {t}) -> {t}"]
    lines += [f"%s{n} = graph.add %s{n - 1}, %x{n} : ({t}, {t}) -> {t}" for n in range(2, 300)]
    text = program(f"({arguments}) -> {t}", *lines, f"func.return %s299 : {t}")
    module = optimized(text, FUSE)
    assert max(len(kernel.operands) for kernel in kernels(module)) <= 64
    assert sum(len(names) for names in contents(module)) == 299
    assert len(kernels(module)) <= 6
    check_values(text, module)


def test_costly_values_are_not_computed_again_for_every_broadcast() -> None:
    """exp, tanh and log of 4096 values, then added to 4096 x 4096: the chain runs 4096 times, not 16 million."""
    column, full = "tensor<4096x1xf32>", "tensor<4096x4096xf32>"
    text = program(
        f"(%x: {column}, %y: {full}) -> {full}",
        f"%0 = graph.exp %x : ({column}) -> {column}",
        f"%1 = graph.tanh %0 : ({column}) -> {column}",
        f"%2 = graph.log %1 : ({column}) -> {column}",
        f"%3 = graph.add %2, %y : ({column}, {full}) -> {full}",
        f"%4 = graph.relu %3 : ({full}) -> {full}",
        f"func.return %4 : {full}",
    )
    with collect() as remarks:
        module = optimized(text, FUSE)
    assert contents(module) == [["exp", "tanh", "log"], ["add", "relu"]]
    (refused,) = {remark.numbers for remark in remarks if remark.code == "recompute"}
    assert dict(refused)["times"] == 4096 * 4096 and dict(refused)["instead_of"] == 4096


def test_cheap_values_are_computed_again() -> None:
    column, full = "tensor<64x1xf32>", "tensor<64x64xf32>"
    text = program(
        f"(%x: {column}, %y: {full}) -> {full}",
        f"%0 = graph.negative %x : ({column}) -> {column}",
        f"%1 = graph.add %0, %y : ({column}, {full}) -> {full}",
        f"func.return %1 : {full}",
    )
    assert contents(optimized(text, "fuse-elementwise")) == [["negative", "add"]]


CHEAP_CHAIN = ["negative", "square", "abs", "negative", "relu"]


@pytest.mark.parametrize(
    ("chain", "window", "stride", "image_shape", "result", "together"),
    [
        (["relu"], (3, 3), 1, "2x33x33", "2x31x31", True),
        (["exp"], (3, 3), 1, "2x33x33", "2x31x31", False),
        (["exp"], (3, 3), 2, "2x33x33", "2x16x16", False),
        (["exp"], (3, 3), 3, "2x33x33", "2x11x11", True),
        (["exp"], (2, 2), 2, "2x33x33", "2x16x16", True),
        (CHEAP_CHAIN, (3, 3), 1, "2x33x33", "2x31x31", True),  # a launch costs more
        (CHEAP_CHAIN, (3, 3), 1, "16x257x257", "16x255x255", False),
        (CHEAP_CHAIN, (3, 3), 3, "16x257x257", "16x85x85", True),
    ],
)
def test_costly_values_are_not_computed_again_in_every_window(
    chain: list[str], window: tuple[int, int], stride: int, image_shape: str, result: str, together: bool
) -> None:
    """Where windows overlap, an element is in up to nine of them."""
    image, pooled = f"tensor<{image_shape}xf32>", f"tensor<{result}xf32>"
    names = ["%x", *(f"%{number}" for number in range(len(chain)))]
    attributes = f"window = array<i64: {window[0]}, {window[1]}>, strides = array<i64: {stride}, {stride}>"
    text = program(
        f"(%x: {image}) -> {pooled}",
        *(f"{b} = graph.{op} {a} : ({image}) -> {image}" for op, (a, b) in zip(chain, pairwise(names), strict=True)),
        f"%r = graph.window_max {names[-1]} {{{attributes}}} : ({image}) -> {pooled}",
        f"func.return %r : {pooled}",
    )
    module = optimized(text, [*FUSE, "wrap-kernels"])
    assert contents(module) == ([[*chain, "window_max"]] if together else [chain, ["window_max"]])
    check_values(text, module)


@pytest.mark.parametrize(
    ("reduction", "rows"),
    [("window_sum %x {window = array<i64: 4>}", 61), ("sum %x {axes = array<i64: 2>, keepdims = true}", 1)],
)
def test_a_total_is_not_made_anew_for_every_row_that_reads_it(reduction: str, rows: int) -> None:
    image, one, result = "tensor<8x64x64xf32>", "tensor<8x1x1xf32>", f"tensor<8x64x{rows}xf32>"
    text = program(
        f"(%x: {image}) -> {result}",
        f"%t = graph.sum %x {{axes = array<i64: 1, 2>, keepdims = true}} : ({image}) -> {one}",
        f"%w = graph.{reduction} : ({image}) -> {result}",
        f"%r = graph.subtract %w, %t : ({result}, {one}) -> {result}",
        f"func.return %r : {result}",
    )
    with collect() as remarks:
        module = optimized(text, [*FUSE, "wrap-kernels"])
    assert contents(module) == [["sum"], [reduction.partition(" ")[0], "subtract"]]
    (refused,) = {remark.numbers for remark in remarks if remark.code == "recompute"}
    assert dict(refused)["times"] == 8 * 64 * rows


def long_chain(count: int) -> ModuleOp:
    """A module of a chain of `count` ops, built without text."""
    type_ = TensorType(f32, [16])
    block = Block(arg_types=[type_])
    value: SSAValue = block.args[0]
    for number in range(count):
        op = (TanhOp if number % 2 else NegativeOp).build_op(value)
        block.add_op(op)
        value = op.results[0]
    block.add_op(ReturnOp(value))
    return ModuleOp([FuncOp("main", FunctionType.from_lists([type_], [type_]), Region(block))])


class CountingRule(ElementwiseRule):
    calls = 0

    def consider(self, graph: GroupGraph, producer: Group, consumer: Group) -> Sequence[Group] | Refusal | None:
        CountingRule.calls += 1
        return super().consider(graph, producer, consumer)


def test_chain_of_10_000_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """No recursion, kernels within the limit, and a number of questions that grows with the ops and not with their square."""
    monkeypatch.setattr("fuse_opt.passes.fusion.fuse_elementwise.ElementwiseRule", CountingRule)
    counts: list[int] = []
    for size in (2_000, 10_000):
        module = long_chain(size)
        CountingRule.calls = 0
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(_depth() + 120)
        try:
            apply(module, "fuse-elementwise")
        finally:
            sys.setrecursionlimit(limit)
        counts.append(CountingRule.calls)
        sizes = [len(kernel.ops()) for kernel in kernels(module)]
        assert sum(sizes) == size and max(sizes) <= 256 and len(sizes) <= 2 * size // 256 + 1
    assert counts[1] <= 6 * counts[0] and counts[1] <= 10 * 10_000


def _depth() -> int:
    depth, frame = 0, sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def test_no_fuse_keeps_an_op_to_itself() -> None:
    t = "tensor<8xf32>"
    text = program(
        f"(%x: {t}) -> {t}",
        f"%0 = graph.exp %x : ({t}) -> {t}",
        f"%1 = graph.negative %0 {{no_fuse}} : ({t}) -> {t}",
        f"%2 = graph.tanh %1 : ({t}) -> {t}",
        f"%3 = graph.abs %2 : ({t}) -> {t}",
        f"func.return %3 : {t}",
    )
    with collect() as remarks:
        module = optimized(text, [*FUSE, "wrap-kernels", *FUSE])
    assert contents(module) == [["exp"], ["negative"], ["tanh", "abs"]]
    assert "no-fuse" in {remark.code for remark in remarks}


def test_fuse_group_makes_one_kernel_of_what_no_rule_would_fuse() -> None:
    text = program(
        "(%x: tensor<8xf32>, %y: tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>)",
        '%0 = graph.exp %x {fuse_group = "both"} : (tensor<8xf32>) -> tensor<8xf32>',
        '%1 = graph.tanh %y {fuse_group = "both"} : (tensor<5xf32>) -> tensor<5xf32>',
        "func.return %0, %1 : tensor<8xf32>, tensor<5xf32>",
    )
    for name in ("fuse-elementwise", "fuse-injective", "fuse-row", "wrap-kernels"):
        module = optimized(text, name)
        assert contents(module) == [["exp", "tanh"]], name
    check_values(text, optimized(text, DEFAULT_PIPELINE[: DEFAULT_PIPELINE.index("wrap-kernels") + 1]))


def test_two_fuse_groups_stay_two() -> None:
    t = "tensor<8xf32>"
    text = program(
        f"(%x: {t}) -> {t}",
        f'%0 = graph.exp %x {{fuse_group = "a"}} : ({t}) -> {t}',
        f'%1 = graph.negative %0 {{fuse_group = "b"}} : ({t}) -> {t}',
        f'%2 = graph.tanh %1 {{fuse_group = "b"}} : ({t}) -> {t}',
        f"func.return %2 : {t}",
    )
    assert contents(optimized(text, [*FUSE, "wrap-kernels"])) == [["exp"], ["negative", "tanh"]]


@pytest.mark.parametrize("name", ["fuse-elementwise", "fuse-injective", "fuse-row", "wrap-kernels"])
def test_fuse_group_across_an_opaque_op_is_an_error(name: str) -> None:
    t = "tensor<4x4xf32>"
    text = program(
        f"(%x: {t}) -> {t}",
        f'%0 = graph.exp %x {{fuse_group = "g"}} : ({t}) -> {t}',
        f"%1 = graph.matmul %0, %0 : ({t}, {t}) -> {t}",
        f'%2 = graph.add %0, %1 {{fuse_group = "g"}} : ({t}, {t}) -> {t}',
        f"func.return %2 : {t}",
    )
    with pytest.raises(
        RefusedError, match="'graph.add' fuse_group = \"g\" cannot be one kernel.*'graph.matmul'"
    ) as error:
        optimized(text, name)
    assert error.value.op.name == "graph.add"


def test_fuse_group_and_no_fuse_conflict() -> None:
    t = "tensor<8xf32>"
    text = program(
        f"(%x: {t}) -> {t}",
        f'%0 = graph.exp %x {{fuse_group = "g", no_fuse}} : ({t}) -> {t}',
        f'%1 = graph.tanh %0 {{fuse_group = "g"}} : ({t}) -> {t}',
        f"func.return %1 : {t}",
    )
    with pytest.raises(RefusedError, match="'graph.exp' carries the directive no_fuse"):
        optimized(text, "fuse-elementwise")


def test_multi_result_diamond_is_one_kernel() -> None:
    t = "tensor<4x4xf32>"
    text = program(
        f"(%x: {t}) -> ({t}, {t}, {t})",
        f"%0 = graph.exp %x : ({t}) -> {t}",
        f"%1 = graph.negative %0 : ({t}) -> {t}",
        f"%2 = graph.tanh %0 : ({t}) -> {t}",
        f"%3 = graph.add %1, %2 : ({t}, {t}) -> {t}",
        f"func.return %0, %2, %3 : {t}, {t}, {t}",
    )
    module = optimized(text, "fuse-elementwise")
    assert [sorted(names) for names in contents(module)] == [["add", "exp", "negative", "tanh"]]
    assert [len(kernel.results) for kernel in kernels(module)] == [3]
    check_values(text, module)


def test_value_read_outside_is_stored_once() -> None:
    t = "tensor<4x4xf32>"
    text = program(
        f"(%x: {t}) -> ({t}, {t})",
        f"%0 = graph.exp %x : ({t}) -> {t}",
        f"%1 = graph.matmul %0, %0 : ({t}, {t}) -> {t}",
        f"%2 = graph.tanh %0 : ({t}) -> {t}",
        f"func.return %1, %2 : {t}, {t}",
    )
    module = optimized(text, "fuse-elementwise")
    assert contents(module) == [["exp", "tanh"]]
    assert [len(kernel.results) for kernel in kernels(module)] == [2]
    check_values(text, module)


def test_dead_ops_are_left_to_dce() -> None:
    """A kernel of which nobody reads a result would have none: the next pass could not say how large it is."""
    t = "tensor<8xf32>"
    text = program(
        f"(%x: {t}) -> {t}",
        f"%0 = graph.exp %x : ({t}) -> {t}",
        f"%1 = graph.negative %0 : ({t}) -> {t}",
        f"%2 = graph.tanh %1 : ({t}) -> {t}",
        f"func.return %x : {t}",
    )
    once = optimized(text, "fuse-elementwise")
    assert all(kernel.results for kernel in kernels(once))
    assert text_of(apply(parse(text_of(once)), "fuse-elementwise")) == text_of(once)
    assert graph_ops(apply(once, "dce")) == []


def test_a_slice_that_nobody_reads_does_not_decide_the_size_of_its_kernel() -> None:
    """Found by fuzzing: the bare group had the size of its last op, a dead slice, and the kernel that of its result."""
    text = program(
        "(%x: tensor<4x3xi64>, %y: tensor<4x3xi64>) -> tensor<1x4xi64>",
        "%0 = graph.bitwise_not %x : (tensor<4x3xi64>) -> tensor<4x3xi64>",
        "%1 = graph.concat %0, %y {axis = -1 : i64} : (tensor<4x3xi64>, tensor<4x3xi64>) -> tensor<4x6xi64>",
        "%2 = graph.slice %0 {starts = array<i64: 3, 2>, stops = array<i64: 4, 3>} : (tensor<4x3xi64>) -> tensor<1x1xi64>",
        "%3 = graph.square %1 : (tensor<4x6xi64>) -> tensor<4x6xi64>",
        "%4 = graph.slice %3 {starts = array<i64: 0, 2>, stops = array<i64: 1, 6>} : (tensor<4x6xi64>) -> tensor<1x4xi64>",
        "func.return %4 : tensor<1x4xi64>",
    )
    once = text_of(optimized(text, "fuse-injective"))
    assert text_of(apply(parse(once), "fuse-injective")) == once


def test_kernel_without_results_is_no_ones_producer() -> None:
    text = """
      func.func @main(%x: tensor<8xf32>) {
        fused.kernel(%a = %x : tensor<8xf32>) -> () {
          %0 = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
          fused.yield
        }
        func.return
      }"""
    for name in (*FUSE, "wrap-kernels", "decompose", "canonicalize", "cse", "dce", "unfuse"):
        optimized(text, name)


@pytest.mark.parametrize("name", ["fuse-elementwise", "fuse-injective", "fuse-row"])
def test_unfuse_and_fuse_again_is_fuse(name: str) -> None:
    """The same text: what is fused follows from the graph, not from the order in which a block lists its ops."""
    for seed in range(15):
        module = apply(random_program(seed, directives=False), ["canonicalize", "cse", "dce", "decompose", "cse", name])
        fused = text_of(module)
        assert text_of(optimized(fused, ["unfuse", "cse", name])) == fused, seed


def test_a_later_round_merges_kernels_of_an_earlier_one() -> None:
    """Progressive fusion: what stopped a first round is gone in the second."""
    t = "tensor<8xf32>"
    text = program(f"(%x: {t}) -> {t}", *chain("tanh", 6, t), f"func.return %5 : {t}")
    first = optimized(text, "fuse-elementwise{max_ops=2}")
    assert contents(first) == [["tanh", "tanh"]] * 3
    assert contents(apply(first, "fuse-elementwise")) == [["tanh"] * 6]


SOFTMAX = program(
    "(%x: tensor<64x128xf32>) -> tensor<64x128xf32>",
    "%m = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x128xf32>) -> tensor<64x1xf32>",
    "%s = graph.subtract %x, %m : (tensor<64x128xf32>, tensor<64x1xf32>) -> tensor<64x128xf32>",
    "%e = graph.exp %s : (tensor<64x128xf32>) -> tensor<64x128xf32>",
    "%t = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<64x128xf32>) -> tensor<64x1xf32>",
    "%r = graph.divide %e, %t : (tensor<64x128xf32>, tensor<64x1xf32>) -> tensor<64x128xf32>",
    "func.return %r : tensor<64x128xf32>",
)
SOFTMAX_COMPOSITE = program(
    "(%x: tensor<64x128xf32>) -> tensor<64x128xf32>",
    "%r = graph.softmax %x : (tensor<64x128xf32>) -> tensor<64x128xf32>",
    "func.return %r : tensor<64x128xf32>",
)
LAYER_NORM = program(
    "(%x: tensor<64x128xf32>, %g: tensor<128xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32>",
    "%n = graph.constant dense<0.0078125> : tensor<f32>",
    "%eps = graph.constant dense<1.0e-05> : tensor<f32>",
    "%t = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x128xf32>) -> tensor<64x1xf32>",
    "%m = graph.multiply %t, %n : (tensor<64x1xf32>, tensor<f32>) -> tensor<64x1xf32>",
    "%c = graph.subtract %x, %m : (tensor<64x128xf32>, tensor<64x1xf32>) -> tensor<64x128xf32>",
    "%q = graph.square %c : (tensor<64x128xf32>) -> tensor<64x128xf32>",
    "%u = graph.sum %q {axes = array<i64: 1>, keepdims = true} : (tensor<64x128xf32>) -> tensor<64x1xf32>",
    "%v = graph.multiply %u, %n : (tensor<64x1xf32>, tensor<f32>) -> tensor<64x1xf32>",
    "%w = graph.add %v, %eps : (tensor<64x1xf32>, tensor<f32>) -> tensor<64x1xf32>",
    "%i = graph.rsqrt %w : (tensor<64x1xf32>) -> tensor<64x1xf32>",
    "%k = graph.multiply %c, %i : (tensor<64x128xf32>, tensor<64x1xf32>) -> tensor<64x128xf32>",
    "%l = graph.multiply %k, %g : (tensor<64x128xf32>, tensor<128xf32>) -> tensor<64x128xf32>",
    "%r = graph.add %l, %b : (tensor<64x128xf32>, tensor<128xf32>) -> tensor<64x128xf32>",
    "func.return %r : tensor<64x128xf32>",
)
LAYER_NORM_COMPOSITE = program(
    "(%x: tensor<64x128xf32>, %g: tensor<128xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32>",
    "%r = graph.layer_norm %x, %g, %b : (tensor<64x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<64x128xf32>",
    "func.return %r : tensor<64x128xf32>",
)
GELU = program(
    "(%x: tensor<64x128xf32>) -> tensor<64x128xf32>",
    "%half = graph.constant dense<0.5> : tensor<f32>",
    "%one = graph.constant dense<1.0> : tensor<f32>",
    "%root = graph.constant dense<0.70710678> : tensor<f32>",
    "%a = graph.multiply %x, %root : (tensor<64x128xf32>, tensor<f32>) -> tensor<64x128xf32>",
    "%e = graph.erf %a : (tensor<64x128xf32>) -> tensor<64x128xf32>",
    "%f = graph.add %e, %one : (tensor<64x128xf32>, tensor<f32>) -> tensor<64x128xf32>",
    "%h = graph.multiply %x, %half : (tensor<64x128xf32>, tensor<f32>) -> tensor<64x128xf32>",
    "%r = graph.multiply %h, %f : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x128xf32>",
    "func.return %r : tensor<64x128xf32>",
)
GELU_OF_SUM = program(
    "(%x: tensor<64x128xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32>",
    "%a = graph.add %x, %b : (tensor<64x128xf32>, tensor<128xf32>) -> tensor<64x128xf32>",
    "%r = graph.gelu %a : (tensor<64x128xf32>) -> tensor<64x128xf32>",
    "func.return %r : tensor<64x128xf32>",
)
ONE_KERNEL = {
    "softmax": SOFTMAX,
    "softmax_composite": SOFTMAX_COMPOSITE,
    "layer_norm": LAYER_NORM,
    "layer_norm_composite": LAYER_NORM_COMPOSITE,
    "gelu": GELU,
    "gelu_of_sum": GELU_OF_SUM,
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str) -> None:
    module = optimized(ONE_KERNEL[name], DEFAULT_PIPELINE)
    assert len(kernels(module)) == 1 and len(kernels(module)[0].results) == 1
    check_values(ONE_KERNEL[name], module)


@pytest.mark.parametrize(
    ("name", "generated", "libraries"),
    [
        ("adam_step", 1, 0),
        ("gated_unit", 1, 0),
        ("layernorm_residual", 1, 0),
        ("lstm_cell", 1, 2),
        ("resnet_block", 4, 2),
        ("softmax", 1, 0),
        ("transformer_block", 2, 5),
    ],
)
def test_examples(name: str, generated: int, libraries: int) -> None:
    """At true size: no more generated kernels than this, one other kernel for each matmul, attention or convolution."""
    module = optimized((EXAMPLES / f"{name}.mlir").read_text(), DEFAULT_PIPELINE)
    assert len(generated_kernels(module)) <= generated
    assert len(kernels(module)) - len(generated_kernels(module)) == libraries


def test_sum_of_one_value_with_itself_needs_it_once() -> None:
    type_ = TensorType(f32, [8])
    block = Block(arg_types=[type_])
    op = AddOp.build_op(block.args[0], block.args[0])
    block.add_ops([op, ReturnOp(op.results[0])])
    module = ModuleOp([FuncOp("main", FunctionType.from_lists([type_], [type_]), Region(block))])
    apply(module, "wrap-kernels")
    assert len(kernels(module)[0].operands) == 1
    x: list[Array] = [np.arange(8, dtype=np.float32)]
    assert_same_bits(evaluate(module, x), [x[0] + x[0]])
