"""Conversions between storage kinds, and ops that mean something about what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import TensorType
from xdsl.ir import OpResult, SSAValue, SSAValues
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.contractions.matmul import MatmulOp
from fuse_opt.dialects.graph.creation.constant import number_constant, scalar_constant
from fuse_opt.dialects.graph.elementwise.arithmetic import DivideOp, SubtractOp, WhereOp
from fuse_opt.dialects.graph.elementwise.comparison import NotEqualOp
from fuse_opt.dialects.graph.elementwise.math import ExpOp
from fuse_opt.dialects.graph.reductions.reductions import MaxOp, SumOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import bool_value, int_array
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, shape, tensor
from fuse_opt.dialects.interfaces.stored_rules import Conversion, SampledProduct, StoredRule, StoredSoftmax
from fuse_opt.dialects.types.dtypes import BOOL
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import CsrAttr, StorageKind, stored_as


@irdl_op_definition
class ToStorageOp(OpaqueOp):
    """The same elements stored as the result's type says: dense, csr or row-sparse; or with another capacity.

    `graph.to_storage %x : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.csr<capacity = 6>>`. Of a dense tensor what is not 0 is
    stored, NaN too. More entries than the capacity are an error of the run.
    """

    name = "graph.to_storage"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def of(cls, value: SSAValue, kind: StorageKind | None) -> Self:
        """A value stored in another way; dense for None."""
        op = cls.create(operands=[value])
        op.results = SSAValues([OpResult(with_encoding(tensor(value), kind), op, 0)])
        return op

    def infer_types(self) -> Sequence[AnyTensor]:
        """A result that is not there yet is dense: nothing says another kind."""
        given, wanted = self._kinds()
        if given is not None and wanted is not None and type(given) is not type(wanted):
            raise VerifyException(
                f"cannot convert from {given.storage_kind} to {wanted.storage_kind} at once; convert to a dense tensor between"
            )
        return (with_encoding(tensor(self.x), wanted),)

    def _kinds(self) -> tuple[StorageKind | None, StorageKind | None]:
        return stored_as(self.x.type), stored_as(self.result.type) if self.results else None

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        """None between two kinds, of which one was given to an operand that was written as dense."""
        given, wanted = self._kinds()
        if given is not None and wanted is not None and type(given) is not type(wanted):
            return None
        return Conversion((with_encoding(tensor(self.x), wanted),))


@irdl_op_definition
class SampledMatmulOp(CompositeOp):
    """The elements of `x @ y` where `pattern` [m, n] has entries, of x [m, k] and y [k, n]; 0 elsewhere. SDDMM.

    Of a csr pattern only these are computed, its values are not read. A dense one has entries where it is not 0.
    """

    name = "graph.sampled_matmul"
    pattern = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        pattern, x, y = shape(self.pattern), shape(self.x), shape(self.y)
        if len(x) != 2 or len(y) != 2 or pattern != (x[0], y[1]) or x[1] != y[0]:
            raise VerifyException(
                f"expected a pattern of [m, n], x of [m, k] and y of [k, n], got '{self.pattern.type}', '{self.x.type}' and "
                f"'{self.y.type}'"
            )
        if dtype(self.x) is not dtype(self.y) or dtype(self.x) is BOOL:
            raise VerifyException(
                f"element types {dtype(self.x)} and {dtype(self.y)}: expected numbers of one type; insert graph.astype"
            )
        return (TensorType(tensor(self.x).element_type, pattern),)

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        kind = stored_as(self.pattern.type)
        if not isinstance(kind, CsrAttr) or stored_as(self.x.type) or stored_as(self.y.type):
            return None
        return SampledProduct(tuple(with_encoding(type_, kind) for type_ in self.infer_types()))

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        there = builder(NotEqualOp, self.pattern, number_constant(builder, 0, self.pattern))
        product = builder(MatmulOp, self.x, self.y)
        return (builder(WhereOp, there, product, number_constant(builder, 0, product)),)


@irdl_op_definition
class StoredSoftmaxOp(CompositeOp):
    """The softmax of each row of a matrix over its entries alone: 0 where there are none.

    A csr operand has the entries that are stored, zeros among them. A dense one has entries where it is not 0.
    """

    name = "graph.stored_softmax"
    SLACK: ClassVar[float] = 8.0
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        if len(shape(self.x)) != 2 or not dtype(self.x).is_float:
            raise VerifyException(f"operand 'x': expected a matrix of floats, got '{self.x.type}'")
        return (with_encoding(tensor(self.x), None),)

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        kind = stored_as(self.x.type)
        if not isinstance(kind, CsrAttr):
            return None
        return StoredSoftmax((with_encoding(tensor(self.x), kind),))

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        x, keep = self.x, {"axes": int_array([1]), "keepdims": bool_value(True)}
        there = builder(NotEqualOp, x, scalar_constant(builder, 0.0, x))
        zero = scalar_constant(builder, 0.0, x)
        if not shape(x)[1]:
            return (builder(WhereOp, there, x, zero),)
        scores = builder(WhereOp, there, x, scalar_constant(builder, float("-inf"), x))
        shifted = builder(SubtractOp, scores, builder(MaxOp, scores, **keep))
        weights = builder(WhereOp, there, builder(ExpOp, shifted), zero)
        return (builder(WhereOp, there, builder(DivideOp, weights, builder(SumOp, weights, **keep)), zero),)
