"""Ops over the parts of csr matrices: patterns apart from values, so that what shares a pattern works it out once.

A pattern is `indptr` [rows + 1] and `indices` [capacity], both i32: row r has the columns `indices[indptr[r]:indptr[r + 1]]`,
which ascend. Behind the last one, `indices` holds zeros. These ops are what `lower-storage` writes; a pattern that is none
(a column out of range, rows that do not follow each other) is an error of the run, not of the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.op import ErrorBound
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, is_static, shape, shape_text, tensor
from fuse_opt.dialects.types.dtypes import BOOL, I32
from fuse_opt.dialects.types.storage_kinds import MOST_ENTRIES

REDUCTIONS = ("add", "max")


def positions(name: str, value: SSAValue, extents: Sequence[int] | None = None) -> int:
    """The extent of an operand of positions; raises VerifyException for other types."""
    if dtype(value) is not I32 or len(shape(value)) != 1 or not is_static(value):
        raise VerifyException(f"operand '{name}': expected a list of i32 of known length, got '{value.type}'")
    if extents is not None and shape(value) != tuple(extents):
        raise VerifyException(f"operand '{name}': expected shape {shape_text(extents)}, got {shape_text(shape(value))}")
    return shape(value)[0]


def row_count(indptr: SSAValue, name: str = "indptr") -> int:
    """The rows that a pattern has."""
    if (count := positions(name, indptr)) < 1:
        raise VerifyException(f"operand '{name}': expected one element more than there are rows, got none")
    return count - 1


def _check_values(values: SSAValue, capacity: int) -> None:
    if shape(values) != (capacity,):
        raise VerifyException(f"operand 'values': expected {capacity} as there are indices, got '{values.type}'")


def _matrix(name: str, value: SSAValue) -> tuple[int, int]:
    extents = shape(value)
    if len(extents) != 2 or not is_static(value):
        raise VerifyException(f"operand '{name}': expected a matrix of known extents, got '{value.type}'")
    return extents[0], extents[1]


def count_of(name: str, attribute: IntegerAttr) -> int:
    """A property that is a count; raises VerifyException for one that is none."""
    count = attribute.value.data
    if not 0 <= count < MOST_ENTRIES:
        raise VerifyException(f"attribute '{name}': expected 0 <= {name} < {MOST_ENTRIES}, got {count}")
    return count


def _list(count: int, element: Attribute = i32) -> AnyTensor:
    return TensorType(element, [count])


@irdl_op_definition
class CsrMatmulOp(OpaqueOp):
    """`A @ x` of a csr matrix A [rows, columns] and a dense one [columns, n]: [rows, n].

    Each element is a sum over what is stored of its row, in the order of columns, in several running sums, whose number follows
    from shapes alone. Narrow floats are computed in f32 and rounded once; integers wrap.
    """

    name = "graph.csr_matmul"
    indptr = operand_def(TensorType)
    indices = operand_def(TensorType)
    values = operand_def(TensorType)
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        rows, capacity = row_count(self.indptr), positions("indices", self.indices)
        _check_values(self.values, capacity)
        if dtype(self.values) is not dtype(self.x) or dtype(self.x) is BOOL:
            raise VerifyException(
                f"element types {dtype(self.values)} and {dtype(self.x)}: expected numbers of one type; insert graph.astype"
            )
        return (TensorType(tensor(self.x).element_type, [rows, _matrix("x", self.x)[1]]),)

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0, 32.0)


@irdl_op_definition
class CsrSampledMatmulOp(OpaqueOp):
    """The elements of `x @ y.T` at the places of a pattern: of x [rows, k] and y [columns, k], a list as long as `indices`.

    Behind the pattern's last place it holds zeros.
    """

    name = "graph.csr_sampled_matmul"
    indptr = operand_def(TensorType)
    indices = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        rows, capacity = row_count(self.indptr), positions("indices", self.indices)
        x, y = _matrix("x", self.x), _matrix("y", self.y)
        if x[0] != rows or x[1] != y[1] or dtype(self.x) is not dtype(self.y) or dtype(self.x) is BOOL:
            raise VerifyException(
                f"expected x of [{rows}, k] and y of [columns, k] of one type of numbers, got '{self.x.type}' and "
                f"'{self.y.type}'"
            )
        return (_list(capacity, tensor(self.x).element_type),)

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0, 32.0)


@irdl_op_definition
class CsrReduceOp(OpaqueOp):
    """The values of each row joined: their sum (`reduce = "add"`, the default), or the largest of floats ("max").

    Sums are in the order of columns. A row without entries has 0, or -inf.
    """

    name = "graph.csr_reduce"
    indptr = operand_def(TensorType)
    values = operand_def(TensorType)
    result = result_def(TensorType)
    reduce = opt_prop_def(StringAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        rows, reduce = row_count(self.indptr), "add" if self.reduce is None else self.reduce.data
        if reduce not in REDUCTIONS:
            raise VerifyException(f"attribute 'reduce': expected one of {', '.join(REDUCTIONS)}, got \"{reduce}\"")
        if len(shape(self.values)) != 1 or dtype(self.values) is BOOL:
            raise VerifyException(f"operand 'values': expected a list of numbers, got '{self.values.type}'")
        if reduce == "max" and not dtype(self.values).is_float:
            raise VerifyException(f"operand 'values': expected floats, got '{self.values.type}'; insert graph.astype")
        return (_list(rows, tensor(self.values).element_type),)

    def error_bound(self) -> ErrorBound:
        return ErrorBound(1.0, shape(self.values)[0])


@irdl_op_definition
class CsrRowsOp(OpaqueOp):
    """The row of each entry of a pattern, as a list of `capacity`; zeros behind the last one."""

    name = "graph.csr_rows"
    indptr = operand_def(TensorType)
    result = result_def(TensorType)
    capacity = prop_def(IntegerAttr)

    def infer_types(self) -> Sequence[AnyTensor]:
        row_count(self.indptr)
        return (_list(count_of("capacity", self.capacity)),)


@irdl_op_definition
class CsrTransposeOp(OpaqueOp):
    """The pattern of the transposed matrix, which has `columns` rows, and where each of its entries is in the operand's.

    Entries are in the order of rows, then of columns; the values of the transposed matrix are those at `places`. Behind the
    last entry `places` holds zeros.
    """

    name = "graph.csr_transpose"
    indptr = operand_def(TensorType)
    indices = operand_def(TensorType)
    columns = prop_def(IntegerAttr)
    new_indptr = result_def(TensorType)
    new_indices = result_def(TensorType)
    places = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        row_count(self.indptr)
        capacity = positions("indices", self.indices)
        return _list(count_of("columns", self.columns) + 1), _list(capacity), _list(capacity)


@irdl_op_definition
class CsrUnionOp(OpaqueOp):
    """The pattern of the places that are in one of two patterns, and where each is in the one (`a`) and the other (`b`).

    -1 says that it is not there; so does what lies behind the last place. More places than `capacity` are an error of the
    run.
    """

    name = "graph.csr_union"
    a_indptr = operand_def(TensorType)
    a_indices = operand_def(TensorType)
    b_indptr = operand_def(TensorType)
    b_indices = operand_def(TensorType)
    capacity = prop_def(IntegerAttr)
    indptr = result_def(TensorType)
    indices = result_def(TensorType)
    a = result_def(TensorType)
    b = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        rows, capacity = row_count(self.a_indptr, "a_indptr"), count_of("capacity", self.capacity)
        positions("b_indptr", self.b_indptr, (rows + 1,))
        for name, value in (("a_indices", self.a_indices), ("b_indices", self.b_indices)):
            positions(name, value)
        return _list(rows + 1), _list(capacity), _list(capacity), _list(capacity)


@irdl_op_definition
class CsrTakeOp(OpaqueOp):
    """The pattern of the rows that `ids` names, one behind the other, and where each of its entries is in the operand's.

    Negative ids count from the end, unless `wrap_negative` is false. More entries than `capacity` are an error of the run.
    Behind the last entry `places` holds zeros.
    """

    name = "graph.csr_take"
    indptr = operand_def(TensorType)
    indices = operand_def(TensorType)
    ids = operand_def(TensorType)
    capacity = prop_def(IntegerAttr)
    wrap_negative = opt_prop_def(BoolAttr)
    new_indptr = result_def(TensorType)
    new_indices = result_def(TensorType)
    places = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        row_count(self.indptr)
        positions("indices", self.indices)
        if dtype(self.ids).is_float or dtype(self.ids) is BOOL or len(shape(self.ids)) != 1 or not is_static(self.ids):
            raise VerifyException(f"operand 'ids': expected a list of integers of known length, got '{self.ids.type}'")
        capacity = count_of("capacity", self.capacity)
        return _list(shape(self.ids)[0] + 1), _list(capacity), _list(capacity)


@irdl_op_definition
class CsrFromDenseOp(OpaqueOp):
    """The parts of a matrix as csr: of its elements that are not 0, NaN among them; neither zero is stored.

    More of them than `capacity` are an error of the run. Behind the last one `values` holds zeros.
    """

    name = "graph.csr_from_dense"
    x = operand_def(TensorType)
    capacity = prop_def(IntegerAttr)
    indptr = result_def(TensorType)
    indices = result_def(TensorType)
    values = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        rows, _ = _matrix("x", self.x)
        capacity = count_of("capacity", self.capacity)
        return _list(rows + 1), _list(capacity), _list(capacity, tensor(self.x).element_type)


@irdl_op_definition
class CsrToDenseOp(OpaqueOp):
    """A csr matrix of `columns` columns as a dense one; zeros where nothing is stored."""

    name = "graph.csr_to_dense"
    indptr = operand_def(TensorType)
    indices = operand_def(TensorType)
    values = operand_def(TensorType)
    columns = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def infer_types(self) -> Sequence[AnyTensor]:
        rows = row_count(self.indptr)
        _check_values(self.values, positions("indices", self.indices))
        return (TensorType(tensor(self.values).element_type, [rows, count_of("columns", self.columns)]),)
