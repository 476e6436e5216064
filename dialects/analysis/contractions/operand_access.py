"""Where the matrices of a product have their elements in memory, seen through the views in front of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.analysis.loop_body import Unschedulable, trace_scalar
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.index_expr import (
    Dim,
    IndexExpr,
    Quotient,
    Remainder,
    delinearize,
    dimension,
    linear,
)

BATCH = "batch"
"""The name of the dimension that counts the matrices of a batch."""


@dataclass(frozen=True, slots=True)
class Panels:
    """
    Columns in panels: column c lies `c // width * distance` further on than column `c % width`. Rows may be in groups of some
    that lie side by side for each column: then the distance of rows holds from a multiple of `group` to another one.
    """

    width: int
    distance: int
    group: int = 1


@dataclass(frozen=True, slots=True)
class OperandAccess:
    """
    The matrices of an operand: row r and column c of one lie at `offset + r * row + c * column` in `value`, where columns
    are not in panels.
    """

    value: SSAValue
    """What is in memory."""
    offset: IndexExpr
    """In elements, over the dimension `BATCH`."""
    row: int
    column: int
    panels: Panels | None = None

    def transposed(self) -> OperandAccess:
        """The same with rows for columns."""
        return replace(self, row=self.column, column=self.row)


def without_panels(access: OperandAccess) -> OperandAccess:
    """An operand that is read by rows and columns alone. Raises Unschedulable for one whose columns are in panels."""
    if access.panels is not None:
        raise Unschedulable("strides", "the columns of an operand are in panels")
    return access


class SplitRows(Unschedulable):
    """Rows lie at two distances: so many at one, and then others that many further on."""

    def __init__(self, message: str, rows: int) -> None:
        super().__init__("strides", message)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class OperandAxes:
    """The axes of an operand's matrices as index expressions, and where in the operand they lead."""

    batch: IndexExpr
    row: IndexExpr
    column: IndexExpr
    position: IndexExpr
    natural: tuple[int, int]
    """The distances of rows and of columns in the operand itself."""

    @classmethod
    def of(cls, strides: Sequence[int], extents: Sequence[int]) -> OperandAxes:
        """Of axes `(*batch, rows, columns)` of these strides and extents."""
        *outer, rows, columns = extents
        batch, row, column = dimension(BATCH, prod(outer)), dimension("row", rows), dimension("column", columns)
        position = linear(list(zip((*delinearize(batch, outer), row, column), strides, strict=True)))
        return cls(batch, row, column, position, (strides[-2], strides[-1]))

    @property
    def row_dim(self) -> Dim | None:
        return _dim(self.row)

    @property
    def column_dim(self) -> Dim | None:
        return _dim(self.column)

    def split(self, address: IndexExpr) -> tuple[IndexExpr, tuple[int, int]]:
        """
        The part of an address that is the same for a matrix, and the distances of rows and of columns. Raises Unschedulable
        where these are not constant.
        """
        return _split(address, {"row": self.row_dim, "column": self.column_dim})


def operand_access(
    value: SSAValue,
    strides: Sequence[int],
    extents: Sequence[int],
    members: Collection[Operation],
    outside: Collection[Operation] = (),
) -> OperandAccess:
    """
    Where an operand of a product is read: `strides` are those in `value` of the axes `(*batch, rows, columns)`, which
    have these extents. What is in memory may be narrower floats. Raises Unschedulable where the members compute it, and do not
    just view something of memory, or where its rows or columns lie at no constant distance.
    """
    axes = OperandAxes.of(strides, extents)
    node = trace_scalar(value, delinearize(axes.position, shape(value)), members, outside)
    while node.op is not None:
        if not node.op.is_view() and not node.op.widens():
            raise Unschedulable("prologue", f"an operand is computed by '{node.op.name}' in the kernel", node.op)
        node = node.operands[int(node.op.body().value)]
    address, panels = _without_panels(node.address, axes.column)
    if panels is not None:
        address, panels = _without_groups(address, axes.row, panels)
    offset, factors = axes.split(address)
    return OperandAccess(node.value, offset, *factors, panels)


def _without_panels(address: IndexExpr, column: IndexExpr) -> tuple[IndexExpr, Panels | None]:
    """The address as it is in the first panel, where columns are in panels."""
    terms = dict(address.terms)
    for atom, factor in address.terms:
        if isinstance(atom, Remainder) and atom.numerator == column:
            far = Quotient(column, atom.divisor)
            if far in terms:
                rest = [(IndexExpr(((a, 1),)), f) for a, f in terms.items() if a not in (atom, far)]
                near = linear([(IndexExpr((), address.constant), 1), *rest, (column, factor)])
                return near, Panels(atom.divisor, terms[far])
    return address, None


def _without_groups(address: IndexExpr, row: IndexExpr, panels: Panels) -> tuple[IndexExpr, Panels]:
    """The address of rows that begin a group, where rows are in groups, and the panels with these."""
    terms = dict(address.terms)
    for atom, factor in address.terms:
        if not isinstance(atom, Remainder) or atom.numerator != row or factor != 1:
            continue
        far = Quotient(row, group := atom.divisor)
        if far in terms and terms[far] % group == 0:
            rest = [(IndexExpr(((a, 1),)), f) for a, f in terms.items() if a not in (atom, far)]
            first = linear([(IndexExpr((), address.constant), 1), *rest, (row, terms[far] // group)])
            return first, replace(panels, group=group)
    return address, panels


def _dim(expression: IndexExpr) -> Dim | None:
    """The dimension that an expression is; None for one of extent 1."""
    return next((atom for atom, _ in expression.terms if isinstance(atom, Dim)), None)


def _split(address: IndexExpr, dims: dict[str, Dim | None]) -> tuple[IndexExpr, tuple[int, int]]:
    """The part of an address that is the same for a matrix, and the distances of rows and of columns."""
    own = {dim for dim in dims.values() if dim is not None}
    factors = {dim: 0 for dim in own}
    rest: list[tuple[IndexExpr, int]] = [(IndexExpr((), address.constant), 1)]
    for atom, factor in address.terms:
        if isinstance(atom, Dim) and atom in own:
            factors[atom] = factor
            continue
        expression = IndexExpr(((atom, 1),))
        if not own.isdisjoint(expression.dims()):
            message = "the elements of an operand's rows or columns lie at no constant distance"
            if isinstance(atom, Quotient | Remainder) and dims["row"] in expression.dims() <= own - {dims["column"]}:
                raise SplitRows(message, atom.divisor)
            raise Unschedulable("strides", message)
        rest.append((expression, factor))
    row, column = (0 if dim is None else factors[dim] for dim in dims.values())
    return linear(rest), (row, column)
