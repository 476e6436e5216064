"""Graphs of cuDNN's graph interface as data: their tensors, and the operations on these in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

from fuse_opt.runtime.backends.nvidia.cudnn_problems import strides_of

# Values of enums in cudnn_graph.h.
ATTENTION, NORM = 41, 29
_Q, _K, _V, _OUT, _SCALE = 2800, 2801, 2802, 2803, 2805

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
