"""Steps of optimizers that keep state: of all elements, and lazy ones, of the rows alone that a gradient has.

A lazy step leaves the state of other rows as it is, where the dense one lets it decay: other numbers, so that no pass puts one
in the place of the other. Gradient descent without state has no need of this: `graph.subtract` of a row-sparse gradient
touches its rows alone, with equal bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.creation.constant import number_constant, scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import (
    AddOp,
    DivideOp,
    MultiplyOp,
    SquareOp,
    SubtractOp,
    WhereOp,
)
from fuse_opt.dialects.graph.elementwise.comparison import NotEqualOp
from fuse_opt.dialects.graph.elementwise.math import SqrtOp
from fuse_opt.dialects.graph.reductions.composite import check_shape, narrowed, number, widened
from fuse_opt.dialects.graph.reductions.reductions import AnyOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.properties import bool_value, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, tensor
from fuse_opt.dialects.interfaces.stored_rules import RowUpdate, StoredRule
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import RowSparseAttr, stored_as


class _Step(CompositeOp):
    """Operands are the weight, its gradient, a rate of rank 0, and the state; results the new weight and the new state."""

    SLACK: ClassVar[float] = 16.0

    def infer_types(self) -> Sequence[AnyTensor]:
        weight, grad, rate, *state = self._operands
        for name, value in (("weight", weight), ("grad", grad), ("rate", rate), *(("state", value) for value in state)):
            if not dtype(value).is_float or dtype(value) is not dtype(weight):
                raise VerifyException(
                    f"operand '{name}': expected floats of the weight's type, got '{value.type}'; insert graph.astype"
                )
            check_shape(name, value, () if name == "rate" else shape(weight))
        return tuple(with_encoding(tensor(weight), None) for _ in (weight, *state))

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        found = self._stepped(builder, [widened(builder, value) for value in self.operands])
        return [narrowed(builder, value, self.operands[0]) for value in found]

    @abstractmethod
    def _stepped(self, builder: GraphBuilder, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The results, from operands in the type that is computed in."""


class _LazyStep(_Step):
    """Rows of a row-sparse gradient are those that are stored, zeros among them; of a dense one those that are not 0."""

    STEP: ClassVar[type[_Step]]
    """The step of all elements."""

    def infer_types(self) -> Sequence[AnyTensor]:
        if not shape(self.operands[0]):
            raise VerifyException("operand 'weight': expected a tensor of rows, got a scalar")
        return super().infer_types()

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        stored = [number for number, value in enumerate(self.operands) if stored_as(value.type) is not None]
        if stored != [1] or not isinstance(stored_as(self.operands[1].type), RowSparseAttr):
            return None
        return RowUpdate(tuple(self.infer_types()), (0, *range(3, len(self.operands))), self.STEP)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        weight, grad, _, *state = self.operands
        there = builder(NotEqualOp, grad, number_constant(builder, 0, grad))
        if len(shape(grad)) > 1:
            axes = int_array(range(1, len(shape(grad))))
            there = builder(AnyOp, there, axes=axes, keepdims=bool_value(True))
        stepped = super().decompose(builder)
        return [builder(WhereOp, there, new, old) for new, old in zip(stepped, (weight, *state), strict=True)]


class _Momentum(_Step):
    weight = operand_def(TensorType)
    grad = operand_def(TensorType)
    rate = operand_def(TensorType)
    velocity = operand_def(TensorType)
    new_weight = result_def(TensorType)
    new_velocity = result_def(TensorType)
    momentum = opt_prop_def(FloatAttr)

    def _stepped(self, builder: GraphBuilder, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        weight, grad, rate, velocity = operands
        factor = scalar_constant(builder, number(self.momentum, 0.9), velocity)
        velocity = builder(AddOp, builder(MultiplyOp, velocity, factor), grad)
        return builder(SubtractOp, weight, builder(MultiplyOp, velocity, rate)), velocity


class _Adam(_Step):
    weight = operand_def(TensorType)
    grad = operand_def(TensorType)
    rate = operand_def(TensorType)
    mean = operand_def(TensorType)
    square = operand_def(TensorType)
    new_weight = result_def(TensorType)
    new_mean = result_def(TensorType)
    new_square = result_def(TensorType)
    beta1 = opt_prop_def(FloatAttr)
    beta2 = opt_prop_def(FloatAttr)
    epsilon = opt_prop_def(FloatAttr)

    def _stepped(self, builder: GraphBuilder, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        weight, grad, rate, mean, square = operands
        mean = _towards(builder, mean, grad, 1 - number(self.beta1, 0.9))
        square = _towards(builder, square, builder(SquareOp, grad), 1 - number(self.beta2, 0.999))
        size = builder(AddOp, builder(SqrtOp, square), scalar_constant(builder, number(self.epsilon, 1e-8), square))
        step = builder(MultiplyOp, builder(DivideOp, mean, size), rate)
        return builder(SubtractOp, weight, step), mean, square


def _towards(builder: GraphBuilder, x: SSAValue, to: SSAValue, share: float) -> SSAValue:
    """x + (to - x) * share."""
    way = builder(MultiplyOp, builder(SubtractOp, to, x), scalar_constant(builder, share, x))
    return builder(AddOp, x, way)


@irdl_op_definition
class MomentumOp(_Momentum):
    """Gradient descent with momentum (Polyak 1964): velocity * momentum + grad, and weight - rate * that.

    Results are the weight and the velocity. `rate` is of rank 0; `momentum` is 0.9 when absent.
    """

    name = "graph.momentum"


@irdl_op_definition
class LazyMomentumOp(_Momentum, _LazyStep):
    """`graph.momentum` on the rows that a gradient has; other rows of weight and velocity stay as they are.

    Other numbers than `graph.momentum` gives: there the velocity of rows without a gradient decays and moves their weights.
    Rows of a dense gradient are those that are not 0 throughout.
    """

    name = "graph.lazy_momentum"
    STEP: ClassVar[type[_Step]] = MomentumOp


@irdl_op_definition
class AdamOp(_Adam):
    """Adam (Kingma & Ba 2015) with the corrections of bias in the rate: weight - rate * mean / (sqrt(square) + epsilon).

    Results are the weight, the mean of gradients, mean + (grad - mean) * (1 - beta1), and that of their squares, with beta2.
    `rate` is of rank 0: in step t the learning rate times sqrt(1 - beta2**t) / (1 - beta1**t). `beta1` is 0.9, `beta2`
    0.999 and `epsilon` 1e-8 when absent.
    """

    name = "graph.adam"


@irdl_op_definition
class LazyAdamOp(_Adam, _LazyStep):
    """`graph.adam` on the rows that a gradient has, as `torch.optim.SparseAdam`; other rows stay as they are.

    Other numbers than `graph.adam` gives: there both means decay in rows without a gradient, and their weights move. Rows of
    a dense gradient are those that are not 0 throughout.
    """

    name = "graph.lazy_adam"
    STEP: ClassVar[type[_Step]] = AdamOp
