"""Views: the operand's elements under another shape or at other indices, with no arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph.bases.elementwise import broadcast_shapes
from fuse_opt.dialects.graph.bases.movement import SlicingOp, ViewOp, slice_properties
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.properties import (
    extents_array,
    int_array,
    ints,
    normalize_axes,
    shape_attribute,
    stated_extents,
)
from fuse_opt.dialects.interfaces.shapes import (
    are_sizes_asked_for,
    is_sized,
    is_static,
    may_be_equal,
    shape,
    shape_text,
)
from fuse_opt.dialects.types.extents import is_decided, is_number
from fuse_opt.dialects.types.index_expr import Index, constant, delinearize, linearize
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr

_MISSING = (-1, DYNAMIC_INDEX)
"""How an extent that follows from the operand is written in a `shape` attribute."""
"""What calls have to keep of starts and stops that are sizes; these are never negative, and neither is what is between them."""


@irdl_op_definition
class ReshapeOp(ViewOp):
    """
    The same elements in row-major order under another `shape`, of which one extent may be -1 (or `?`): what is left. Several
    extents that are unknown are sizes over the symbols of arguments: `#graph.shape<batch, seq, 12, 64>`.
    """

    name = "graph.reshape"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    shape = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        target = stated_extents(self.shape)
        if isinstance(self.shape, ShapeAttr) and DYNAMIC_INDEX in source:
            return [n if is_number(n) else DYNAMIC_INDEX for n in target]
        known = [n for n in target if n not in _MISSING]
        if len(target) - len(known) > 1 or any(is_decided(lambda n=n: n < 0) for n in known):
            raise VerifyException(
                f"attribute 'shape': expected extents >= 0, at most one of them -1 or ?, got {shape_text(target)}"
            )
        if DYNAMIC_INDEX in source:
            return [DYNAMIC_INDEX if n in _MISSING else n for n in target]
        count, given = prod(source), prod(known)
        if count != given if len(known) == len(target) else not given or count % given:
            wanted = f"{given} elements" if len(known) == len(target) else f"a multiple of {given} elements"
            raise VerifyException(
                f"cannot reshape {shape_text(source)} ({count} elements) to {shape_text(target)} ({wanted})"
            )
        return [count // given if n in _MISSING else n for n in target]

    def canonical(self) -> GraphOp | None:
        """The shape written out; of what the operand was reshaped from."""
        inner, target = self.x.owner, shape(self.result)
        if isinstance(inner, ReshapeOp):
            return self.simplified(ReshapeOp, inner.x, shape=self.shape)
        if DYNAMIC_INDEX not in target and self.shape != (written := extents_array(target)):
            return self.simplified(ReshapeOp, self.x, shape=written)
        return None

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        return delinearize(linearize(index, shape(self.result)), shape(self.x))


@irdl_op_definition
class PermuteDimsOp(ViewOp):
    """Result axis k is operand axis `axes[k]`."""

    name = "graph.permute_dims"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = prop_def(DenseArrayBase[IntegerType])

    def order(self) -> tuple[int, ...]:
        """The operand's axes, none negative, as they come in the result."""
        axes, rank = ints(self.axes), len(shape(self.x))
        order = tuple(axis + rank if -rank <= axis < 0 else axis for axis in axes)
        if sorted(order) != list(range(rank)):
            raise VerifyException(f"attribute 'axes': expected a permutation of 0..{rank - 1}, got {list(axes)}")
        return order

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        return [source[axis] for axis in self.order()]

    def canonical(self) -> GraphOp | None:
        """
        Of what the operand was permuted from, before it got axes of extent 1, or made so at once; a reshape when only such axes
        move.
        """
        inner, order = self.x.owner, self.order()
        if isinstance(inner, PermuteDimsOp):
            first = inner.order()
            return self.simplified(PermuteDimsOp, inner.x, axes=int_array([first[axis] for axis in order]))
        moving = [axis for axis in order if shape(self.x)[axis] != 1]
        if is_sized(self.x) and moving == sorted(moving) and list(order) != sorted(order):
            return self.simplified(ReshapeOp, self.x, shape=extents_array(shape(self.result)))
        if isinstance(inner, OpaqueOp) and self.x.has_one_use() and not inner.attributes:
            return inner.permuted(order) or self._of_swapped(inner)
        return self._before_units(inner) if isinstance(inner, ReshapeOp) else None

    def _of_swapped(self, inner: OpaqueOp) -> GraphOp | None:
        """With the last axis where it is, of what gives its last two axes swapped."""
        rank, order = len(shape(self.x)), self.order()
        if rank < 3 or order[-1] != rank - 2:
            return None
        swap = [*range(rank - 2), rank - 1, rank - 2]
        if (product := inner.permuted(swap)) is None:
            return None
        return self.simplified(PermuteDimsOp, product.results[0], axes=int_array([swap[axis] for axis in order]))

    def _before_units(self, inner: ReshapeOp) -> GraphOp | None:
        """What it is where the operand is a value of fewer axes, but for some of extent 1: that one permuted, then reshaped."""
        source, given = shape(inner.x), shape(self.x)
        if not is_sized(self.x) or len(source) >= len(given):
            return None
        axes = [axis for axis, extent in enumerate(source) if extent != 1]
        places = [axis for axis, extent in enumerate(given) if extent != 1]
        if [source[axis] for axis in axes] != [given[axis] for axis in places]:
            return None
        moved = [axes[places.index(axis)] for axis in self.order() if axis in places]
        units = [axis for axis, extent in enumerate(source) if extent == 1]
        permuted = PermuteDimsOp.build_op(inner.x, axes=int_array([*units, *moved]))
        return self.simplified(ReshapeOp, permuted.results[0], shape=extents_array(shape(self.result)))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        order = self.order()
        return tuple(index[order.index(axis)] for axis in range(len(order)))


