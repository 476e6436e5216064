"""Reads at positions that are data: take, gather, index.

Indices are of any integer type and count from the end when negative, unless an op has `wrap_negative = false`: then they
are out of range. One that is out of range is an error of the run, not of the compiler: implementations raise `IndexError`,
which names the op, the index and what was expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    TensorType,
)
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.bases.movement import AxisOp
from fuse_opt.dialects.graph.movement.read_at import ReadAtOp, along_type, checked_positions, index_shape
from fuse_opt.dialects.graph.movement.views import BroadcastToOp, ReshapeOp
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import IntArray, extents_array, int_value, ints, normalize_axis
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    agree,
    is_static,
    shape,
    shape_text,
    tensor,
    tensor_type,
)
from fuse_opt.dialects.interfaces.stored_rules import StoredRule, taken_rule


def _wraps(wrap_negative: BoolAttr | None) -> bool:
    return wrap_negative is None or bool(wrap_negative.value.data)


@irdl_op_definition
class TakeOp(AxisOp, OpaqueOp):
    """The elements of x at `indices` along `axis` (default 0): array API `take`, ONNX `Gather`.

    The indices' axes, of any number, take the place of that axis.
    """

    name = "graph.take"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    result = result_def(TensorType)
    wrap_negative = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source, indices = shape(self.x), index_shape(self.indices)
        axis = self.checked_axis()
        return (tensor_type(tensor(self.x).element_type, [*source[:axis], *indices, *source[axis + 1 :]]),)

    def elements_touched(self) -> Sequence[int | None]:
        """Of x no more than are taken."""
        return (prod(shape(self.result)), None, None) if is_static(self.result) else ()

    def as_reads(self, builder: GraphBuilder) -> SSAValue | None:
        return _taken(builder, self, [(self.checked_axis(), self.indices)])

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        """Of rows of a csr matrix."""
        (type_,) = self.infer_types()
        return taken_rule(self.x, self.indices, type_, self.checked_axis(), _wraps(self.wrap_negative))


@irdl_op_definition
class EmbeddingOp(CompositeOp):
    """The rows of `weight` [rows, width] that `ids` names, as [ids..., width]: `graph.take` along axis 0."""

    name = "graph.embedding"
    weight = operand_def(TensorType)
    ids = operand_def(TensorType)
    result = result_def(TensorType)
    wrap_negative = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        weight, ids = shape(self.weight), index_shape(self.ids, "ids")
        if len(weight) != 2:
            raise VerifyException(f"operand 'weight': expected [rows, width], got {shape_text(weight)}; use graph.take")
        return (tensor_type(tensor(self.weight).element_type, [*ids, weight[1]]),)

    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        wraps = {} if self.wrap_negative is None else {"wrap_negative": self.wrap_negative}
        return (builder(TakeOp, self.weight, self.ids, axis=int_value(0), **wraps),)

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        """Of rows of a csr matrix."""
        (type_,) = self.infer_types()
        return taken_rule(self.weight, self.ids, type_, 0, _wraps(self.wrap_negative))


@irdl_op_definition
class TakeAlongAxisOp(AxisOp, OpaqueOp):
    """Element by element the one of x at that position, but for `axis` (default -1), where `indices` says it.

    As array API `take_along_axis`: of equal ranks, and the other axes broadcast. torch's `gather`, whose indices may be
    shorter than x there, is this op on a slice of x.
    """

    name = "graph.take_along_axis"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    DEFAULT_AXIS: ClassVar[int] = -1
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    result = result_def(TensorType)
    wrap_negative = opt_prop_def(BoolAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        return (along_type(self.x, self.indices, self.checked_axis()),)

    def canonical(self) -> GraphOp | None:
        """At what the indices were broadcast from, where x has the extents that they were broadcast to."""
        inner = self.indices.owner
        if not isinstance(inner, BroadcastToOp) or len(shape(inner.x)) != len(shape(self.x)):
            return None
        made = TakeAlongAxisOp.build_op(self.x, inner.x, **self.properties)
        if made.result.type == self.result.type:
            return made
        made.erase()
        return None

    def as_reads(self, builder: GraphBuilder) -> SSAValue | None:
        axis = self.checked_axis()
        at = checked_positions(builder, self, self.indices, axis, shape(self.x)[axis])
        return builder(ReadAtOp, self.x, at, axis=int_value(axis))


def _taken(builder: GraphBuilder, op: OpaqueOp, pairs: Sequence[tuple[int, SSAValue]]) -> SSAValue:
    """The elements of an op's first operand at indices, axis by axis, whose axes take the place of that one."""
    read = op.operands[0]
    for axis, indices in pairs:
        extents = [1] * len(shape(read))
        extents[axis] = prod(shape(indices))
        at = builder(
            ReshapeOp, checked_positions(builder, op, indices, axis, shape(read)[axis]), shape=extents_array(extents)
        )
        read = builder(ReadAtOp, read, at, axis=int_value(axis))
    return builder(ReshapeOp, read, shape=extents_array(shape(op.results[0])))


