"""In what order a pass goes through memory: which of its loops steps to neighbours, and what kind of schedule that asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from fuse_opt.dialects.analysis.loop_body import LoopBody
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.scalar import cost
from fuse_opt.dialects.types.extents import estimate, is_number, least, most
from fuse_opt.dialects.types.index_expr import Dim, Index, IndexExpr, Remainder

WORK_PER_TASK = 12288 * 4
"""Simple operations that make it worth to hand a part of a loop to another thread; a light element has four."""
TASKS = 32
"""Tasks from which on a launch keeps the threads of one processor busy, the slow ones included."""
ENOUGH_TASKS = 16
FEW_ROWS = 8
"""Rows below which long ones are worth cutting."""
SHORT_ROW = 8
"""Elements; the loop over a shorter row costs more than its body."""
LONGEST_SLIDING = 32
"""Elements of a stretch of what is reduced, up to which neighbours that begin near to each other share what they read."""
VERY_SHORT_ROW = 4
"""Elements up to which rows of an unknown length run side by side."""
LONG_ROW = 256
"""Elements from which on such rows have more accumulators."""
FEWEST_LANES = 8
FEWEST_SHORT = 64
"""Rows from which on short ones are worth taking together."""
LANES_OF_TASK = 1024
"""Rows side by side that make good use of each memory page a task touches."""
LANES_OF_PART = 4096
"""The same where a task goes through a few rows only: the wider, the fewer the places in memory where it starts anew."""
SHORTEST_PART = 64
"""Elements of what is reduced."""
SMALLEST_TILE = 16
NARROWEST_TILE = 9
"""Neighbours that are stored, where tiles of so few are worth it: vectors of them would be read one by one, and end in a mask."""
NARROW_BYTES, NARROW_WORK = 8 << 20, 16
"""They are where less is moved, and where so many operations wait for it: memory is slow at lines of so few elements."""


@dataclass(frozen=True)
class LoopOrder:
    """A schedule kind for one pass, with the numbers that go with it; `reason` says why it is not the plain one."""

    kind: str
    entries: dict[str, int] = field(default_factory=dict[str, int])
    reason: str = ""


def choose_order(loop_body: LoopBody) -> LoopOrder:
    """
    The schedule kind that goes through memory in the best order; where extents are sizes that for typical ones, and no row is cut
    into parts.
    """
    if all(map(is_number, (*loop_body.row_extents, *loop_body.column_extents))):
        return _row_order(loop_body) if loop_body.is_row else _element_order(loop_body)
    if not loop_body.is_row:
        return _element_order(loop_body)
    found = _row_order(loop_body)
    if found.kind == "column":
        return LoopOrder("column", {}, found.reason)
    return LoopOrder("row")


def version_entries(loop_body: LoopBody) -> dict[str, int]:
    """Entries for a kernel of rows whose length is a size: up to and from what length it has code of its own."""
    if len(loop_body.column_extents) != 1 or is_number(length := loop_body.column_extents[0]):
        return {}
    entries: dict[str, int] = {}
    if least(length) <= VERY_SHORT_ROW < most(length):
        entries["short"] = VERY_SHORT_ROW
    if least(length) < LONG_ROW <= most(length):
        entries["long"] = LONG_ROW
    return entries


def _element_order(loop_body: LoopBody) -> LoopOrder:
    dims = _dims(loop_body.rows)
    addresses = [*(node.address for node in loop_body.loads()), *(store.address for store in loop_body.stores)]
    if not dims or _merged_extent(addresses, dims) < _narrowest_tile(loop_body):
        return LoopOrder("pointwise")
    for node in loop_body.loads():
        along = fastest_dim(node.address)
        if not steps_elsewhere(node.address, dims[-1]) or along not in dims:
            continue
        if _merged_extent(addresses, dims[: dims.index(along) + 1]) >= SMALLEST_TILE:
            return LoopOrder("tile", reason="it reads neighbours of another dimension than it stores")
    return LoopOrder("pointwise")


def _narrowest_tile(loop_body: LoopBody) -> int:
    stores = [dtype(store.node.value).itemsize for store in loop_body.stores]
    if min(stores, default=1) == 1:
        return SMALLEST_TILE
    work = sum(cost(node.op.body()) for node in loop_body.nodes if node.op is not None)
    values = dict.fromkeys(
        [*(node.value for node in loop_body.loads()), *(store.node.value for store in loop_body.stores)]
    )
    moved = sum(estimate(prod(shape(value))) * dtype(value).itemsize for value in values)
    return NARROWEST_TILE if work >= NARROW_WORK or moved < NARROW_BYTES else SMALLEST_TILE


def side_by_side(loop_body: LoopBody) -> int:
    """Of a pass without reductions: how many neighbours its innermost loop has, for which all addresses are sums."""
    dims = _dims(loop_body.rows)
    addresses = [*(node.address for node in loop_body.loads()), *(store.address for store in loop_body.stores)]
    parts = [atom.divisor for each in addresses for atom, _ in each.terms if isinstance(atom, Remainder)]
    plain = [each for each in addresses if each.coefficients() is not None]
    return min([_merged_extent(plain, dims), *map(estimate, parts)]) if dims else 1


def _merged_extent(addresses: Sequence[IndexExpr], dims: Sequence[Dim]) -> int:
    """Of the last of some dimensions, with those before it that are one loop with it."""
    extent = estimate(dims[-1].extent)
    for inner, outer in pairwise(reversed(dims)):
        if not all(_merges(address, outer, inner) for address in addresses):
            break
        extent *= estimate(outer.extent)
    return extent


def _row_order(loop_body: LoopBody) -> LoopOrder:
    rows, columns = estimate(prod(loop_body.row_extents)), estimate(prod(loop_body.column_extents))
    if rows * columns == 0:
        return LoopOrder("row")
    work = max(sum(1 if p.op is None else cost(p.op.body()) for p in loop_body.nodes), 1)
    lanes = _side_by_side(loop_body, _dims(loop_body.rows))
    if lanes >= FEWEST_LANES and _by_lanes(loop_body):
        entries = {"splits": splits} if (splits := _column_splits(loop_body, lanes, work)) > 1 else {}
        return LoopOrder("column", entries, "neighbours belong to different rows")
    if columns <= SHORT_ROW and lanes >= FEWEST_SHORT:
        return LoopOrder("column", {}, f"rows of {columns} elements are shorter than a vector")
    short = _side_by_side(loop_body, _dims(loop_body.columns))
    overlap = lanes > FEWEST_LANES and _near(loop_body, columns - 1)  # all that is reduced, of windows along few rows
    if 1 < short < min(columns + overlap, lanes, LONGEST_SLIDING + 1) and _near(loop_body, SHORT_ROW):
        entries = {"splits": splits} if (splits := _column_splits(loop_body, lanes, work)) > 1 else {}
        return LoopOrder(
            "column", entries, f"what is reduced lies in stretches of {short} elements, shorter than a vector"
        )
    splits = min(TASKS // rows, rows * columns * work // WORK_PER_TASK // rows) if rows < FEW_ROWS else 1
    if splits > 1:
        return LoopOrder("split", {"splits": splits}, f"{rows} rows are too few for several threads")
    return LoopOrder("row")


def _column_splits(loop_body: LoopBody, lanes: int, work: int) -> int:
    """Into how many parts what is reduced is cut: as many as keep threads busy, each worth one and longer than a few rows."""
    rows, columns = estimate(prod(loop_body.row_extents)), estimate(prod(loop_body.column_extents))
    whole, tasks = (rows // lanes * -(-lanes // wide) for wide in (LANES_OF_TASK, LANES_OF_PART))
    if whole >= ENOUGH_TASKS:
        return 1
    longest = max(map(estimate, loop_body.column_extents))
    splits = min(TASKS // tasks, rows * columns * work // WORK_PER_TASK // tasks, longest // SHORTEST_PART)
    return splits if splits * tasks > whole else 1


def _by_lanes(loop_body: LoopBody) -> bool:
    """Whether more of what is read of every element lies side by side along the rows than along what is reduced."""
    rows, columns = frozenset(_dims(loop_body.rows)), frozenset(_dims(loop_body.columns))
    votes = 0
    addresses = [node.address for node in loop_body.loads()]
    addresses += [store.address for store in loop_body.stores if not store.per_row]
    for address in addresses:
        if address.dims().isdisjoint(columns):
            continue
        if (along := fastest_dim(address)) is not None:
            votes += (along in rows) - (along not in rows)
    return votes > 0


def _near(loop_body: LoopBody, most: int) -> bool:
    """Whether neighbouring rows begin at most so many elements from each other, as those of sliding windows do."""
    lane = _dims(loop_body.rows)[-1]
    factors = [node.address.coefficients() for node in loop_body.loads()]
    return all(abs(estimate(each.get(lane, 0))) <= most for each in factors if each is not None)


def _side_by_side(loop_body: LoopBody, dims: Sequence[Dim]) -> int:
    """How many elements of these dimensions lie side by side: the extents of the last that are merged in every address."""
    if not dims:
        return 0
    lanes = estimate(dims[-1].extent)
    for outer, inner in zip(dims[-2::-1], dims[:0:-1], strict=False):
        if not all(_merges(node.address, outer, inner) for node in loop_body.nodes if node.op is None):
            break
        lanes *= estimate(outer.extent)
    return lanes


def _merges(address: IndexExpr, outer: Dim, inner: Dim) -> bool:
    factors = address.coefficients()
    return factors is not None and factors.get(outer, 0) == factors.get(inner, 0) * inner.extent


def steps_elsewhere(address: IndexExpr, inner: Dim) -> bool:
    """Whether neighbours of the address are not neighbours along the inner dimension, though that changes it."""
    factors = address.coefficients()
    return (
        factors is not None
        and abs(estimate(factors.get(inner, 0))) > 1
        and (along := fastest_dim(address)) is not None
        and along != inner
    )


def fastest_dim(address: IndexExpr) -> Dim | None:
    """The dimension along which neighbours lie side by side."""
    factors = address.coefficients() or {}
    return next(
        (dim for dim, factor in reversed(factors.items()) if abs(factor) == 1 and estimate(dim.extent) > 1), None
    )


def _dims(index: Index) -> tuple[Dim, ...]:
    """The dimensions with more than one element, outermost first."""
    return tuple(atom for expression in index for atom, _ in expression.terms if isinstance(atom, Dim))
