"""Activation functions of neural networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import irdl_op_definition, opt_prop_def
from xdsl.utils.exceptions import VerifyException

from . import scalar as sc
from .graph_elementwise import Unary
from .graph_op import AnyTensor
from .scalar import Scalar


@irdl_op_definition
class SigmoidOp(Unary):
    """1 / (1 + exp(-x))."""

    name = "graph.sigmoid"
    SLACK: ClassVar[float] = 1e-6

    def scalar(self, x: Scalar) -> Scalar:
        return 1.0 / (1.0 + sc.exp(-x))


@irdl_op_definition
class ReluOp(Unary):
    """max(x, 0); NaN stays NaN."""

    name = "graph.relu"

    def scalar(self, x: Scalar) -> Scalar:
        return sc.maximum(x, 0)


@irdl_op_definition
class SiluOp(Unary):
    """x * sigmoid(x) (Elfwing et al. 2017)."""

    name = "graph.silu"
    SLACK: ClassVar[float] = 1e-6

    def scalar(self, x: Scalar) -> Scalar:
        return x / (1.0 + sc.exp(-x))


@irdl_op_definition
class GeluOp(Unary):
    """Gaussian error linear unit, x * Phi(x) (Hendrycks & Gimpel 2016); `approximate` is "none" (erf) or "tanh"."""

    name = "graph.gelu"
    SLACK: ClassVar[float] = 6
    approximate = opt_prop_def(StringAttr)

    def scalar(self, x: Scalar) -> Scalar:
        if self.approximate is not None and self.approximate.data == "tanh":
            return 0.5 * x * (1.0 + sc.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1.0 + sc.erf(x * 0.7071067811865476))

    def infer_types(self) -> Sequence[AnyTensor]:
        if self.approximate is not None and self.approximate.data not in ("none", "tanh"):
            raise VerifyException(f'attribute \'approximate\': expected "none" or "tanh", got {self.approximate}')
        return super().infer_types()