@irdl_op_definition
class BroadcastToOp(ViewOp):
    """
    NumPy broadcasting, explicit: axes are added in front, extents of 1 repeated. -1 (or `?`) keeps an axis as it is; an extent
    may be a size over the symbols of arguments.
    """

    name = "graph.broadcast_to"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    shape = prop_def(DenseArrayBase[IntegerType] | ShapeAttr)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        target = stated_extents(self.shape)
        new = len(target) - len(source)
        kept = [source[axis - new] if n in _MISSING and axis >= max(new, 0) else n for axis, n in enumerate(target)]
        negative = [n for n in kept if is_decided(lambda n=n: n < 0)]
        if any(n != DYNAMIC_INDEX for n in negative) or DYNAMIC_INDEX in kept[: max(new, 0)]:
            raise VerifyException(
                f"attribute 'shape': expected extents >= 0, or -1 or ? for those of the operand's axes, got "
                f"{shape_text(target)}"
            )
        if new < 0 or broadcast_shapes([source, tuple(kept)]) != tuple(kept):
            raise VerifyException(f"shape {shape_text(source)} does not broadcast to {shape_text(target)}")
        return kept

    def canonical(self) -> GraphOp | None:
        """Of what the operand was broadcast from; a reshape when nothing is repeated."""
        inner, target = self.x.owner, shape(self.result)
        if self._is_static() and prod(shape(self.x)) == prod(target):
            return self.simplified(ReshapeOp, self.x, shape=int_array(target))
        if not isinstance(inner, BroadcastToOp) or DYNAMIC_INDEX in target:
            return None
        return self.simplified(BroadcastToOp, inner.x, shape=shape_attribute(target))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        source = shape(self.x)
        trailing = index[len(index) - len(source) :]
        return tuple(constant(0) if n == 1 else i for n, i in zip(source, trailing, strict=True))


@irdl_op_definition
class SqueezeOp(ViewOp):
    """Without the `axes` named, which must be of extent 1; without all of extent 1 when there are none named."""

    name = "graph.squeeze"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def removed(self) -> tuple[int, ...]:
        """The axes that go, sorted."""
        source = shape(self.x)
        if self.axes is not None:
            return normalize_axes(ints(self.axes), len(source))
        if DYNAMIC_INDEX in source or any(n != 1 and may_be_equal(n, 1) for n in source):
            raise VerifyException(f"extents of {shape_text(source)} are unknown; name the 'axes' of extent 1")
        return tuple(axis for axis, n in enumerate(source) if n == 1)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        removed = self.removed()
        for axis in removed:
            if source[axis] not in (1, DYNAMIC_INDEX):
                raise VerifyException(f"axis {axis} of {shape_text(source)}: expected extent 1, got {source[axis]}")
        return [n for axis, n in enumerate(source) if axis not in removed]

    def canonical(self) -> GraphOp | None:
        return self.simplified(ReshapeOp, self.x, shape=int_array(shape(self.result))) if self._is_static() else None

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        kept, removed = iter(index), self.removed()
        return tuple(constant(0) if axis in removed else next(kept) for axis in range(len(shape(self.x))))


