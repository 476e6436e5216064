"""Tensors as oneDNN has them: extents and strides by axis, and the panels in which weights lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fuse_opt.dialects.implementation.site import Tensor
from fuse_opt.dialects.types.encodings import OrderAttr, PanelAttr, parts_of

ITEM_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "i8": 1, "ui8": 1}
SIDE_BY_SIDE = {"i8": 4, "ui8": 4, "f16": 2, "bf16": 2}
"""By element type of weights: how many along the contracted axis instructions read at a time."""


@dataclass(frozen=True, slots=True)
class Dense:
    """A tensor by strides, in elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    """Nothing where the library is to choose how the tensor lies."""
    panel: tuple[int, int] | None = None
    """An axis in panels, of which the stride is from one to the next, and their width: elements of one lie innermost."""
    group: tuple[int, int] | None = None
    """An axis of which so many elements lie side by side for each of a panel's; its stride is from those to the next."""

    @classmethod
    def in_order(cls, shape: Sequence[int], dtype: str) -> Dense:
        """One in C order."""
        return cls(tuple(shape), dtype, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))

    @classmethod
    def in_memory(
        cls, extents: Sequence[int], dtype: str, order: Sequence[int], panel: tuple[int, int, int] | None = None
    ) -> Dense:
        """
        One whose axes lie so, from outermost to innermost, with these extents there; no order is C order. Of a `panel` (its place
        in that order, the width, elements side by side) panels come first, and elements of one last.
        """
        lying, moves = list(extents), list(cls.in_order(extents, dtype).strides)
        if panel is None:
            return cls._by_axis(lying, moves, dtype, order)
        place, width, side = panel
        inner = 1 if side == 1 else 2
        row = len(extents) - inner - 1 - (place == len(extents) - inner - 1)  # the innermost other axis
        lying, moves = lying[1:-inner], moves[1:-inner]
        lying.insert(place, extents[0] * width)
        moves.insert(place, cls.in_order(extents, dtype).strides[0])
        lying[row] *= side
        found = cls._by_axis(lying, moves, dtype, order)
        axes = [order[n] if order else n for n in (place, row)]
        return replace(found, panel=(axes[0], width), group=None if side == 1 else (axes[1], side))

    @classmethod
    def _by_axis(cls, lying: Sequence[int], moves: Sequence[int], dtype: str, order: Sequence[int]) -> Dense:
        """Extents and strides from outermost to innermost, by axis."""
        places = [order.index(axis) for axis in range(len(order))] or range(len(lying))
        return cls(tuple(lying[n] for n in places), dtype, tuple(moves[n] for n in places))

    def permuted(self, axes: Sequence[int]) -> Dense:
        """The same elements by axes in another order."""
        panel, group = (None if of is None else (axes.index(of[0]), of[1]) for of in (self.panel, self.group))
        strides = tuple(self.strides[axis] for axis in axes) if self.strides else ()
        return Dense(tuple(self.shape[axis] for axis in axes), self.dtype, strides, panel, group)

    @classmethod
    def of(cls, tensor: Tensor) -> Dense:
        """An operand or a result of a site, which lies in an order."""
        parts = () if tensor.encoding is None else parts_of(tensor.encoding)
        order = next((part.order for part in parts if isinstance(part, OrderAttr)), ())
        panels = (part for part in parts if isinstance(part, PanelAttr))
        panel = next(((part.axis.data, part.width.data, part.group.data) for part in panels), None)
        extents = tensor.shape if tensor.encoding is None else tensor.encoding.memory_extents(tensor.shape)
        return cls.in_memory(extents, tensor.dtype, order, panel)
