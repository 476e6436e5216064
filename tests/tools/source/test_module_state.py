"""A module is verified again after each pass that changed anything that verifiers look at, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from ir_testing import parse
from xdsl.context import Context
from xdsl.dialects import test
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr, f32
from xdsl.ir import Block, Operation, Region
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, make_passes, run_pipeline
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.source import verification
from fuse_opt.tools.source.module_state import is_in, state_of
from fuse_opt.tools.source.verification import OpVerifyError

TEXT = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %k = fused.kernel(%a = %x : tensor<4xf32>, %b = %y : tensor<4xf32>) -> (tensor<4xf32>) {
    %s = graph.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %t = graph.tanh %s : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %t : tensor<4xf32>
  }
  func.return %k : tensor<4xf32>
}"""


def op_of(module: ModuleOp, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


def swap_operands(module: ModuleOp) -> None:
    op = op_of(module, "graph.add")
    op.operands = [op.operands[1], op.operands[0]]


def read_another(module: ModuleOp) -> None:
    op_of(module, "graph.tanh").operands[0] = op_of(module, "graph.add").operands[0]


def set_attribute(module: ModuleOp) -> None:
    op_of(module, "graph.tanh").attributes["note"] = UnitAttr()


def set_property(module: ModuleOp) -> None:
    op_of(module, "func.func").properties["sym_name"] = StringAttr("other")


def change_result(module: ModuleOp) -> None:
    op_of(module, "graph.add").results[0]._type = f32  # pyright: ignore[reportPrivateUsage]


def change_argument(module: ModuleOp) -> None:
    op_of(module, "fused.kernel").regions[0].block.args[0]._type = f32  # pyright: ignore[reportPrivateUsage]


def change_order(module: ModuleOp) -> None:
    op, other = op_of(module, "graph.tanh"), op_of(module, "graph.add")
    op.detach()
    block = other.parent
    assert block is not None
    block.insert_op_before(op, other)


def move_out(module: ModuleOp) -> None:
    op, kernel = op_of(module, "graph.add"), op_of(module, "fused.kernel")
    op.detach()
    block = kernel.parent
    assert block is not None
    block.insert_op_before(op, kernel)


def add_block(module: ModuleOp) -> None:
    op_of(module, "func.func").regions[0].add_block(Block())


def put_a_copy(module: ModuleOp) -> None:
    op = op_of(module, "graph.tanh")
    copy = op.clone()
    Rewriter.replace_op(op, copy)


CHANGES: list[Callable[[ModuleOp], None]] = [
    swap_operands, read_another, set_attribute, set_property, change_result, change_argument, change_order, move_out,
    add_block, put_a_copy,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_change_is_another_state(change: Callable[[ModuleOp], None]) -> None:
    module = parse(TEXT)
    before = state_of(module)
    assert is_in(module, before)
    change(module)
    assert not is_in(module, before)
    assert is_in(module, state_of(module))


def test_successors_and_empty_regions_are_part_of_the_state() -> None:
    first, second = Block(), Block()
    first.add_op(branch := test.TestTermOp(successors=[second]))
    root = test.TestOp(regions=[Region([first, second])])
    before = state_of(root)
    branch.successors = [first]
    assert not is_in(root, before)
    changed = state_of(root)
    root.add_region(Region())
    assert not is_in(root, changed)


@dataclass(frozen=True)
class Change(ModulePass):
    """A pass that does one thing."""

    name = "test-change"
    change: Callable[[ModuleOp], None] = lambda module: None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.change(op)


@pytest.mark.parametrize("change", [change_result, change_argument, change_order, move_out])
def test_what_a_pass_breaks_is_found_after_passes_that_change_nothing(change: Callable[[ModuleOp], None]) -> None:
    with pytest.raises(OpVerifyError, match="after pass 'test-change'"):
        run_pipeline(parse(TEXT), [*make_passes("dce"), Change(change), *make_passes("dce")], make_context())


def test_only_what_changed_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[ModuleOp] = []
    verify = verification.verify

    def counted(module: ModuleOp) -> None:
        verified.append(module)
        verify(module)

    monkeypatch.setattr(verification, "verify", counted)
    module = parse(TEXT)
    run_pipeline(module, [Change(), Change(set_attribute), Change(), *make_passes("dce")], make_context())
    assert len(verified) == 2
    verified.clear()
    run_pipeline(module, [], make_context())
    assert len(verified) == 1, "what a caller did between two pipelines is not known"
    run_pipeline(parse(TEXT), make_passes(DEFAULT_PIPELINE), make_context())
    assert len(verified) - 1 < len(DEFAULT_PIPELINE) / 2
