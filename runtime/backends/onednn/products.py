"""Matrix products as problems of oneDNN, cut into parts for threads by their extents alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from fuse_opt.lowering.program import ConfigValue
from fuse_opt.runtime.backends.onednn.primitives import DTYPES, PostOp, Problem
from fuse_opt.runtime.backends.onednn.tensors import ITEM_BYTES, Dense

_PIECE_WORK = 4_000_000
"""Operations that are worth a part of their own: some 50 microseconds."""
_ROW_WORK = 32
"""Operations of products that take as long as an element of a row."""
_MOST_PIECES = {"stack": 16, "matrix": 4}
_LEAST_EXTENT = 192
"""Rows or columns of a part: each part copies the other operand as a whole."""
_LEAST_ROWS = 64
_BLOCK = 16
_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A problem, and how it may be cut: along an axis of its result, of which the parts of operands are."""

    problem: Problem
    axis: int
    count: int
    """Of parts: as many as are worth a thread, whatever the threads, since bits depend on how it is cut."""

    def pieces(self) -> Iterator[Piece]:
        """The parts, which cover the result."""
        if self.count < 2:
            yield Piece(self.problem, (0,) * len(self.problem.arguments()))
            return
        extent = self.problem.dst.shape[self.axis]
        size = -(-extent // self.count)
        if size > _BLOCK:
            size = -(-size // _BLOCK) * _BLOCK
        for begin in range(0, extent, size):
            yield _piece(self.problem, self.axis, begin, min(size, extent - begin))

    def whole(self) -> Call:
        """The call in one part."""
        return replace(self, count=1)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a call: a problem, and in bytes where its arguments begin in those of the whole."""

    problem: Problem
    offsets: tuple[int, ...]


def product_call(
    operands: Sequence[Dense], dst: Dense, config: Mapping[str, ConfigValue], posts: Sequence[PostOp] = ()
) -> Call | None:
    """
    A product of arrays in C order, operands transposed as `config` says; None where it has no such problem. Operands of
    `posts` are aligned to the result, with extents of 1 where they are broadcast.
    """
    a, b = operands
    if min(len(a.shape), len(b.shape)) < 2 or a.dtype not in DTYPES or 0 in (*a.shape, *b.shape, *dst.shape):
        return None
    rank, batch = len(dst.shape), dst.shape[:-2]
    left, right = _aligned(a.shape, rank), _aligned(b.shape, rank)
    turned = bool(config.get("transpose_lhs")), bool(config.get("transpose_rhs"))
    is_whole = prod(right[:-2]) == 1 and not turned[0]
    if b.panel is not None and not (is_whole and len(b.shape) == 2):
        return None
    if is_whole:
        groups = [range(rank - 1), range(rank - 1, rank)]
    elif all(other in (batch, (1,) * len(batch)) for other in (left[:-2], right[:-2])) and batch:
        groups = [range(rank - 2), range(rank - 2, rank - 1), range(rank - 1, rank)]
    else:
        groups = [range(axis, axis + 1) for axis in range(rank)]
    if len(groups) > 12:
        return None
    # of the left operand the grouped axes are batch and rows; columns are its depth
    src = Dense.in_order(_grouped(left, groups), a.dtype)
    weights = Dense.in_order(_grouped(right, groups), b.dtype)
    if len(groups) == 2:
        weights = Dense.in_order(b.shape[-2:], b.dtype) if b.panel is None else b
    src, weights = (_swapped(t) if turn else t for t, turn in zip((src, weights), turned, strict=True))
    found: list[PostOp] = []
    for post in posts:
        operand = None if post.operand is None else _grouped_operand(post.operand, dst.shape, groups)
        if operand is None and post.operand is not None:
            return None
        found.append(replace(post, operand=operand))
    problem = Problem(src, weights, Dense.in_order(_grouped(dst.shape, groups), dst.dtype), None, tuple(found))
    return cut_matrix(problem)


def _aligned(shape: _Shape, rank: int) -> _Shape:
    return (1,) * (rank - len(shape)) + shape


def _grouped(shape: _Shape, groups: Sequence[range]) -> _Shape:
    return tuple(prod(shape[axis] for axis in group) for group in groups)


def _swapped(tensor: Dense) -> Dense:
    rank = len(tensor.shape)
    return tensor.permuted((*range(rank - 2), rank - 1, rank - 2))


def _grouped_operand(operand: Dense, shape: _Shape, groups: Sequence[range]) -> Dense | None:
    """The operand of a post-op with the result's axes joined as the result's are; None where that joins unlike ones."""
    extents: list[int] = []
    for group in groups:
        own, whole = ([s[axis] for axis in group] for s in (operand.shape, shape))
        if own != whole and prod(own) != 1:
            return None
        extents.append(prod(own))
    return Dense.in_order(extents, operand.dtype)


def with_any_weights(call: Call) -> Call:
    """The call with weights that lie as the library would have them, which it is to say."""
    assert call.problem.weights is not None
    problem = replace(call.problem, weights=replace(call.problem.weights, strides=(), panel=None, group=None))
    return cut_matrix(problem) if problem.windows is None else replace(call, problem=problem)


def cut_matrix(problem: Problem) -> Call:
    """Along the stack where there is one, else along rows or columns; the contracted dimension is never cut."""
    shape, depth = problem.dst.shape, problem.src.shape[-1]
    worth = 2 * prod(shape) * depth // _PIECE_WORK
    if len(shape) > 3:
        return Call(problem, 0, 1)
    if len(shape) == 3 and shape[0] > 1:
        return Call(problem, 0, max(1, min(_MOST_PIECES["stack"], worth, shape[0])))
    rows, columns = len(shape) - 2, len(shape) - 1
    assert problem.weights is not None
    packed = (
        problem.weights.panel is not None or not problem.weights.strides
    )  # of which no column is the first of a part
    if packed or problem.post_ops:  # which the library runs by loops where rows of the result are apart
        return Call(problem, rows, max(1, min(_MOST_PIECES["matrix"], worth, shape[rows] // _LEAST_ROWS)))
    axis = rows if shape[rows] >= shape[columns] else columns
    return Call(problem, axis, max(1, min(_MOST_PIECES["matrix"], worth, shape[axis] // _LEAST_EXTENT)))


def cut_stack(problem: Problem, work: int) -> Call:
    """A problem whose results along the first axis are of their own, an element being the sum of so many products."""
    shape = problem.dst.shape
    worth = 2 * prod(shape) * work // _PIECE_WORK
    return Call(problem, 0, max(1, min(_MOST_PIECES["stack"], worth, shape[0])))


def cut_rows(problem: Problem) -> Call:
    """A problem of the rows of a matrix."""
    rows, columns = problem.dst.shape
    return Call(problem, 0, max(1, min(_MOST_PIECES["stack"], _ROW_WORK * rows * columns // _PIECE_WORK, rows)))


def _piece(problem: Problem, axis: int, begin: int, size: int) -> Piece:
    offsets: list[int] = []

    def part(tensor: Dense) -> Dense:
        if tensor.shape[axis] == 1 != problem.dst.shape[axis]:
            offsets.append(0)
            return tensor
        offsets.append(begin * tensor.strides[axis] * ITEM_BYTES[tensor.dtype])
        return Dense((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]), tensor.dtype, tensor.strides)

    def kept(tensor: Dense) -> Dense:
        offsets.append(0)
        return tensor

    if problem.rows is not None:
        src = part(problem.src)
        for parameter in problem.rows.parameters:
            kept(parameter)
        dst = part(problem.dst)
        rows = replace(problem.rows, statistics=tuple(map(part, problem.rows.statistics)))
        return Piece(replace(problem, src=src, dst=dst, rows=rows), tuple(offsets))
    assert problem.weights is not None
    rows, columns = len(problem.dst.shape) - 2, len(problem.dst.shape) - 1
    product = problem.windows is None
    src = kept(problem.src) if product and axis == columns else part(problem.src)
    weights = part(problem.weights) if product and axis != rows else kept(problem.weights)
    posts = tuple(p if p.operand is None else replace(p, operand=part(p.operand)) for p in problem.post_ops)
    return Piece(Problem(src, weights, part(problem.dst), problem.windows, posts), tuple(offsets))
