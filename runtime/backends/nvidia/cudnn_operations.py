"""Graphs of cuDNN's graph interface as data: their tensors, and the operations on these in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fuse_opt.lowering.program import Config
from fuse_opt.runtime.backends.nvidia.cudnn_problems import strides_of

# Values of enums in cudnn_graph.h.
ATTENTION, NORM = 41, 29
_Q, _K, _V, _OUT, _SCALE = 2800, 2801, 2802, 2803, 2805

_NORM_MODE, _NORM_PHASE = (2000, 27), (2001, 28)
"""Attributes and their types."""
_NORM_X, _NORM_SCALE, _NORM_BIAS, _NORM_EPSILON, _NORM_Y = 2002, 2005, 2006, 2007, 2013
_LAYER, _RMS, _INFERENCE = 0, 4, 0
_CHANNELS_LAST = (0, 2, 3, 1)
"""The order in which the library's own examples have the axes of what is normalized."""
_DEPTHS, _MOST_DEPTH = 8, 128

Settings = tuple[tuple[tuple[int, int], int], ...]
"""Attributes with their types, and their values."""


@dataclass(frozen=True)
class Piece:
    """A tensor of a graph: an operand or a result of the call, or a number."""

    place: int | None
    """Which of the operands, results behind them; None: a number."""
    extents: tuple[int, ...] = (1, 1, 1, 1)
    dtype: str = "f32"
    order: tuple[int, ...] = ()
    number: float = 0.0

    @property
    def strides(self) -> list[int]:
        """In elements."""
        return strides_of(self.extents, self.order)


@dataclass(frozen=True)
class Operation:
    """One operation: by attribute, which of the graph's tensors it reads and makes."""

    kind: int
    tensors: tuple[tuple[int, int], ...]
    settings: Settings = ()


@dataclass(frozen=True)
class OperationGraph:
    pieces: tuple[Piece, ...]
    operations: tuple[Operation, ...]


def attention_graph(q: Piece, k: Piece, v: Piece, out: Piece, scale: float) -> OperationGraph:
    """Attention of every query to all keys, which is an operation of the library's."""
    pieces = (q, k, v, out, Piece(None, number=scale))
    tensors = tuple(zip((_Q, _K, _V, _OUT, _SCALE), range(len(pieces)), strict=True))
    return OperationGraph(pieces, (Operation(ATTENTION, tensors),))


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
    if config.get("is_causal") or config.get("dropout_p"):
        return "causal" if config.get("is_causal") else "dropout"
    depth, width = shapes[0][-1], shapes[2][-1]
    if depth % _DEPTHS or width % _DEPTHS or max(depth, width) > _MOST_DEPTH:
        return "depth"
    scale = config.get("scale")
    number = float(scale) if isinstance(scale, int | float) else depth**-0.5
    q, k, v, out = (Piece(place, _by_heads(extents), dtypes[0]) for place, extents in enumerate(shapes))
    return attention_graph(q, k, v, out, number)


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
    number = float(epsilon) if isinstance(epsilon, int | float) else 1e-5
    settings = ((_NORM_MODE, mode), (_NORM_PHASE, _INFERENCE))
    names = (_NORM_X, *parameters, _NORM_Y, _NORM_EPSILON)
    tensors = tuple(zip(names, range(len(names)), strict=True))
    return OperationGraph((*pieces, Piece(None, number=number)), (Operation(NORM, tensors, settings),))


OPERATIONS: Mapping[str, Callable[[_Shapes, Sequence[str], Config], OperationGraph | str]] = {
    "graph.scaled_dot_product_attention": _attention,
    "graph.layer_norm": _layer_norm,
    "graph.rms_norm": _rms_norm,
}
