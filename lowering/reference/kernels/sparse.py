"""Ops over parts of sparse values, in NumPy. What a pattern says is checked before anything is read by it.

What is behind the last entry of a pattern is written as zeros (-1 where places of a union are meant), so that results do not
depend on what operands hold there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import Array, Config
from fuse_opt.lowering.reference.kernels.config import integer, text
from fuse_opt.lowering.reference.kernels.costs import CALL, moving_cost
from fuse_opt.lowering.reference.kernels.indexing import accumulate, checked
from fuse_opt.lowering.reference.kernels.registry import implementation, in_single

_CHUNK = 1 << 18
"""Products that are made at a time."""


def _cost(site: Site) -> Cost:
    """Of temporary arrays: some twenty passes over operands, and over the products that a product adds up."""
    products = site.operands[1].size * site.operands[-1].shape[-1] if len(site.operands) > 3 else 0
    return Cost(nbytes=20 * (site.nbytes + 8 * products), call=CALL)


def count_of(op: str, indptr: Array, capacity: int) -> int:
    """The entries of a pattern whose rows follow each other. Raises ValueError for another one."""
    steps = np.diff(indptr.astype(np.int64))
    if indptr[0] != 0 or (steps.size and steps.min() < 0) or indptr[-1] > capacity:
        raise ValueError(
            f"'{op}': expected an indptr from 0 on that does not fall and ends at {capacity} at most, the capacity; got "
            f"{int(indptr[0])} to {int(indptr[-1])}"
        )
    return int(indptr[-1])


def overflow(op: str, found: int, capacity: int) -> ValueError:
    """The error for more entries than there is room for."""
    return ValueError(f"'{op}': {found} entries, but a capacity of {capacity}; give the type a larger one")


def columns_of(op: str, indptr: Array, indices: Array, columns: int) -> Array:
    """The columns of all entries. Raises ValueError or IndexError for a pattern that is none."""
    found = indices[: count_of(op, indptr, indices.size)]
    return checked(op, found, columns, 1, 0)


def rows_of(indptr: Array) -> Array:
    """The row of each entry."""
    return np.repeat(np.arange(indptr.size - 1), np.diff(indptr))


@implementation("numpy.to_storage", "graph.to_storage", moves=True, inplace=((0, 0),), cost=moving_cost)
def to_storage(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """A copy: of dense tensors nothing is left to convert."""
    if not np.may_share_memory(inputs[0], outputs[0]):
        outputs[0][...] = inputs[0]


@implementation("numpy.csr_matmul", "graph.csr_matmul", cost=_cost)
@in_single
def csr_matmul(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Products added to rows, in the order of entries."""
    indptr, indices, values, x = inputs
    (out,) = outputs
    columns, rows = columns_of("graph.csr_matmul", indptr, indices, x.shape[0]), rows_of(indptr)
    out.fill(0)
    step = max(1, _CHUNK // max(x.shape[1], 1))
    for first in range(0, columns.size, step):
        some = slice(first, first + step)
        accumulate(np.add, out, rows[some], values[: columns.size][some, None] * x[columns[some]])


@implementation("numpy.csr_sampled_matmul", "graph.csr_sampled_matmul", cost=_cost)
@in_single
def csr_sampled_matmul(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Rows times rows."""
    indptr, indices, x, y = inputs
    (out,) = outputs
    columns, rows = columns_of("graph.csr_sampled_matmul", indptr, indices, y.shape[0]), rows_of(indptr)
    out.fill(0)
    step = max(1, _CHUNK // max(x.shape[1], 1))
    for first in range(0, columns.size, step):
        some = slice(first, min(first + step, columns.size))
        out[some] = np.einsum("ek,ek->e", x[rows[some]], y[columns[some]])


@implementation("numpy.csr_reduce", "graph.csr_reduce", cost=_cost)
@in_single
def csr_reduce(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """`at` of NumPy's function."""
    indptr, values = inputs
    (out,) = outputs
    count = count_of("graph.csr_reduce", indptr, values.size)
    largest = text(config, "reduce", "add") == "max"
    out.fill(-np.inf if largest else 0)
    (np.maximum if largest else np.add).at(out, rows_of(indptr), values[:count])


@implementation("numpy.csr_rows", "graph.csr_rows", cost=_cost)
def csr_rows(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.repeat."""
    (out,) = outputs
    count = count_of("graph.csr_rows", inputs[0], out.size)
    out[:count] = rows_of(inputs[0])
    out[count:] = 0


@implementation("numpy.csr_transpose", "graph.csr_transpose", cost=_cost)
def csr_transpose(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """A stable sort by columns."""
    indptr, indices = inputs
    new_indptr, new_indices, places = outputs
    columns = columns_of("graph.csr_transpose", indptr, indices, new_indptr.size - 1)
    new_indptr[0] = 0
    np.cumsum(np.bincount(columns, minlength=new_indptr.size - 1), out=new_indptr[1:])
    order = np.argsort(columns, kind="stable")
    places[: order.size], places[order.size :] = order, 0
    new_indices[: order.size], new_indices[order.size :] = rows_of(indptr)[order], 0


@implementation("numpy.csr_take", "graph.csr_take", cost=_cost)
def csr_take(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Ranges of places, one behind the other."""
    indptr, indices, ids = inputs
    new_indptr, new_indices, places = outputs
    count_of("graph.csr_take", indptr, indices.size)
    rows = checked("graph.csr_take", ids, indptr.size - 1, 0, None if integer(config, "wrap_negative", 1) else 0)
    starts, counts = indptr[rows].astype(np.int64), np.diff(indptr)[rows].astype(np.int64)
    total = int(counts.sum())
    if total > new_indices.size:
        raise overflow("graph.csr_take", total, new_indices.size)
    new_indptr[0] = 0
    np.cumsum(counts, out=new_indptr[1:])
    found = np.arange(total) + np.repeat(starts - new_indptr[:-1], counts)
    places[:total], places[total:] = found, 0
    new_indices[:total], new_indices[total:] = indices[found], 0


@implementation("numpy.csr_union", "graph.csr_union", cost=_cost)
def csr_union(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Places as single numbers, of both patterns, each once."""
    indptr, indices, in_a, in_b = outputs
    keys: list[Array] = []
    for pattern in (inputs[:2], inputs[2:]):
        columns = columns_of("graph.csr_union", pattern[0], pattern[1], 2**31 - 1)
        keys.append((rows_of(pattern[0]) << 32) + columns)
    places = np.unique(np.concatenate(keys))
    if places.size > indices.size:
        raise overflow("graph.csr_union", places.size, indices.size)
    indptr[0] = 0
    np.cumsum(np.bincount(places >> 32, minlength=indptr.size - 1), out=indptr[1:])
    indices[: places.size], indices[places.size :] = places & (2**32 - 1), 0
    for out, own in zip((in_a, in_b), keys, strict=True):
        out.fill(-1)
        out[np.searchsorted(places, own)] = np.arange(own.size)


@implementation("numpy.csr_from_dense", "graph.csr_from_dense", cost=_cost)
def csr_from_dense(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """np.nonzero."""
    (x,), (indptr, indices, values) = inputs, outputs
    rows, columns = np.nonzero(x)
    if rows.size > indices.size:
        raise overflow("graph.csr_from_dense", rows.size, indices.size)
    indptr[0] = 0
    np.cumsum(np.bincount(rows, minlength=x.shape[0]), out=indptr[1:])
    indices[: rows.size], indices[rows.size :] = columns, 0
    values[: rows.size], values[rows.size :] = x[rows, columns], 0


@implementation("numpy.csr_to_dense", "graph.csr_to_dense", cost=_cost)
def csr_to_dense(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Assignment at places."""
    indptr, indices, values = inputs
    (out,) = outputs
    columns = columns_of("graph.csr_to_dense", indptr, indices, out.shape[1])
    out.fill(0)
    out[rows_of(indptr), columns] = values[: columns.size]


@implementation("numpy.rows_put", "graph.rows_put", inplace=((0, 0),), cost=_cost)
def rows_put(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Assignment of rows."""
    x, indptr, indices, values = inputs
    (out,) = outputs
    rows = columns_of("graph.rows_put", indptr, indices, x.shape[0])
    if not np.may_share_memory(x, out):
        out[...] = x
    out[rows] = values[: rows.size]


@implementation("numpy.rows_subtract", "graph.rows_subtract", inplace=((0, 0),), cost=_cost)
@in_single
def rows_subtract(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Subtraction from rows."""
    x, indptr, indices, values = inputs
    (out,) = outputs
    rows = columns_of("graph.rows_subtract", indptr, indices, x.shape[0])
    if not np.may_share_memory(x, out):
        out[...] = x
    out[rows] -= values[: rows.size]


@implementation("numpy.embedding_rows_backward", "graph.embedding_rows_backward", cost=_cost)
@in_single
def embedding_rows_backward(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
    """Rows added in the order of the ids."""
    grad, ids = inputs
    indptr, indices, values = outputs
    extent = integer(config, "rows", 0)
    least = None if integer(config, "wrap_negative", 1) else 0
    rows = checked("graph.embedding_rows_backward", ids, extent, 0, least).reshape(-1)
    updates = grad.reshape(rows.size, grad.shape[-1])
    if isinstance(padding := config.get("padding_index"), int):
        kept = rows != (padding + extent if padding < 0 else padding)
        rows, updates = rows[kept], updates[kept]
    found, where = np.unique(rows, return_inverse=True)
    if found.size > indices.size:
        raise overflow("graph.embedding_rows_backward", found.size, indices.size)
    indptr[:] = 0, found.size
    indices[: found.size], indices[found.size :] = found, 0
    values.fill(0)
    accumulate(np.add, values, where.reshape(-1), updates)
