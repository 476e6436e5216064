"""Graphs of cuDNN's graph interface as data: their tensors, and the operations on these in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fuse_opt.lowering.program import Config
from fuse_opt.runtime.backends.nvidia.cudnn_problems import TYPES, strides_of

# Values of enums in cudnn_graph.h.
ATTENTION, NORM = 41, 29
_POINTWISE, _POINTWISE_OPERATION, _MATMUL, _MATMUL_OPERATION, _REDUCTION, _REDUCTION_OPERATION = 0, 13, 18, 19, 21, 22
_Q, _K, _V, _OUT, _SCALE = 2800, 2801, 2802, 2803, 2805

_MODE, _PRECISION, _AXIS = (0, 14), (1, 1), (9, 3)
"""Attributes and their types."""
_HOW, _X, _B, _Y, _T, _FACTORS = 750, 751, 752, 753, 758, ((754, 4), (755, 4))
_MATMUL_PRECISION, _MATMUL_A, _MATMUL_B, _MATMUL_C, _MATMUL_HOW = (1500, 1), 1520, 1521, 1522, 1523
_REDUCED_BY, _REDUCTION_PRECISION, _REDUCED, _REDUCTION_RESULT, _REDUCTION_HOW = (1600, 18), (1601, 1), 1610, 1611, 1612
_ADD, _MULTIPLY, _DIVIDE, _SUBTRACT, _EXP, _LOG, _NOT_LESS, _POSITION, _SELECT = 0, 1, 6, 9, 13, 15, 303, 501, 601
_SUM, _MAX = 0, 3
_NORM_MODE, _NORM_PHASE = (2000, 27), (2001, 28)
_NORM_X, _NORM_SCALE, _NORM_BIAS, _NORM_EPSILON, _NORM_Y = 2002, 2005, 2006, 2007, 2013
_LAYER, _RMS, _INFERENCE = 0, 4, 0
_CHANNELS_LAST = (0, 2, 3, 1)
"""The order in which the library's own examples have the axes of what is normalized."""
_DEPTHS, _MOST_DEPTH = 8, 128

GRAPH_TYPES = {**TYPES, "i32": 4, "i1": 11}
"""Those of TYPES, and those of positions and masks, which operations alone see."""
ALIGNMENT = 16
_OF_A_NUMBER = 4
"""Bytes at multiples of which tensors begin, and the numbers of operations that are one."""
_KEPT_ALIGNMENT = 256

Settings = tuple[tuple[tuple[int, int], int | float], ...]
"""Attributes with their types, and their values."""


@dataclass(frozen=True)
class Piece:
    """A tensor of a graph: an operand or a result of the call, a number, or what the operations alone make and read."""

    place: int | None
    """Which of the operands, results behind them; None: a number, or of the operations alone."""
    extents: tuple[int, ...] = (1, 1, 1, 1)
    dtype: str = "f32"
    order: tuple[int, ...] = ()
    number: float | None = None
    is_kept: bool = False
    """Whether it is written to memory, though it is no result of the call."""
    alignment: int = ALIGNMENT

    @property
    def is_virtual(self) -> bool:
        """Whether it is never in memory."""
        return self.place is None and self.number is None and not self.is_kept

    @property
    def strides(self) -> list[int]:
        """In elements."""
        return strides_of(self.extents, self.order)


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

    @property
    def kept_bytes(self) -> int:
        """What is kept takes, all of f32, in front of what the library works in."""
        return sum(_kept_bytes(piece) for piece in self.pieces if piece.is_kept)

    def kept_at(self, piece: int) -> int:
        """Where what is kept begins."""
        return sum(_kept_bytes(each) for each in self.pieces[:piece] if each.is_kept)


