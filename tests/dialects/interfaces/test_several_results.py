"""An opaque op with several results, of somebody else's dialect: through every pass and target, read or not.

A library writes every result of its op, so each has memory of its own in a kernel of that op alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from io import StringIO
from typing import Any

import numpy as np
import pytest
from ir_testing import Array, apply, context, evaluate, kernels, op_names, text_of
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DenseArrayBase, ModuleOp, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def

import fuse_opt
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import ints
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, tensor
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.program import Config, LibraryCall
from fuse_opt.lowering.reference.kernels.registry import implementation
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.compiler.registry import available_passes, available_targets
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import verify

needs_cc = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


@irdl_op_definition
class OrderOp(OpaqueOp):
    """Sorted along the last axis, and where the elements come from."""

    name = "yours.order"
    x = operand_def(TensorType)
    values = result_def(TensorType)
    positions = result_def(TensorType)
    descending = opt_prop_def(BoolAttr)
    names = opt_prop_def(ArrayAttr[StringAttr])
    scales = opt_prop_def(DenseArrayBase)
    element = opt_prop_def(Attribute)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor(self.x), TensorType(i64, shape(self.x)))


CONFIGS: list[Config] = []
"""What `yours.order` was called with."""


@implementation("yours.numpy_order", "yours.order")
def _order(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    (x,), (values, positions) = inputs, outputs
    CONFIGS.append(config)
    positions[...] = np.argsort(-x if config.get("descending") else x, axis=-1)
    values[...] = np.take_along_axis(x, positions, axis=-1)


YOURS = Dialect("yours", [OrderOp])

ORDERS = """
func.func @main(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xi64>, tensor<8x16xf32>, tensor<8x16xi64>) {
  %0 = graph.square %x : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %both:2 = yours.order %0 : (tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xi64>)
  %first:2 = yours.order %x {descending = true} : (tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xi64>)
  %1 = graph.negative %first#0 : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %second:2 = yours.order %1 : (tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xi64>)
  %2 = graph.add %second#1, %second#1 : (tensor<8x16xi64>, tensor<8x16xi64>) -> tensor<8x16xi64>
  %none:2 = yours.order %1 {descending = true} : (tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xi64>)
  func.return %both#0, %both#1, %1, %2 : tensor<8x16xf32>, tensor<8x16xi64>, tensor<8x16xf32>, tensor<8x16xi64>
}
"""
"""Both results of an opaque op are read, the first only, the second only, none."""


def parse(text: str) -> ModuleOp:
    ctx = context()
    ctx.load_dialect(YOURS)
    module = parse_module(text, "yours.mlir", ctx)
    verify(module)
    return module


def argument() -> Array:
    return np.random.default_rng(7).standard_normal((8, 16)).astype(np.float32)


def ordered(x: Array) -> list[Array]:
    squared, descending = x * x, -np.sort(-x, axis=-1)
    positions = np.argsort(-descending, axis=-1)
    return [np.sort(squared, axis=-1), np.argsort(squared, axis=-1), -descending, 2 * positions]


def check_orders(results: Sequence[Array], x: Array) -> None:
    for actual, expected in zip(results, ordered(x), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [name for name in available_passes() if not name.startswith("convert-")])
def test_every_pass_takes_several_results(name: str) -> None:
    x = argument()
    check_orders(evaluate(parse(ORDERS), [x]), x)
    for before in ("", "wrap-kernels,dce,"):
        module = apply(parse(ORDERS), before + name)
        check_orders(evaluate(module, [x]), x)
        assert text_of(parse(text_of(module))) == text_of(module)


@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, "wrap-kernels,schedule-kernels,plan-memory,bulk-launches"])
def test_every_result_of_a_library_has_memory(pipeline: str) -> None:
    """Also those that nobody reads, while a kernel whose results are all unread is removed by dce."""
    module = apply(parse(ORDERS), pipeline)
    orders = [kernel for kernel in kernels(module) if op_names(kernel.ops()) == ["order"]]
    assert len(orders) == (3 if "dce" in str(pipeline) else 4)
    for kernel in orders:
        assert len(kernel.results) == 2 and len(ints(kernel.slots)) == 2
    program = build_cuda_program(module)
    calls = [step for step in program.steps if isinstance(step, LibraryCall)]
    assert [call.implementation for call in calls] == ["yours.numpy_order"] * len(orders)
    places = [(ref.buffer, ref.offset) for call in calls for ref in call.outputs]
    assert len(calls[1].outputs) == 2 and places[2] != places[3]
    assert "library yours.numpy_order(" in program.source


@needs_cc
@pytest.mark.parametrize("pipeline", [None, "unfused", "fuse-row,wrap-kernels"])
def test_several_results_in_c(pipeline: str | None) -> None:
    x = argument()
    program = fuse_opt.compile(parse(ORDERS), "cpu", pipeline)
    assert program.stats.library_calls == (3 if pipeline is None else 4)
    results: Any = program(x)
    check_orders(results, x)
    again = [np.zeros_like(result) for result in results]
    program(x, out=again)
    check_orders(again, x)


@pytest.mark.parametrize("target", ["json", "dot", "html", "c", "cuda", "mlir"])
def test_targets_take_several_results(target: str) -> None:
    module, output = apply(parse(ORDERS), DEFAULT_PIPELINE), StringIO()
    ctx = context()
    ctx.load_dialect(YOURS)
    available_targets()[target]()().emit(ctx, module, output)
    assert "add" in output.getvalue()
    assert target == "c" or "order" in output.getvalue()


PROPERTIES = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0:2 = yours.order %x {descending = false, names = ["a", "b"], scales = array<f32: 0.5, 2.0>, element = bf16}
    : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi64>)
  func.return %0#0 : tensor<4xf32>
}
"""


@needs_cc
def test_properties_reach_the_implementation_as_plain_values() -> None:
    x = np.array([3, 1, 2, 0], np.float32)
    wanted = {"descending": False, "names": ("a", "b"), "scales": (0.5, 2.0), "element": "bf16"}
    CONFIGS.clear()
    evaluate(parse(PROPERTIES), [x])
    fuse_opt.compile(parse(PROPERTIES), "cpu")(x)
    assert wanted == CONFIGS[0] == CONFIGS[1] and len(CONFIGS) == 2
    assert CONFIGS[1]["descending"] is False
