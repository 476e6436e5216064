"""The verifier of the driver: an op that was right once is looked at again when it, or what is inside of it, changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ir_testing import parse
from xdsl.dialects import arith, math, vector
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import DenseArrayBase, FunctionType, IntegerAttr, StringAttr, TensorType, f64, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from fuse_opt.dialects.fused import KernelOp, YieldOp
from fuse_opt.dialects.graph.elementwise.arithmetic import AddOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp
from fuse_opt.dialects.verify import known_ops
from fuse_opt.tools.source.verification import OpVerifyError, verify

TEXT = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = fused.kernel(%a = %x : tensor<4xf32>, %b = %y : tensor<4xf32>) -> (tensor<4xf32>) {
    %s = graph.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %t = graph.exp %s : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %t : tensor<4xf32>
  }
  %n = arith.constant 1 : i32
  func.return %r : tensor<4xf32>
}"""


class Program:
    def __init__(self) -> None:
        self.module = parse(TEXT)
        found = {type(op): op for op in self.module.walk()}
        function, kernel, add, exp, end = (found[t] for t in (FuncOp, KernelOp, AddOp, ExpOp, YieldOp))
        assert isinstance(function, FuncOp) and isinstance(kernel, KernelOp) and isinstance(end, YieldOp)
        last, number = found[ReturnOp], found[ConstantOp]
        assert isinstance(last, ReturnOp) and isinstance(number, ConstantOp)
        self.last, self.number = last, number
        self.function, self.kernel, self.add, self.exp, self.end = function, kernel, add, exp, end


def use_value_of_function(p: Program) -> None:
    p.add.operands = [p.function.body.block.args[0], p.kernel.block.args[1]]


def use_value_of_other_kernel(p: Program) -> None:
    other = p.kernel.clone()
    p.function.body.block.insert_op_before(other, p.kernel)
    p.exp.operands = [next(iter(other.block.ops)).results[0]]


def put_in_foreign_op(p: Program) -> None:
    p.kernel.block.insert_op_before(ConstantOp.from_int_and_width(1, 32), p.end)


def change_result_type(p: Program) -> None:
    p.kernel.results[0]._type = TensorType(f64, [4])  # pyright: ignore[reportPrivateUsage]


def change_argument_type(p: Program) -> None:
    p.kernel.block.args[0]._type = TensorType(f64, [4])  # pyright: ignore[reportPrivateUsage]


def drop_yield(p: Program) -> None:
    p.end.detach()


def add_block(p: Program) -> None:
    p.kernel.body.add_block(Block([YieldOp.create()]))


def pair_out_of_range(p: Program) -> None:
    p.kernel.inplace = DenseArrayBase.from_list(i64, [0, 7])


def move_yield_into_function(p: Program) -> None:
    p.function.body.block.insert_op_after(YieldOp.create(), p.kernel)


def give_region(p: Program) -> None:
    p.exp.add_region(Region(Block()))


def change_returned_type(p: Program) -> None:
    p.function.function_type = FunctionType.from_lists(p.function.function_type.inputs.data, [TensorType(f64, [4])])


def change_taken_type(p: Program) -> None:
    p.function.function_type = FunctionType.from_lists(
        [TensorType(f64, [4])] * 2, p.function.function_type.outputs.data
    )


def return_less(p: Program) -> None:
    p.last.operands = []


def return_early(p: Program) -> None:
    p.function.body.block.insert_op_before(p.last.clone(), p.last)


def return_in_kernel(p: Program) -> None:
    p.kernel.block.insert_op_before(ReturnOp(p.exp.results[0]), p.end)


def use_value_of_other_function(p: Program) -> None:
    other = p.function.clone()
    other.sym_name = StringAttr("other")
    p.module.body.block.add_op(other)
    p.last.operands = [other.body.block.args[0]]


def change_type_of_number(p: Program) -> None:
    p.number.results[0]._type = f64  # pyright: ignore[reportPrivateUsage]


def change_number(p: Program) -> None:
    p.number.value = IntegerAttr(1, i64)


def give_property(p: Program) -> None:
    p.exp.properties["unknown"] = IntegerAttr(1, i64)


def change_operand_type(p: Program) -> None:
    """Of one object in place of another, in an op in which nothing else changes."""
    p.exp.operands[0]._type = TensorType(f64, [4])  # pyright: ignore[reportPrivateUsage]


def repeat_symbol(p: Program) -> None:
    p.module.body.block.add_op(p.function.clone())


def name_module_by_number(p: Program) -> None:
    p.module.attributes["sym_name"] = IntegerAttr(1, i64)


def add_block_to_module(p: Program) -> None:
    p.module.body.add_block(Block())


BREAKS: list[Callable[[Program], None]] = [
    use_value_of_function, use_value_of_other_kernel, put_in_foreign_op, change_result_type, change_argument_type,
    drop_yield, add_block, pair_out_of_range, move_yield_into_function, give_region, change_returned_type, change_taken_type,
    return_less, return_early, return_in_kernel, use_value_of_other_function, change_type_of_number, change_number,
    give_property, change_operand_type, repeat_symbol, name_module_by_number, add_block_to_module,
]  # fmt: skip


@pytest.mark.parametrize("spoil", BREAKS, ids=lambda spoil: spoil.__name__)
def test_what_was_right_is_looked_at_again(spoil: Callable[[Program], None]) -> None:
    program = Program()
    verify(program.module)
    spoil(program)
    with pytest.raises(OpVerifyError):
        verify(program.module)


def test_the_same_again_is_right() -> None:
    program = Program()
    for _ in range(3):
        verify(program.module)
    verify(Program().module)


def test_dialects_that_are_not_imported_are_called_by_their_names() -> None:
    names = known_ops._OF_TYPES_ALONE  # pyright: ignore[reportPrivateUsage]
    assert names == {module.__name__ for module in (arith, math, vector)}
