"""Sliding windows through the whole pipeline: random programs in C, what overlaps, counts of pools, unknown extents."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from draws import draws, scaled
from ir_testing import Array, apply, evaluate, function, generated_kernels, kernels, parse, random_arguments, text_of
from planned_programs import WINDOW_OPS, WINDOW_SHAPES, function_of
from planned_programs import random_arguments as random_integers
from planned_programs import random_program as random_window_program
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects.analysis.loop_body import Unschedulable, trace
from fuse_opt.dialects.graph.elementwise.arithmetic import AbsOp, AddOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp
from fuse_opt.dialects.graph.reductions.reductions import Joined
from fuse_opt.dialects.graph.reductions.statistics import MeanOp
from fuse_opt.dialects.graph.windows.pool_geometry import PoolAxis
from fuse_opt.dialects.graph.windows.pooling import AvgPoolOp, MaxPoolOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import bool_value, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, tensor
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.dialects.types.size import symbol
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

needs_cc = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


def results_in_c(text: str, arguments: Sequence[Array], count: int) -> list[Array]:
    found: Any = fuse_opt.compile(text, "cpu")(*(array.copy() for array in arguments))
    return list(cast(Sequence[Array], found)) if count > 1 else [found]


@pytest.mark.sampled(2)
@needs_cc
@pytest.mark.parametrize("block", range(4))
def test_random_programs_in_c(block: int) -> None:
    """Integers, so that every order of a sum is right; some arguments are donated and overwritten."""
    for seed in range(block * 12, (block + 1) * 12):
        rng = random.Random(f"in C {seed}")
        text = random_window_program(rng, rng.randrange(3, 12), WINDOW_OPS, WINDOW_SHAPES)
        module = parse(text)
        arguments = random_integers(function_of(module), rng)
        expected = evaluate(module, arguments)
        for actual, wanted in zip(results_in_c(text, arguments, len(expected)), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted, err_msg=f"seed {seed}")


def random_pooling(rng: random.Random) -> ModuleOp:
    """A pooling with ops before and after it, on f32; some operand is as large as its result."""
    spatial = rng.randrange(1, 4)
    kernel, strides = ([rng.randrange(1, 4) for _ in range(spatial)] for _ in range(2))
    dilations = [rng.choice((1, 1, 2)) for _ in range(spatial)]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [rng.randrange(min(span, 3)) for span in (*spans, *spans)]
    names = ("kernel_shape", "strides", "dilations", "pads")
    properties = {name: int_array(v) for name, v in zip(names, (kernel, strides, dilations, pads), strict=True)}
    image = TensorType(f32, [2, 3, *(rng.randrange(4, 9) for _ in range(spatial))])
    block = Block(arg_types=[image])
    before = rng.choice((ExpOp, AbsOp)).build_op(block.args[0])
    pool = rng.choice((MaxPoolOp, AvgPoolOp)).build_op(
        before.results[0], **properties, ceil_mode=bool_value(rng.random() < 0.5)
    )
    other = block.insert_arg(tensor(pool.results[0]), 1)
    after = AddOp.build_op(pool.results[0], other)
    mean = MeanOp.build_op(after.results[0], axes=int_array([-1]))
    block.add_ops([before, pool, after, mean])
    return module_of(block, [after.results[0], mean.results[0]])


def module_of(block: Block, results: Sequence[SSAValue]) -> ModuleOp:
    """A function `main` of a block."""
    block.add_op(ReturnOp(*results))
    types = FunctionType.from_lists([value.type for value in block.args], [value.type for value in results])
    return ModuleOp([FuncOp("main", types, Region(block))])


def test_windows_of_axes_are_counted_one_by_one() -> None:
    """With `ceil` a window starts before the padding behind; what any extent is padded by has room for no more."""
    for extent, kernel, stride, dilation, ceil in product(range(11), (1, 2, 3), (1, 2, 3, 4), (1, 2), (False, True)):
        span = dilation * (kernel - 1) + 1
        for low, high in product(range(span), repeat=2):
            axis = PoolAxis(extent, kernel, stride, low, high, dilation, ceil)
            room = extent + low + high - span
            count = -(-room // stride) + 1 if ceil else room // stride + 1
            count -= ceil and (count - 1) * stride >= extent + low
            assert axis.windows == count, axis
            assert axis.has_empty() == (dilation > 1 and 0 in axis.counts(False)), axis
            if ceil and count > 0:
                behind = replace(axis, extent=symbol("n")).behind
                assert behind >= axis.behind and (extent + low + behind - span) // stride + 1 == count, axis


@needs_cc
def test_random_poolings_in_c() -> None:
    made = 0
    for seed in draws(30):
        try:
            text = text_of(random_pooling(random.Random(f"pooling {seed}")))
        except VerifyException:
            continue  # a window of padding alone
        if made == scaled(6):
            break
        made += 1
        module = parse(text)
        arguments = random_arguments(module, seed)
        expected = evaluate(module, arguments)
        for actual, wanted in zip(results_in_c(text, arguments, 2), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5, err_msg=f"seed {seed}\n{text}")
    assert made == scaled(6)


class Pairs(Joined):
    """The sums of two elements each, half as many as there are elements."""

    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0

    def infer_types(self) -> Sequence[AnyTensor]:
        return (TensorType(tensor(self.x).element_type, [shape(self.x)[0] // 2]),)

    def reduced_extents(self) -> tuple[int, ...]:
        return (2,)


@irdl_op_definition
class NeighboursOp(Pairs):
    """x[i] + x[i + 1]: as many elements are read as the operand has, though not these."""

    name = "mine.neighbours"

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return (index[0] + reduced[0],)


@irdl_op_definition
class BackwardPairsOp(Pairs):
    """x[n - 1 - 2 * i] + x[n - 2 - 2 * i]: each element in one pair, from the last on."""

    name = "mine.backward_pairs"

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return (index[0] * -2 - reduced[0] + (shape(self.x)[0] - 1),)


def pulled_pairs(op_type: type[Pairs]) -> tuple[int, ...]:
    """Where the rows of pairs store a result for each element."""
    block = Block(arg_types=[TensorType(f32, [6])])
    doubled = AddOp.build_op(block.args[0], block.args[0])
    pairs = op_type.build_op(doubled.results[0])
    block.add_ops([doubled, pairs])
    loop_body = trace([doubled.results[0], pairs.results[0]], [doubled, pairs])
    (store,) = (store for store in loop_body.stores if not store.per_row)
    dims = [dim for index in (*loop_body.rows, *loop_body.columns) for dim in index.dims()]
    return tuple(store.address.evaluate(dict(zip(dims, (i, k), strict=True))) for i in range(3) for k in range(2))


def test_rows_are_those_of_an_operand_only_when_they_count_through_it() -> None:
    """3 rows of 2 elements are 6, as the operand has; what counts is that each of them is another one."""
    with pytest.raises(Unschedulable, match="reads elements in several rows") as caught:
        pulled_pairs(NeighboursOp)
    assert caught.value.code == "overlapping-rows"
    assert pulled_pairs(BackwardPairsOp) == (5, 4, 3, 2, 1, 0)


COUNTED = """func.func @main(%x: tensor<2x3x7x7xf32>) -> tensor<2x3x4x4xf32> {
  %r = graph.avg_pool %x {kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>}
    : (tensor<2x3x7x7xf32>) -> tensor<2x3x4x4xf32>
  func.return %r : tensor<2x3x4x4xf32>
}"""


@needs_cc
@pytest.mark.parametrize("passes", [(), ("decompose",), ("wrap-kernels", "decompose"), ("wrap-kernels",)])
def test_counts_of_windows_are_known_in_every_order_of_passes(passes: tuple[str, ...]) -> None:
    """They differ from window to window and are kept in memory, which no generated kernel may hold."""
    module = parse(COUNTED)
    arguments = random_arguments(module, 0)
    (expected,) = evaluate(module, arguments)
    text = text_of(apply(module, list(passes))) if passes else COUNTED
    (actual,) = results_in_c(text, arguments, 1)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_a_pooling_is_two_kernels_at_most() -> None:
    """The padding, and the windows with what follows them."""
    module = apply(parse(COUNTED), DEFAULT_PIPELINE)
    assert len(generated_kernels(module)) == len(kernels(module)) <= 2


UNKNOWN = {
    "window_sum {window = array<i64: 3>, strides = array<i64: 2>}": ("?x9xf32", "?x4xf32"),
    "window_max {window = array<i64: 2>, axes = array<i64: 0>}": ("?x9xf32", "?x9xf32"),
    "sliding_windows {window = array<i64: 3>}": ("?x9xf32", "?x7x3xf32"),
    "max_pool {kernel_shape = array<i64: 2, 2>}": ("?x3x?x5xf32", "?x3x?x4xf32"),
    "avg_pool {kernel_shape = array<i64: 2>, strides = array<i64: 2>}": ("?x3x8xf32", "?x3x4xf32"),
    "global_avg_pool": ("?x3x?x5xf32", "?x3x1x1xf32"),
    "adaptive_avg_pool {output_size = array<i64: 2, 5>}": ("?x3x?x5xf32", "?x3x2x5xf32"),
    "avg_pool_backward {kernel_shape = array<i64: 2>, extents = array<i64: 5>}": ("?x3x4xf32", "?x3x5xf32"),
    "sum {axes = array<i64: 0>}": ("?x3xf32", "3xf32"),
    "count_nonzero {axes = array<i64: 1>}": ("?x3xf32", "?xi64"),
    "argmax {axis = 1 : i64, keepdims = true}": ("?x3xf32", "?x1xi64"),
    "std {axes = array<i64: 1>, correction = 1 : i64}": ("?x?xf32", "?xf32"),
    "logsumexp": ("?x3xf32", "f32"),
}


@pytest.mark.parametrize("line", UNKNOWN)
def test_unknown_extents_are_carried(line: str) -> None:
    given, wanted = (f"tensor<{text}>" for text in UNKNOWN[line])
    name, _, attributes = line.partition(" ")
    text = f"func.func @main(%x: {given}) -> {wanted} {{\n  %r = graph.{name} %x {attributes} : ({given}) -> {wanted}\n"
    module = parse(f"{text}  func.return %r : {wanted}\n}}")
    (op,) = (op for op in function(module).body.block.ops if isinstance(op, GraphOp))
    assert str(op.infer_types()[0]) == wanted and op.error_bound().ulps >= 0
    assert len(kernels(apply(module, DEFAULT_PIPELINE))) <= 1


SIZED = "tensor<?x3x?x?xf32>"
EXTENTS = "extents = #graph.shape<h{least = 4}, w{least = 4}>"
BACK = {
    "avg": f"""%y = graph.avg_pool %x {{OPTIONS}} : ({SIZED}) -> {SIZED}
  %r = graph.avg_pool_backward %y {{OPTIONS, {EXTENTS}}} : ({SIZED}) -> {SIZED}""",
    "max": f"""%y, %i = graph.max_pool_with_indices %x {{OPTIONS}} : ({SIZED}) -> ({SIZED}, tensor<?x3x?x?xi64>)
  %r = graph.max_pool_backward %y, %i {{OPTIONS, {EXTENTS}}} : ({SIZED}, tensor<?x3x?x?xi64>) -> {SIZED}""",
}
"""Gradients of pooling of images whose extents are sizes."""


@pytest.mark.sampled(5)
@needs_cc
@pytest.mark.parametrize("form", BACK)
@pytest.mark.parametrize(
    ("kernel", "strides", "pads"), (((2, 2), (1, 1), 0), ((2, 2), (2, 2), 0), ((3, 3), (2, 2), 1), ((3, 2), (3, 1), 0))
)
def test_gradients_of_pooling_are_one_program_for_all_extents(
    form: str, kernel: tuple[int, int], strides: tuple[int, int], pads: int
) -> None:
    """Rows that no window holds have 0, and are as many as remain of an extent that a stride does not divide."""
    given = {"kernel_shape": kernel, "strides": strides, "pads": (pads,) * 4}
    options = ", ".join(f"{name} = array<i64: {', '.join(map(str, value))}>" for name, value in given.items())
    text = f"""func.func @main(%x: {SIZED} {{graph.dims = ["b", "", "h", "w"]}}) -> {SIZED}
    attributes {{graph.symbols = {{h = {{least = 4}}, w = {{least = 4}}}}}} {{
  {BACK[form].replace("OPTIONS", options)}
  func.return %r : {SIZED}
}}"""
    program, rng = fuse_opt.compile(text), np.random.default_rng(7)
    for height, width in ((4, 4), (5, 6), (9, 13), (12, 7)):
        x = rng.standard_normal((2, 3, height, width)).astype(np.float32)
        np.testing.assert_allclose(program(x), fuse_opt.evaluate(text, x), 1e-5, 1e-6)
    assert isinstance(program.native, SpecializedPrograms) and not program.native.made
