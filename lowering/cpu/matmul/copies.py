"""Copies of matrices in front of a product: rows side by side, whatever order the elements had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Region, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.types.dtypes import BF16, F16, F32, DType, dtype_of
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.kernel.loop_splitting import flat_memory
from fuse_opt.lowering.kernel.scope import INDEX, Scope
from fuse_opt.lowering.made_ops import load_op, scalar_op, store_op

Bounds = tuple[SSAValue, SSAValue]


def count_loop(
    scope: Scope, name: str, bounds: Bounds, build: Callable[[Scope, SSAValue], None], step: int | SSAValue = 1
) -> None:
    """A loop in order; `build` puts its body down, given the counter."""
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = name
    build(Scope(scope, block), block.args[0])
    block.add_op(scf.YieldOp())
    by = scope.root.index_constant(step) if isinstance(step, int) else step
    scope.block.add_op(scf.ForOp(*bounds, by, [], Region(block)))


def parallel_loop(scope: Scope, name: str, bounds: Bounds, build: Callable[[Scope, SSAValue], None]) -> None:
    """A loop whose iterations do not depend on each other."""
    block = Block(arg_types=[INDEX])
    block.args[0].name_hint = name
    build(Scope(scope, block), block.args[0])
    block.add_op(scf.ReduceOp())
    lower, upper = bounds
    scope.block.add_op(scf.ParallelOp([lower], [upper], [scope.root.index_constant(1)], Region(block)))


def plus(scope: Scope, *terms: SSAValue) -> SSAValue:
    zero = scope.root.index_constant(0)
    first, *others = [term for term in terms if term is not zero] or [zero]
    total = first
    for term in others:
        total = scope.add(scalar_op(arith.AddiOp, total, term))
    return total


def times(scope: Scope, value: SSAValue, factor: Extent | SSAValue) -> SSAValue:
    if not isinstance(factor, SSAValue):
        if factor == 1:
            return value
        factor = scope.root.index_constant(factor)
    return scope.add(scalar_op(arith.MuliOp, value, factor))


@dataclass(frozen=True)
class Matrix:
    """Elements of a buffer: that of row r and column c is at `at + r * row + c * column`."""

    memory: SSAValue
    at: SSAValue
    row: Extent
    column: Extent = 1

    def place(self, scope: Scope, row: SSAValue, column: SSAValue) -> SSAValue:
        return plus(scope, self.at, times(scope, row, self.row), times(scope, column, self.column))

    def moved(self, scope: Scope, row: SSAValue, column: SSAValue) -> Matrix:
        """The same from that row and column on."""
        return Matrix(self.memory, self.place(scope, row, column), self.row, self.column)

    def transposed(self) -> Matrix:
        return Matrix(self.memory, self.at, self.column, self.row)


def element_of(memory: SSAValue) -> DType:
    """Of a buffer."""
    assert isa(memory.type, MemRefType)
    found = dtype_of(memory.type.element_type)
    assert found is not None
    return found


def copy_matrix(
    scope: Scope, element: DType, source: Matrix, target: Matrix, rows: SSAValue, columns: SSAValue
) -> None:
    """
    Copies so many rows and columns; by squares in vector registers where the source has its columns side by side, of the
    target's element type or of narrow floats that are widened.
    """
    zero = scope.root.index_constant(0)
    square_of = _square_function(element_of(source.memory), element)
    if source.column == 1 or source.row != 1 or square_of is None:
        _copy_elements(scope, source, target, (zero, rows), (zero, columns))
        return
    side = 8 if element.itemsize > 4 else 16
    whole_rows, whole_columns = (multiple_of(scope, count, side) for count in (rows, columns))

    def square(inner: Scope, row: SSAValue, column: SSAValue) -> None:
        arguments = [
            flat_memory(scope.root, source.memory),
            source.place(inner, row, column),
            scope.root.index_constant(source.column),
            flat_memory(scope.root, target.memory),
            target.place(inner, row, column),
            scope.root.index_constant(target.row),
        ]
        inner.call_for_effect(square_of, arguments)

    count_loop(
        scope,
        "column",
        (zero, whole_columns),
        lambda outer, column: count_loop(
            outer, "row", (zero, whole_rows), lambda inner, row: square(inner, row, column), side
        ),
        side,
    )
    _copy_elements(scope, source, target, (zero, whole_rows), (whole_columns, columns))
    _copy_elements(scope, source, target, (whole_rows, rows), (zero, columns))


def _square_function(given: DType, element: DType) -> str | None:
    """What transposes a square in registers, of elements that may become wider ones."""
    if given is element:
        return f"fo_transpose_beside_{element.name}"
    return f"fo_transpose_widened_{given.name}" if element is F32 and given in (F16, BF16) else None


def pack_panel(
    scope: Scope, element: DType, source: Matrix, target: Matrix, rows: SSAValue, columns: SSAValue, fill: bool
) -> Matrix:
    """The target, a panel, with so many rows and columns of the source; `fill` puts zeros behind the last column."""
    copy_matrix(scope, element, source, target, rows, columns)
    if fill:
        width = scope.root.index_constant(target.row)
        fill_columns(scope, target, rows, (columns, width), scope.root.constant(0.0, element))
    return target


def fill_columns(scope: Scope, target: Matrix, rows: SSAValue, columns: Bounds, value: SSAValue) -> None:
    def put(inner: Scope, row: SSAValue, column: SSAValue) -> None:
        inner.block.add_op(store_op(value, target.memory, [target.place(inner, row, column)]))

    _over(scope, (scope.root.index_constant(0), rows), columns, put)


def _copy_elements(scope: Scope, source: Matrix, target: Matrix, rows: Bounds, columns: Bounds) -> None:
    if (element_of(source.memory), element_of(target.memory)) == (F16, F32) and source.column == 1 == target.column:
        count_loop(scope, "row", rows, lambda inner, row: _widen(inner, source, target, row, columns))
        return

    def put(inner: Scope, row: SSAValue, column: SSAValue) -> None:
        value = inner.add(load_op(source.memory, [source.place(inner, row, column)]))
        if element_of(source.memory) is not (wanted := element_of(target.memory)):
            value = inner.add(arith.ExtFOp(value, wanted.attribute))
        inner.block.add_op(store_op(value, target.memory, [target.place(inner, row, column)]))

    _over(scope, rows, columns, put)


def _widen(scope: Scope, source: Matrix, target: Matrix, row: SSAValue, columns: Bounds) -> None:
    """Part of a row of f16, by what machines convert at a time: compilers do not find that in a loop."""
    places = [
        each
        for matrix in (source, target)
        for each in (flat_memory(scope.root, matrix.memory), matrix.place(scope, row, columns[0]))
    ]
    scope.call_for_effect("fo_widen_f16", [*places, scope.add(arith.SubiOp(columns[1], columns[0]))])


def _over(scope: Scope, rows: Bounds, columns: Bounds, put: Callable[[Scope, SSAValue, SSAValue], None]) -> None:
    count_loop(
        scope,
        "row",
        rows,
        lambda outer, row: parallel_loop(outer, "column", columns, lambda inner, column: put(inner, row, column)),
    )


def multiple_of(scope: Scope, count: SSAValue, of: int) -> SSAValue:
    """The greatest multiple that is not above the count."""
    rest = scope.add(arith.RemSIOp(count, scope.root.index_constant(of)))
    return scope.add(arith.SubiOp(count, rest))
