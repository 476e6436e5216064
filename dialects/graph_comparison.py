"""Comparisons, logic and bits: results of i1, or integers bit by bit."""

from __future__ import annotations

from xdsl.irdl import irdl_op_definition

from . import scalar as sc
from .graph_elementwise import Binary, Unary
from .scalar import Scalar


@irdl_op_definition
class EqualOp(Binary):
    name = "graph.equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.equal(x, y)


@irdl_op_definition
class NotEqualOp(Binary):
    name = "graph.not_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return sc.not_equal(x, y)


@irdl_op_definition
class LessOp(Binary):
    name = "graph.less"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x < y


@irdl_op_definition
class LessEqualOp(Binary):
    name = "graph.less_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x <= y


@irdl_op_definition
class GreaterOp(Binary):
    name = "graph.greater"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x > y


@irdl_op_definition
class GreaterEqualOp(Binary):
    name = "graph.greater_equal"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x >= y


@irdl_op_definition
class LogicalAndOp(Binary):
    """Conjunction of truth values."""

    name = "graph.logical_and"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x & y


@irdl_op_definition
class LogicalOrOp(Binary):
    """Disjunction of truth values."""

    name = "graph.logical_or"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x | y


@irdl_op_definition
class LogicalXorOp(Binary):
    """Exclusive or of truth values."""

    name = "graph.logical_xor"

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        return x ^ y


@irdl_op_definition
class LogicalNotOp(Unary):
    """Negation of a truth value."""

    name = "graph.logical_not"

    def scalar(self, x: Scalar) -> Scalar:
        return ~x
