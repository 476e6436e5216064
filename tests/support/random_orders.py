"""Random orders of memory for the values of a program: the same program, with conversions where ops ask for them."""

from __future__ import annotations

import random

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.analysis.storage import DONATED, argument_attributes
from fuse_opt.dialects.graph.movement.layouts import ToLayoutOp
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import shape, tensor
from fuse_opt.dialects.types.encodings import EncodingPart, OrderAttr, PanelAttr, with_encoding


def with_orders(module: ModuleOp, seed: int, panels: bool = True) -> int:
    """
    Gives arguments of several axes an order now and then, converts values here and there, and lets ops hand encodings on;
    values inside may lie in panels. How many values have an encoding then.
    """
    rng = random.Random(f"orders {seed}")
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    block = function.body.block
    for number, value in enumerate(list(block.args)):
        if rng.random() < 0.5 and DONATED not in argument_attributes(function, number):
            Rewriter.replace_value_with_new_type(value, with_encoding(tensor(value), random_order(rng, value)))
    for op in list(block.ops):
        if not isinstance(op, GraphOp):
            continue
        _retype(op)
        (*_, result) = op.results
        if rng.random() < 0.2 and op.next_op is not None:
            found: EncodingPart | None = random_order(rng, result)
            if panels and rng.random() < 0.3:
                found = random_panel(rng, result)
            conversion = ToLayoutOp.of(result, found)
            uses = [use for use in result.uses if use.operation is not conversion and rng.random() < 0.7]
            block.insert_op_after(conversion, op)
            for use in uses:
                use.operation.operands[use.index] = conversion.result
    last = block.last_op
    assert last is not None
    for number, value in enumerate(last.operands):
        if (found := encoding(value)) is not None and found.strides(shape(value)) is None:
            block.insert_op_before(conversion := ToLayoutOp.of(value, None), last)
            last.operands[number] = conversion.result
    function.update_function_type()
    return sum(encoding(value) is not None for op in block.ops for value in (*op.operands, *op.results))


def random_order(rng: random.Random, value: SSAValue) -> OrderAttr | None:
    axes = list(range(len(shape(value))))
    rng.shuffle(axes)
    return OrderAttr.of(axes) if rng.random() < 0.9 else None


def random_panel(rng: random.Random, value: SSAValue) -> PanelAttr | None:
    axes, extents = range(len(shape(value))), shape(value)
    found = [PanelAttr.of(axis, width, group) for axis in axes for width in (2, 4) for group in (1, 2)]
    able = [panel for panel in found if extents[panel.axis.data] and panel.problem(extents) is None]
    return rng.choice(able) if able else None


def _retype(op: GraphOp) -> None:
    """The types that follow from those of the operands; these are converted where they are refused."""
    try:
        types = op.encoded_types()
        for result, type_ in zip(list(op.results), types, strict=True):
            Rewriter.replace_value_with_new_type(result, type_)
        op.verify_()
    except VerifyException:
        block = op.parent
        assert block is not None
        for number, value in enumerate(op.operands):
            if encoding(value) is not None:
                block.insert_op_before(conversion := ToLayoutOp.of(value, None), op)
                op.operands[number] = conversion.result
        for result, type_ in zip(list(op.results), op.encoded_types(), strict=True):
            Rewriter.replace_value_with_new_type(result, type_)
