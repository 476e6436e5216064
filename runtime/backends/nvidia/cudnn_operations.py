"""Graphs of cuDNN's graph interface as data: their tensors, and the operations on these in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.runtime.backends.nvidia.cudnn_problems import TYPES, strides_of

# Values of enums in cudnn_graph.h.
ATTENTION, NORM = 41, 29
_POINTWISE, _POINTWISE_OPERATION, _MATMUL, _MATMUL_OPERATION, _REDUCTION, _REDUCTION_OPERATION = 0, 13, 18, 19, 21, 22
Q, K, V, OUT, SCALE = 2800, 2801, 2802, 2803, 2805
_MODE, _PRECISION, _AXIS = (0, 14), (1, 1), (9, 3)
"""Attributes and their types."""
_HOW, _X, _B, _Y, _T = 750, 751, 752, 753, 758
_MATMUL_PRECISION, _MATMUL_A, _MATMUL_B, _MATMUL_C, _MATMUL_HOW = (1500, 1), 1520, 1521, 1522, 1523
_REDUCED_BY, _REDUCTION_PRECISION, _REDUCED, _REDUCTION_RESULT, _REDUCTION_HOW = (1600, 18), (1601, 1), 1610, 1611, 1612
_MULTIPLY, _DIVIDE, _SUBTRACT, _EXP, _NOT_LESS, _POSITION, _SELECT = 1, 6, 9, 13, 303, 501, 601
_SUM, _MAX = 0, 3

Settings = tuple[tuple[tuple[int, int], int], ...]
"""Attributes with their types, and their values."""


@dataclass(frozen=True)
class Piece:
    """A tensor of a graph: an operand or a result of the call, a number, or what the operations alone see."""

    place: int | None
    """Which of the operands, results behind them; None: a number, or not in memory."""
    extents: tuple[int, ...] = (1, 1, 1, 1)
    dtype: str = "f32"
    order: tuple[int, ...] = ()
    number: float | None = None

    @property
    def strides(self) -> list[int]:
        """In elements."""
        return strides_of(self.extents, self.order)

    @property
    def is_virtual(self) -> bool:
        """Whether it is never in memory."""
        return self.place is None and self.number is None


@dataclass(frozen=True)
class How:
    """A descriptor of its own that an operation refers to: which function, with which precision."""

    attribute: int
    kind: int
    settings: Settings


@dataclass(frozen=True)
class Operation:
    """One operation: by attribute, which of the graph's tensors it reads and makes."""

    kind: int
    tensors: tuple[tuple[int, int], ...]
    settings: Settings = ()
    how: How | None = None


@dataclass(frozen=True)
class OperationGraph:
    pieces: tuple[Piece, ...]
    operations: tuple[Operation, ...]


def attention_graph(q: Piece, k: Piece, v: Piece, out: Piece, scale: float) -> OperationGraph:
    """Attention of every query to all keys, which is an operation of the library's."""
    pieces = (q, k, v, out, Piece(None, number=scale))
    tensors = tuple(zip((Q, K, V, OUT, SCALE), range(len(pieces)), strict=True))
    return OperationGraph(pieces, (Operation(ATTENTION, tensors),))


def causal_attention_graph(q: Piece, k: Piece, v: Piece, out: Piece, scale: float) -> OperationGraph:
    """
    Attention of a query to the keys up to its own position. The library's one operation takes a mask from version 9.21 on; as
    products and what is between them, in this order, all versions know it.
    """
    batch, heads, rows, depth = q.extents
    keys = k.extents[2]
    whole, row = (batch, heads, rows, keys), (batch, heads, rows, 1)
    turned = Piece(k.place, (*k.extents[:2], depth, keys), k.dtype, (0, 1, 3, 2))
    scores = Piece(None, whole)
    pieces = (
        *(q, turned, v, out),
        *(Piece(None, number=scale), Piece(None, number=float("-inf"))),
        *(scores, scores, Piece(None, whole, "i32"), Piece(None, whole, "i32"), Piece(None, whole, "i1"), scores),
        *(Piece(None, row), scores, scores, Piece(None, row), Piece(None, whole, q.dtype)),
    )
    factor, lowest, products, scaled, queries, places, is_seen, masked, largest, shifted, powers, total, shares = range(
        4, len(pieces)
    )
    return OperationGraph(
        pieces,
        (
            _product(0, 1, products),
            _pointwise(_MULTIPLY, products, factor, scaled),
            _pointwise(_POSITION, scaled, None, queries, axis=2),
            _pointwise(_POSITION, scaled, None, places, axis=3),
            _pointwise(_NOT_LESS, queries, places, is_seen, precision="i1"),
            _pointwise(_SELECT, scaled, lowest, masked, condition=is_seen),
            _reduction(_MAX, masked, largest),
            _pointwise(_SUBTRACT, masked, largest, shifted),
            _pointwise(_EXP, shifted, None, powers),
            _reduction(_SUM, powers, total),
            _pointwise(_DIVIDE, powers, total, shares),
            _product(shares, 2, 3),
        ),
    )


def _product(a: int, b: int, result: int) -> Operation:
    how = How(_MATMUL_HOW, _MATMUL, ((_MATMUL_PRECISION, TYPES["f32"]),))
    return Operation(_MATMUL_OPERATION, ((_MATMUL_A, a), (_MATMUL_B, b), (_MATMUL_C, result)), how=how)


def _reduction(function: int, x: int, result: int) -> Operation:
    how = How(_REDUCTION_HOW, _REDUCTION, ((_REDUCED_BY, function), (_REDUCTION_PRECISION, TYPES["f32"])))
    return Operation(_REDUCTION_OPERATION, ((_REDUCED, x), (_REDUCTION_RESULT, result)), how=how)


def _pointwise(
    function: int,
    x: int,
    b: int | None,
    result: int,
    condition: int | None = None,
    axis: int | None = None,
    precision: str = "f32",
) -> Operation:
    settings: Settings = ((_MODE, function), (_PRECISION, TYPES[precision]))
    if axis is not None:
        settings = (*settings, (_AXIS, axis))
    given = ((_X, x), (_B, b), (_T, condition), (_Y, result))
    tensors = tuple((attribute, number) for attribute, number in given if number is not None)
    return Operation(_POINTWISE_OPERATION, tensors, how=How(_HOW, _POINTWISE, settings))
