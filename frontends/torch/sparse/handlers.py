"""Handlers of overloads that only graphs with sparse tensors have."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from fuse_opt.dialects.graph.sparse.storage import ToStorageOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape, tensor
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import RowSparseAttr, stored_as
from fuse_opt.frontends.torch.fx.api import fx
from fuse_opt.frontends.torch.fx.handler import Call, NotCoveredError, handlers
from fuse_opt.frontends.torch.operators.pointwise import POINTWISE

SPARSE, handler = handlers()


@handler("aten._sparse_mm.default")
def _sparse_mm(call: Call) -> SSAValue:
    return call.emit.matmul(call.tensor("sparse"), call.tensor("dense"))


@handler("aten._sparse_addmm.default", "aten.sparse_sampled_addmm.default")
def _sparse_addmm(call: Call) -> SSAValue:
    """A product, of the second at the places of a pattern alone, times `alpha`, and `beta` times another tensor."""
    operands = call.tensor("mat1"), call.tensor("mat2")
    if "sampled" in str(call.node.target):
        found = call.emit.sampled_matmul(call.tensor("self"), *operands)
    else:
        found = call.emit.matmul(*operands)
    if call["alpha"] != 1:
        found = call.emit.multiply(found, call.number(call["alpha"], dtype(found)))
    if call["beta"] == 0:
        return found
    other = call.tensor("self")
    if call["beta"] != 1:
        other = call.emit.multiply(other, call.number(call["beta"], dtype(other)))
    return call.emit.add(found, other)


@handler("aten.add.Tensor")
def _add(call: Call) -> SSAValue:
    """
    A dense tensor plus a row-sparse one times `alpha`, as a difference: that leaves rows that are absent as they are, where
    a sum makes 0 of -0.
    """
    x, rows = call.tensor("self"), call["other"]
    if not isinstance(rows, fx.Node) or is_stored(x) or not isinstance(stored_as(call.value(rows).type), RowSparseAttr):
        found = POINTWISE["aten.add.Tensor"].build(call)
        assert isinstance(found, SSAValue)
        return found
    scaled = call.emit.multiply(call.value(rows), call.number(-call["alpha"], dtype(x)))
    return call.emit.subtract(x, scaled)


@handler("aten._to_dense.default", "aten.to_dense.default")
def _to_dense(call: Call) -> SSAValue:
    x = call.tensor("self")
    if not is_stored(x):
        return x
    conversion = ToStorageOp.of(x, None)
    call.emit.block.add_op(conversion)
    return call.result(conversion.result)


@handler("aten._sparse_coo_tensor_with_dims_and_tensors.default")
def _rows(call: Call) -> SSAValue:
    """The gradient of a table, from a row for each id: rows of one id are summed."""
    rows, *width = call.shape
    if call["sparse_dim"] != 1 or len(width) != 1:
        raise NotCoveredError("is a sparse tensor that is not a list of rows")
    ids, values = call.tensor("indices"), call.tensor("values")
    found = call.emit.embedding_backward(values, call.reshaped(ids, shape(ids)[1:]), rows=rows, wrap_negative=False)
    kind = RowSparseAttr.of(min(shape(values)[0], rows))
    return Rewriter.replace_value_with_new_type(found, with_encoding(tensor(found), kind))
