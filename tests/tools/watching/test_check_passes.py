"""Passes that change what a program computes are named, whatever they do wrong; those that are right are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, DenseIntOrFPElementsAttr, ModuleOp, TensorType, f32, i64
from xdsl.passes import ModulePass

from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.tools.commands.fuse_opt_main import main
from fuse_opt.tools.commands.watching import pass_checker
from fuse_opt.tools.compiler.api import load
from fuse_opt.tools.compiler.pipeline import make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context

PROGRAM = """
func.func @net(%x: tensor<5x7xf32>, %w: tensor<7x9xf32>, %b: tensor<5x9xf32>)
    -> (tensor<9x5xf32>, tensor<5x9xf32>, tensor<5x9xf32>) {
  %c = graph.constant dense<0.5> : tensor<f32>
  %h = graph.matmul %x, %w : (tensor<5x7xf32>, tensor<7x9xf32>) -> tensor<5x9xf32>
  %d = graph.subtract %h, %b : (tensor<5x9xf32>, tensor<5x9xf32>) -> tensor<5x9xf32>
  %s = graph.multiply %d, %c : (tensor<5x9xf32>, tensor<f32>) -> tensor<5x9xf32>
  %a = graph.softmax %s {axis = 1 : i64} : (tensor<5x9xf32>) -> tensor<5x9xf32>
  %k = graph.cumulative_sum %a {axis = 1 : i64} : (tensor<5x9xf32>) -> tensor<5x9xf32>
  %l = graph.cumulative_sum %k {axis = 0 : i64} : (tensor<5x9xf32>) -> tensor<5x9xf32>
  %r = graph.divide %a, %k : (tensor<5x9xf32>, tensor<5x9xf32>) -> tensor<5x9xf32>
  %t = graph.permute_dims %r {axes = array<i64: 1, 0>} : (tensor<5x9xf32>) -> tensor<9x5xf32>
  %u = graph.add %l, %a : (tensor<5x9xf32>, tensor<5x9xf32>) -> tensor<5x9xf32>
  func.return %t, %u, %s : tensor<9x5xf32>, tensor<5x9xf32>, tensor<5x9xf32>
}
"""


def ops(module: ModuleOp, name: str) -> list[GraphOp]:
    return [op for op in module.walk() if isinstance(op, GraphOp) and op.name == f"graph.{name}"]


def swapped_operands(module: ModuleOp) -> None:
    (op, *_) = ops(module, "subtract")
    op.operands = [op.operands[1], op.operands[0]]


def dropped_op(module: ModuleOp) -> None:
    (op, *_) = ops(module, "multiply")
    op.results[0].replace_all_uses_with(op.operands[0])


def other_constant(module: ModuleOp) -> None:
    for op in ops(module, "constant"):
        half = TensorType(f32, [])
        op.properties["value"] = DenseIntOrFPElementsAttr.from_list(half, [0.50001])


def other_operand(module: ModuleOp) -> None:
    op = ops(module, "divide")[-1]
    op.operands = [op.operands[0], op.operands[0]]


def swapped_results(module: ModuleOp) -> None:
    last = next(op for op in module.walk() if op.name == "func.return")
    last.operands = [last.operands[0], last.operands[2], last.operands[1]]


def other_yield(module: ModuleOp) -> None:
    """A kernel gives what is not finished yet."""
    for op in module.walk():
        if isinstance(op, KernelOp) and len(inner := op.ops()) > 1 and (last := op.block.last_op) is not None:
            earlier = [each.results[0] for each in inner if each.results[0] not in last.operands]
            if found := [value for value in earlier if value.type == last.operands[0].type]:
                last.operands = [found[0], *last.operands[1:]]
                return
    raise AssertionError("no kernel has such values")


def swapped_kernel_operands(module: ModuleOp) -> None:
    kernels = [op for op in module.walk() if isinstance(op, KernelOp) and len(op.operands) > 1]
    op = next(op for op in kernels if op.operands[0].type == op.operands[1].type)
    op.operands = [op.operands[1], op.operands[0], *op.operands[2:]]


def other_axis(module: ModuleOp) -> None:
    op = ops(module, "cumulative_sum")[0]
    op.properties["axis"] = ops(module, "cumulative_sum")[1].properties["axis"]


def wrong_pair(module: ModuleOp) -> None:
    """A kernel overwrites what a later one reads."""
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    for number, op in enumerate(kernels):
        later = {value for other in kernels[number + 1 :] for value in other.operands}
        for place, value in enumerate(op.operands):
            if value in later and value.type == op.results[0].type and value.owner in kernels:
                op.inplace = DenseArrayBase.from_list(i64, [0, place])
                return
    raise AssertionError("no kernel has such an operand")


def one_slot(module: ModuleOp) -> None:
    """All intermediate values lie at the beginning of the arena."""
    for op in module.walk():
        if isinstance(op, KernelOp) and op.slots is not None:
            op.slots = DenseArrayBase.from_list(i64, [min(slot, 0) for slot in map(int, op.slots.get_values())])


Fault = Callable[[ModuleOp], None]
FAULTS: dict[Fault, str] = {
    swapped_operands: "canonicalize",
    dropped_op: "cse",
    other_constant: "fold-constants",
    other_axis: "dce",
    swapped_results: "decompose",
    other_operand: "fuse-elementwise",
    swapped_kernel_operands: "wrap-kernels",
    other_yield: "schedule-kernels",
    wrong_pair: "infer-inplace",
    one_slot: "plan-memory",
}


PIPELINES: dict[Fault, str] = {
    swapped_kernel_operands: "unfused",
    one_slot: "unfused",
    wrong_pair: "decompose,wrap-kernels,infer-inplace",
}


@dataclass(frozen=True)
class FaultyPass(ModulePass):
    """A pass that also does something wrong."""

    inner: ModulePass = field(kw_only=True)
    fault: Fault = field(kw_only=True)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.name

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.inner.apply(ctx, op)
        self.fault(op)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_pass_with_a_fault_is_named(fault: Fault) -> None:
    passes = make_passes(PIPELINES.get(fault))
    place = next(k for k, each in enumerate(passes) if each.name == FAULTS[fault])
    passes[place] = FaultyPass(inner=passes[place], fault=fault)
    module = load(PROGRAM)
    with pytest.raises(Exception, match=f"after pass '{FAULTS[fault]}'"):
        run_pipeline(module, passes, make_context(), observer=pass_checker(None, "net.mlir", Silent()))


class Silent:
    def verified(self, module: ModuleOp, seconds: float) -> None: ...
    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None: ...


def test_right_passes_on_given_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.mlir").write_text(PROGRAM)
    shapes = {"x": (5, 7), "w": (7, 9), "b": (5, 9)}
    arrays: Any = {name: np.full(shape, 0.25, np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "in.npz", **arrays)
    options = ["--check-passes", "--inputs", str(tmp_path / "in.npz")]
    assert main([str(tmp_path / "net.mlir"), "--default", "--convert-fused-to-loops", *options]) == 0
    assert main([str(tmp_path / "net.mlir"), "--check-passes", "--inputs", "zeros"]) == 2
    assert "expected random:SEED" in capsys.readouterr().err