@irdl_op_definition
class ExpandDimsOp(ViewOp):
    """With new axes of extent 1: the result's `axis`, or several `axes` of it."""

    name = "graph.expand_dims"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    axis = opt_prop_def(IntegerAttr)
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def added(self) -> tuple[int, ...]:
        """The result's new axes, sorted."""
        if (self.axis is None) == (self.axes is None):
            raise VerifyException("expected one of the attributes 'axis' and 'axes'")
        axes = ints(self.axes) if self.axis is None else (self.axis.value.data,)
        return normalize_axes(axes, len(shape(self.x)) + len(axes))

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        added, kept = self.added(), iter(source)
        return [1 if axis in added else next(kept) for axis in range(len(source) + len(added))]

    def canonical(self) -> GraphOp | None:
        return self.simplified(ReshapeOp, self.x, shape=int_array(shape(self.result))) if self._is_static() else None

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        added = self.added()
        return tuple(i for axis, i in enumerate(index) if axis not in added)


@irdl_op_definition
class SliceOp(SlicingOp, ViewOp):
    """NumPy's basic slice with a start, stop and step (1) for every axis; negative starts and stops count from the end.

    With a negative step, a stop below `-extent` means "past the first element". Starts and stops may be sizes over the symbols
    of arguments (`#graph.shape<0, past + seq>`), with steps that are not negative: a call where a stop is behind the end of its
    axis is refused.
    """

    name = "graph.slice"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        known = zip(source, self.spans(), strict=True)
        return [span.count if n != DYNAMIC_INDEX and _is_said(span.count) else DYNAMIC_INDEX for n, span in known]

    def canonical(self) -> GraphOp | None:
        """Of what the operand was sliced from."""
        inner = self.x.owner
        if not isinstance(inner, SliceOp) or not is_static(inner.x) or not inner.has_numbers() & self.has_numbers():
            return None
        positions = [first[r.start : _stop(r) : r.step] for first, r in zip(inner.ranges(), self.ranges(), strict=True)]
        return self.simplified(SliceOp, inner.x, **slice_properties(positions, shape(inner.x)))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        # Of an empty slice nothing is read; its start may lie past the end.
        found = self.spans()
        return tuple(i * s.step + s.start if s.count != 0 else constant(0) for i, s in zip(index, found, strict=True))


@irdl_op_definition
class FlipOp(ViewOp):
    """In reverse order along `axes` (all when absent)."""

    name = "graph.flip"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    axes = opt_prop_def(DenseArrayBase[IntegerType])

    def flipped(self) -> tuple[int, ...]:
        rank = len(shape(self.x))
        return normalize_axes(ints(self.axes, range(rank)), rank)

    def view_shape(self, source: tuple[int, ...]) -> Sequence[int]:
        self.flipped()
        return source

    def canonical(self) -> GraphOp | None:
        """A slice, which joins others; of unknown extents, of what the operand was flipped from."""
        inner, axes, extents = self.x.owner, self.flipped(), shape(self.x)
        if self._is_static():
            positions = [range(n)[::-1] if axis in axes else range(n) for axis, n in enumerate(extents)]
            return self.simplified(SliceOp, self.x, **slice_properties(positions, extents))
        if not isinstance(inner, FlipOp):
            return None
        return self.simplified(FlipOp, inner.x, axes=int_array(sorted(set(axes) ^ set(inner.flipped()))))

    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        axes, source = self.flipped(), shape(self.x)
        last = [max(n - 1, 0) for n in source]
        return tuple(i * -1 + last[axis] if axis in axes else i for axis, i in enumerate(index))


def _is_said(count: int) -> bool:
    """Whether types say a count now: one that is a size only where sizes are asked for."""
    return is_number(count) or are_sizes_asked_for()


def _stop(positions: range) -> int | None:
    """The stop as Python's slices say it: there is none before the first element."""
    return positions.stop if positions.stop >= 0 else None
