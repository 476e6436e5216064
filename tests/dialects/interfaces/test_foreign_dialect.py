"""Ops of somebody else's dialect, stated as records: parsed, inferred, fused with ours, planned, run in NumPy and in C.

Nothing of the project knows the dialect `mine`; its ops derive from the bases of the graph dialect and say no more than those
ask for.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from ir_testing import Array, apply, assert_same_bits, context, evaluate, kernels, op_names, text_of
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.graph.bases.elementwise import Binary, Unary
from fuse_opt.dialects.graph.movement.views import ViewOp
from fuse_opt.dialects.graph.reductions.reductions import Reduction
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar import Scalar
from fuse_opt.dialects.types.index_expr import Index
from fuse_opt.lowering.reference.kernels.registry import Config, implementation
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE
from fuse_opt.tools.compiler.registry import available_passes
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import OpVerifyError, verify


@irdl_op_definition
class SwishOp(Unary):
    """x * sigmoid(1.5 * x)."""

    name = "mine.swish"

    def scalar(self, x: Scalar) -> Scalar:
        return x / (1.0 + sc.exp(-1.5 * x))


@irdl_op_definition
class HypotOp(Binary):
    """sqrt(x * x + y * y)."""

    name = "mine.hypot"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.sqrt(x * x + y * y)


@irdl_op_definition
class ReverseRowsOp(ViewOp):
    """The rows in reverse order."""

    name = "mine.reverse_rows"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        if not source:
            raise VerifyException("expected rank 1 or more, got a scalar; give it an axis with graph.reshape")
        return source

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return (index[0] * -1 + (shape(self.x)[0] - 1), *index[1:])


@irdl_op_definition
class SumOfSquaresOp(Reduction):
    """The sum of x * x."""

    name = "mine.sum_of_squares"
    COMBINE: ClassVar[str] = "add"
    EMPTY: ClassVar[int | float | bool | None] = 0

    def scalar(self, x: Scalar) -> Scalar:
        return x * x


@irdl_op_definition
class DoubleSwishOp(CompositeOp):
    """swish(swish(x))."""

    name = "mine.double_swish"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor(self.x),)

    def decompose(self, builder: GraphBuilder) -> Sequence[Any]:
        return (builder(SwishOp, builder(SwishOp, self.x)),)


@irdl_op_definition
class SortOp(OpaqueOp):
    """Sorted along the last axis."""

    name = "mine.sort"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor(self.x),)


@implementation("mine.numpy_sort", "mine.sort")
def _sort(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    outputs[0][...] = np.sort(inputs[0], axis=-1)


MINE = Dialect("mine", [SwishOp, HypotOp, ReverseRowsOp, SumOfSquaresOp, DoubleSwishOp, SortOp])

PROGRAM = """
func.func @main(%x: tensor<32x64xf32>, %y: tensor<64xf32>) -> (tensor<32x64xf32>, tensor<32x64xf32>) {
  %0 = graph.add %x, %y : (tensor<32x64xf32>, tensor<64xf32>) -> tensor<32x64xf32>
  %1 = mine.swish %0 : (tensor<32x64xf32>) -> tensor<32x64xf32>
  %2 = mine.reverse_rows %1 : (tensor<32x64xf32>) -> tensor<32x64xf32>
  %3 = mine.hypot %2, %y : (tensor<32x64xf32>, tensor<64xf32>) -> tensor<32x64xf32>
  %4 = mine.sum_of_squares %3 {axes = array<i64: 1>, keepdims = true} : (tensor<32x64xf32>) -> tensor<32x1xf32>
  %5 = graph.divide %3, %4 : (tensor<32x64xf32>, tensor<32x1xf32>) -> tensor<32x64xf32>
  %6 = mine.sort %5 : (tensor<32x64xf32>) -> tensor<32x64xf32>
  %7 = mine.double_swish %6 : (tensor<32x64xf32>) -> tensor<32x64xf32>
  func.return %5, %7 : tensor<32x64xf32>, tensor<32x64xf32>
}
"""


def parse(text: str) -> ModuleOp:
    ctx = context()
    ctx.load_dialect(MINE)
    module = parse_module(text, "mine.mlir", ctx)
    verify(module)
    return module


def arguments() -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(extents).astype(np.float32) for extents in ((32, 64), (64,))]


def by_hand(x: Array, y: Array) -> list[Array]:
    def swish(a: Array) -> Array:
        return a / (1 + np.exp(-1.5 * a))

    wide, row = x.astype(np.float64), y.astype(np.float64)
    rows = np.sqrt(swish(wide + row)[::-1] ** 2 + row**2)
    normalized: Array = rows / (rows**2).sum(axis=1, keepdims=True)
    return [normalized, swish(swish(np.sort(normalized, axis=-1)))]


def check(results: Sequence[Array]) -> None:
    for actual, expected in zip(results, by_hand(*arguments()), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


def test_kinds_are_derived() -> None:
    kinds = {op.name: op.fusion_kind() for op in parse(PROGRAM).walk() if isinstance(op, StructuredOp)}
    assert kinds["mine.swish"] is FusionKind.ELEMENTWISE
    assert kinds["mine.hypot"] is FusionKind.BROADCAST
    assert kinds["mine.reverse_rows"] is FusionKind.INJECTIVE
    assert kinds["mine.sum_of_squares"] is FusionKind.REDUCTION


def test_reference() -> None:
    check(evaluate(parse(PROGRAM), arguments()))


def test_both_forms_parse_back() -> None:
    module = parse(PROGRAM)
    assert text_of(parse(text_of(module))) == text_of(module)
    assert text_of(parse(text_of(module, generic=True))) == text_of(module)


def test_verifier_speaks_for_it() -> None:
    with pytest.raises(OpVerifyError, match="'mine.swish' operands .* 'exp' does not accept"):
        parse(
            "func.func @f(%x: tensor<4xi32>) {\n  %0 = mine.swish %x : (tensor<4xi32>) -> tensor<4xi32>\n  func.return\n}"
        )


def test_fused_with_ours() -> None:
    module = apply(parse(PROGRAM), ["decompose", "fuse-injective", "fuse-elementwise", "fuse-row"])
    assert [op_names(kernel.ops()) for kernel in kernels(module)] == [
        ["add", "swish", "reverse_rows", "hypot", "sum_of_squares", "divide"],
        ["swish", "swish"],
    ]
    assert_same_bits(evaluate(module, arguments()), evaluate(parse(PROGRAM), arguments()))


@pytest.mark.parametrize("name", [name for name in available_passes() if not name.startswith("convert-")])
def test_every_pass_takes_it(name: str) -> None:
    module = apply(parse(PROGRAM), name)
    assert_same_bits(evaluate(module, arguments()), evaluate(parse(PROGRAM), arguments()))


def test_default_pipeline() -> None:
    module = apply(parse(PROGRAM), DEFAULT_PIPELINE)
    assert len(kernels(module)) == 3
    check(evaluate(module, arguments()))


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("pipeline", [None, "unfused"])
def test_c(pipeline: str | None) -> None:
    program = fuse_opt.compile(parse(PROGRAM), "cpu", pipeline)
    results: Any = program(*arguments())
    check(results)
    assert "swish" in program.source
