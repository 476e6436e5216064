"""Functions of one float: powers, exponentials, trigonometry, rounding."""

from __future__ import annotations

from xdsl.irdl import irdl_op_definition

from . import scalar as sc
from .graph_elementwise import Unary
from .scalar import Scalar


@irdl_op_definition
class SqrtOp(Unary):
    name = "graph.sqrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sqrt(x)


@irdl_op_definition
class RsqrtOp(Unary):
    """1 / sqrt(x)."""

    name = "graph.rsqrt"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.rsqrt(x)


@irdl_op_definition
class ExpOp(Unary):
    name = "graph.exp"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.exp(x)


@irdl_op_definition
class Expm1Op(Unary):
    name = "graph.expm1"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.expm1(x)


@irdl_op_definition
class LogOp(Unary):
    name = "graph.log"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log(x)


@irdl_op_definition
class Log1pOp(Unary):
    name = "graph.log1p"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.log1p(x)


@irdl_op_definition
class SinOp(Unary):
    name = "graph.sin"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.sin(x)


@irdl_op_definition
class CosOp(Unary):
    name = "graph.cos"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.cos(x)


@irdl_op_definition
class TanhOp(Unary):
    name = "graph.tanh"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.tanh(x)


@irdl_op_definition
class ErfOp(Unary):
    name = "graph.erf"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.erf(x)


@irdl_op_definition
class FloorOp(Unary):
    name = "graph.floor"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.floor(x)


@irdl_op_definition
class CeilOp(Unary):
    name = "graph.ceil"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.ceil(x)


@irdl_op_definition
class TruncOp(Unary):
    name = "graph.trunc"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.trunc(x)


@irdl_op_definition
class RoundOp(Unary):
    """To the nearest integer, halves to even."""

    name = "graph.round"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.round_half_even(x)