def merged(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """What is known of two shapes that agree."""
    return tuple(m if n == DYNAMIC_INDEX else n for n, m in zip(a, b, strict=True))


def position_length(indices: Sequence[int], rank: int, batch: int = 0) -> int:
    """The extent of the last axis of `indices`, whose entries are positions; raises VerifyException when there is none."""
    if not indices or not 0 < indices[-1] <= rank - batch:
        raise VerifyException(
            f"operand 'indices': expected positions of a static length from 1 to {rank - batch} along the last axis, "
            f"got {shape_text(indices)}"
        )
    return indices[-1]


@irdl_op_definition
class GatherNdOp(OpaqueOp):
    """The parts of x at the positions along the last axis of `indices`: ONNX `GatherND`.

    Behind `batch_dims` (default 0) leading axes, which x and the indices have in common, a position of length k names the
    next k axes of x; the rest of its axes follow those of the indices.
    """

    name = "graph.gather_nd"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    result = result_def(TensorType)
    batch_dims = opt_prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        source, indices = shape(self.x), index_shape(self.indices)
        batch = 0 if self.batch_dims is None else self.batch_dims.value.data
        if not 0 <= batch < max(1, min(len(source), len(indices))) or not agree(source[:batch], indices[:batch]):
            raise VerifyException(
                f"attribute 'batch_dims': expected {batch} leading axes that are equal, fewer than either rank, "
                f"got {shape_text(source)} and {shape_text(indices)}"
            )
        length = position_length(indices, len(source), batch)
        extents = [*merged(source[:batch], indices[:batch]), *indices[batch:-1], *source[batch + length :]]
        return (tensor_type(tensor(self.x).element_type, extents),)


def indexed_shape(x: SSAValue, indices: Sequence[SSAValue], axes: IntArray | None) -> tuple[int, ...]:
    """The shape of `x[i, :, j]` with the indices at `axes`; raises VerifyException when they do not fit x."""
    source, count = shape(x), len(indices)
    given = ints(axes, range(count))
    chosen = [normalize_axis(axis, len(source)) for axis in given]
    if not chosen or len(chosen) != count or len(set(chosen)) != count:
        raise VerifyException(
            f"attribute 'axes': expected a different axis for each of {count} index tensors, 1 or more, got {list(given)}"
        )
    together = broadcast_shapes([index_shape(value) for value in indices])
    rest = [n for axis, n in enumerate(source) if axis not in chosen]
    first = min(chosen)
    at = first if sorted(chosen) == list(range(first, first + count)) else 0
    return (*rest[:at], *together, *rest[at:])


@irdl_op_definition
class IndexOp(OpaqueOp):
    """The elements of x at one index tensor for each of `axes` (default the first ones): NumPy's and torch's `x[i, :, j]`.

    The index tensors broadcast together. Their axes take the place of `axes` where those are next to each other, else
    they come first.
    """

    name = "graph.index"
    ACCEPTS_STORAGE: ClassVar[bool] = True
    x = operand_def(TensorType)
    indices = var_operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def infer_types(self) -> Sequence[AnyTensor]:
        return (tensor_type(tensor(self.x).element_type, indexed_shape(self.x, self.indices, self.axes)),)

    def as_reads(self, builder: GraphBuilder) -> SSAValue | None:
        """Of one index tensor, and of several that go along axes of their own, the same as of one `take` after another."""
        count = len(self.indices)
        axes = [normalize_axis(axis, len(shape(self.x))) for axis in ints(self.axes, range(count))]
        if count > 1 and not (axes == list(range(axes[0], axes[0] + count)) and self._go_apart()):
            return None
        return _taken(builder, self, list(zip(axes, self.indices, strict=True)))

    def repeated_reads(self) -> int:
        """Each index tensor is read for all places that they name together."""
        shapes = [index_shape(value) for value in self.indices]
        return sum(prod(broadcast_shapes(shapes)) - prod(each) for each in shapes)

    def _go_apart(self) -> bool:
        """Whether indices have the axes of all of them together among themselves, those of one before those of the next."""
        shapes = [index_shape(value) for value in self.indices]
        rank = max(map(len, shapes))
        aligned = [[1] * (rank - len(each)) + list(each) for each in shapes]
        owners = [[number for number, each in enumerate(aligned) if each[axis] != 1] for axis in range(rank)]
        order = [owner for each in owners for owner in each]
        return all(len(each) <= 1 for each in owners) and order == sorted(order)
