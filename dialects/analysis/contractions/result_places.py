"""Where elements of a product go: the loops of the pass behind it in terms of the product's matrices, rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.ir import SSAValue

from fuse_opt.dialects.analysis.contractions.operand_access import BATCH
from fuse_opt.dialects.analysis.loop_body import LoopBody, Unschedulable
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.types.extents import exact_quotient, may_exceed
from fuse_opt.dialects.types.index_expr import Dim, IndexExpr, Quotient, Remainder, dimension, linearize

AXES = BATCH, "row", "column"
"""Names of the dimensions that count the elements of a product's result."""


def result_axes(product: Contraction) -> tuple[Dim, Dim, Dim]:
    """The dimensions of a product's result: of matrices, rows and columns."""
    batch, row, column = AXES
    return Dim(batch, prod(product.batch)), Dim(row, product.rows), Dim(column, product.columns)


def result_places(loop_body: LoopBody, raw: SSAValue, product: Contraction) -> Mapping[Dim, IndexExpr]:
    """
    The dimensions of a pointwise pass in terms of the axes of the product whose result it reads: each element in one
    iteration, and neighbours of a row stored beside each other. Raises Unschedulable where that is not so.
    """
    if loop_body.is_row:
        raise Unschedulable("epilogue", "what follows the product reduces")
    if prod(loop_body.row_extents) != (wanted := prod(product.batch) * product.rows * product.columns):
        raise Unschedulable(
            "unequal-results", f"the results have not as many elements as the product's, which has {wanted}"
        )
    places: Mapping[Dim, IndexExpr] | None = None
    dims = [dim for expression in loop_body.rows for dim in expression.dims()]
    loads = (load for load in loop_body.loads() if load.value is raw)
    # As the product counts its elements, which lie nowhere yet.
    reads = (load.address if product.in_memory else linearize(load.index, shape(raw)) for load in loads)
    for address in dict.fromkeys(reads):
        found = _Inverse(address, dims).solve(product)
        if places is not None and found != places:
            raise Unschedulable("epilogue", "the product's result is read at several elements for one that is stored")
        places = found
    if places is None:
        raise Unschedulable("epilogue", "the product's result is not read")
    column = result_axes(product)[2]
    for store in loop_body.stores:
        address = store.address.substitute(places)
        steps = address.coefficients() if may_exceed(column.extent, 1) else {column: 1}
        if steps is None and column not in _divided(address):
            steps = dict(term for term in address.terms if isinstance(term[0], Dim))
        if steps is None or steps.get(column) != 1:
            raise Unschedulable("strided-store", "neighbours of a row of the product are not stored beside each other")
    return places


def _divided(address: IndexExpr) -> set[Dim]:
    """The dimensions that an expression divides or limits."""
    return {d for atom, _ in address.terms if not isinstance(atom, Dim) for d in IndexExpr(((atom, 1),)).dims()}


@dataclass
class _Inverse:
    """Dimensions in terms of an address that is made from them, each address from one set of values."""

    address: IndexExpr
    dims: Sequence[Dim]
    values: dict[Dim, IndexExpr] = field(default_factory=dict[Dim, IndexExpr])
    fresh: int = 0

    def solve(self, product: Contraction) -> Mapping[Dim, IndexExpr]:
        self.values = {dim: IndexExpr(((dim, 1),)) for dim in self.dims}
        sizes = [product.columns, product.rows * product.columns]
        while (part := next(self._divisions(), None)) is not None or (part := self._across(sizes)) is not None:
            self._split(*part)
        factors = self.address.coefficients()
        counted = {dim for value in self.values.values() for dim in value.dims()}
        if factors is None or set(factors) != counted or self.address.constant or not _is_mixed_radix(factors):
            raise Unschedulable("epilogue", "the product's result is read at other elements than are stored")
        digits = {dim: _digit(product, dim, factor) for dim, factor in factors.items()}
        return {dim: value.substitute(digits) for dim, value in self.values.items()}

    def _divisions(self) -> Iterator[tuple[Dim, int]]:
        """Dimensions that the address divides evenly, and by what."""
        for atom, _ in self.address.terms:
            if not isinstance(atom, Quotient | Remainder) or atom.numerator.constant or len(atom.numerator.terms) != 1:
                continue
            dim, factor = atom.numerator.terms[0]
            if (
                isinstance(dim, Dim)
                and factor == 1
                and may_exceed(atom.divisor, 1)
                and may_exceed(dim.extent, atom.divisor)
                and exact_quotient(dim.extent, atom.divisor) is not None
            ):
                yield dim, atom.divisor

    def _across(self, sizes: Sequence[int]) -> tuple[Dim, int] | None:
        """A dimension that counts elements of several rows, or rows of several matrices, and how many of one."""
        for dim, factor in (self.address.coefficients() or {}).items():
            for size in sizes if not may_exceed(1, factor) else ():
                if not may_exceed(size, factor):
                    continue
                inside = exact_quotient(size, factor)
                if inside is None or not may_exceed(dim.extent, inside):
                    continue
                if exact_quotient(dim.extent, inside) is not None:
                    return dim, cast(int, inside)
        return None

    def _split(self, dim: Dim, divisor: int) -> None:
        self.fresh += 1
        outer = dimension(f"{dim.name}_{self.fresh}", dim.extent // divisor)
        inner = dimension(f"{dim.name}_{self.fresh}_in", divisor)
        part = {dim: outer * divisor + inner}
        self.address = self.address.substitute(part)
        self.values = {old: value.substitute(part) for old, value in self.values.items()}


def _is_mixed_radix(factors: Mapping[Dim, int]) -> bool:
    place, left = 1, dict(factors)
    while left:
        dim = next((dim for dim, factor in left.items() if factor == place), None)
        if dim is None:
            return False
        place *= dim.extent
        del left[dim]
    return True


def _digit(product: Contraction, dim: Dim, factor: int) -> IndexExpr:
    """The dimension whose step is so many elements of the result, from the axis that it is a digit of."""
    batch, row, column = result_axes(product)
    for axis, size in ((batch, product.rows * product.columns), (row, product.columns), (column, 1)):
        step = exact_quotient(factor, size)
        if step is None or not may_exceed(axis.extent, 1):
            continue
        if exact_quotient(axis.extent, step * dim.extent) is not None:
            return (dimension(axis.name, axis.extent) // cast(int, step)) % dim.extent
    raise Unschedulable("epilogue", "what is stored counts elements across rows or matrices of the product")