def _kept_bytes(piece: Piece) -> int:
    return -(-4 * prod(piece.extents) // _KEPT_ALIGNMENT) * _KEPT_ALIGNMENT


def attention_graph(q: Piece, k: Piece, v: Piece, out: Piece, scale: float) -> OperationGraph:
    """Attention of every query to all keys, which is an operation of the library's."""
    pieces = (q, k, v, out, Piece(None, number=scale, alignment=_OF_A_NUMBER))
    tensors = tuple(zip((_Q, _K, _V, _OUT, _SCALE), range(len(pieces)), strict=True))
    return OperationGraph(pieces, (Operation(ATTENTION, tensors),))


def causal_attention_graph(q: Piece, k: Piece, v: Piece, out: Piece, scale: float) -> OperationGraph:
    """
    Attention of a query to the keys up to its own position. The library's one operation takes a mask from version 9.21 on; as
    products and what is between them, in this order, older versions know it, but only with logarithms of sums among the results:
    an H200's 9.19 had no plan without them (November 2026).
    """
    batch, heads, rows, depth = q.extents
    keys = k.extents[2]
    whole, row = (batch, heads, rows, keys), (batch, heads, rows, 1)
    turned = Piece(k.place, (*k.extents[:2], depth, keys), k.dtype, (0, 1, 3, 2))
    scores, each = Piece(None, whole), Piece(None, row)
    pieces = (
        *(q, turned, v, out, Piece(None, number=scale), Piece(None, number=float("-inf"))),
        *(scores, scores, Piece(None, whole, "i32"), Piece(None, whole, "i32"), Piece(None, whole, "i1"), scores),
        *(each, scores, scores, each, each, Piece(None, row, is_kept=True), Piece(None, whole, q.dtype)),
    )
    factor, lowest, products, scaled, queries, places, is_seen, masked = range(4, 12)
    largest, shifted, powers, total, log, kept, shares = range(12, len(pieces))
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
            _pointwise(_LOG, total, None, log),
            _pointwise(_ADD, largest, log, kept),
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
    how: Settings = ((_MODE, function), (_PRECISION, GRAPH_TYPES[precision]))
    if axis is not None:
        how = (*how, (_AXIS, axis))
    given = ((_X, x), (_B, b), (_T, condition), (_Y, result))
    tensors = tuple((attribute, number) for attribute, number in given if number is not None)
    factors = tuple((factor, 1.0) for factor in _FACTORS)
    return Operation(_POINTWISE_OPERATION, tensors, factors, How(_HOW, _POINTWISE, how))


_Shapes = Sequence[tuple[int, ...]]


def graph_of(op: str, shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    """An op on operands and a result as a graph of the library's, or the code of why it is none."""
    return OPERATIONS[op](shapes, dtypes, config)


def _attention(shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    """q, k and v alone, of f16 or bf16: there is no code of the library's for others."""
    if not {*dtypes} < {"f16", "bf16"}:
        return "dtype"
    if len(shapes) > 4:
        return "mask"
    if config.get("dropout_p"):
        return "dropout"
    depth, width = shapes[0][-1], shapes[2][-1]
    if depth % _DEPTHS or width % _DEPTHS or max(depth, width) > _MOST_DEPTH:
        return "depth"
    scale = config.get("scale")
    number = float(scale) if isinstance(scale, int | float) else depth**-0.5
    q, k, v, out = (Piece(place, _by_heads(extents), dtypes[0]) for place, extents in enumerate(shapes))
    return (causal_attention_graph if config.get("is_causal") else attention_graph)(q, k, v, out, number)


def _by_heads(extents: tuple[int, ...]) -> tuple[int, ...]:
    """[batch, heads, rows, depth]."""
    *outer, heads, rows, depth = (1, *extents) if len(extents) == 2 else extents
    return prod(outer), heads, rows, depth


def _layer_norm(shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    return _norm(shapes, dtypes, config, _LAYER, (_NORM_SCALE, _NORM_BIAS))


def _rms_norm(shapes: _Shapes, dtypes: Sequence[str], config: Config) -> OperationGraph | str:
    return _norm(shapes, dtypes, config, _RMS, (_NORM_SCALE,))


def _norm(
    shapes: _Shapes, dtypes: Sequence[str], config: Config, mode: int, parameters: Sequence[int]
) -> OperationGraph | str:
    """Of the rows of a matrix, with all parameters that the mode has."""
    if not {*dtypes} <= {"f32", "f16", "bf16"} or len({*dtypes}) > 1:
        return "dtype"
    if len(shapes) != len(parameters) + 2:
        return "no-parameters"
    x, axis, epsilon = shapes[0], config.get("axis", -1), config.get("epsilon")
    assert isinstance(axis, int)
    inner = prod(x[axis % len(x) :])
    whole, row = (prod(x) // inner, inner, 1, 1), (1, inner, 1, 1)
    extents = (whole, *(row for _ in parameters), whole)
    pieces = [Piece(place, each, dtypes[0], _CHANNELS_LAST) for place, each in enumerate(extents)]
    added = float(epsilon) if isinstance(epsilon, int | float) else 1e-5
    pieces.append(Piece(None, number=added, alignment=_OF_A_NUMBER))
    settings = ((_NORM_MODE, mode), (_NORM_PHASE, _INFERENCE))
    names = (_NORM_X, *parameters, _NORM_Y, _NORM_EPSILON)
    tensors = tuple(zip(names, range(len(names)), strict=True))
    return OperationGraph(tuple(pieces), (Operation(NORM, tensors, settings),))


OPERATIONS: Mapping[str, Callable[[_Shapes, Sequence[str], Config], OperationGraph | str]] = {
    "graph.scaled_dot_product_attention": _attention,
    "graph.layer_norm": _layer_norm,
    "graph.rms_norm": _rms_norm,
}
