"""Reads and writes at positions that are data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fuse_opt.lowering.program import BufferRef
from fuse_opt.runtime.backends.positions.calls import (
    MOST_AXES,
    TASK_BYTES,
    CallMaker,
    IndexingCall,
    Indices,
    Named,
    axis_of,
    lines_along,
)


def _named(indices: Sequence[Indices | None], refs: Sequence[BufferRef], together: tuple[int, ...]) -> Named | None:
    known = tuple(entry for entry in indices if entry is not None)
    return None if len(known) < len(indices) or len(together) > MOST_AXES else Named(known, tuple(refs), together)


def _broadcast_steps(shape: Sequence[int], together: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours of an operand along the axes of what it broadcasts to."""
    steps = [prod(shape[k + 1 :]) if n > 1 else 0 for k, n in enumerate(shape)]
    kept = zip([0] * (len(together) - len(shape)) + steps, together, strict=True)
    plain = [prod(together[k + 1 :]) for k in range(len(together))]
    return tuple(own if n > 1 else plain[k] for k, (own, n) in enumerate(kept))


def take(m: CallMaker) -> IndexingCall | None:
    x, indices = m.call.inputs
    axis = axis_of(m.call.config, "axis", 0, len(x.shape))
    named = _named([m.indices(indices, x.shape[axis], axis, 1, (1,))], [indices], (prod(indices.shape),))
    if named is None:
        return None
    record = m.rows(named, x.shape[axis], prod(x.shape[axis + 1 :]), outer=prod(x.shape[:axis]))
    return m.reading(record, named)


def checked_positions(m: CallMaker) -> IndexingCall | None:
    extent, axis = m.call.config["extent"], m.call.config["axis"]
    assert isinstance(extent, int) and isinstance(axis, int)
    named = _named([m.indices(m.x, extent, axis, 1, (1,))], [m.x], (prod(m.x.shape),))
    if named is None:
        return None
    record = m.rows(named, extent, 1)
    record.chunk = TASK_BYTES // record.bytes
    return m.done("fuse_check_rows", -(-record.count // record.chunk), record, named.indices, named.refs)


def _neighbours(m: CallMaker, operands: Sequence[BufferRef]) -> tuple[Named, int, int] | None:
    """Operands that name rows together, each for one of neighbouring axes of x: with the first of these, and behind the last."""
    x, given = m.x, m.call.config.get("axes", tuple(range(len(operands))))
    assert isinstance(given, tuple)
    axes = [int(axis) % len(x.shape) for axis in given]
    first, last = min(axes), min(axes) + len(axes)
    together = np.broadcast_shapes(*(ref.shape for ref in operands))
    if sorted(axes) != list(range(first, last)) or len(together) > MOST_AXES:
        return None
    indices = [
        m.indices(ref, x.shape[axis], axis, prod(x.shape[axis + 1 : last]), _broadcast_steps(ref.shape, together))
        for ref, axis in zip(operands, axes, strict=True)
    ]
    named = _named(indices, operands, together)
    return None if named is None else (named, first, last)


def index(m: CallMaker) -> IndexingCall | None:
    if (found := _neighbours(m, m.call.inputs[1:])) is None:
        return None
    (named, first, last), shape = found, m.x.shape
    return m.reading(m.rows(named, prod(shape[first:last]), prod(shape[last:]), outer=prod(shape[:first])), named)


def index_put(m: CallMaker) -> IndexingCall | None:
    x, values, *operands = m.call.inputs
    found, kind = _neighbours(m, operands), m.joined("add" if m.call.config.get("accumulate") else "none")
    if found is None or kind is None or found[1]:
        return None
    named, _, count = found
    row, places = x.shape[count:], prod(named.together)
    scalar = values.shape == row and places > 1
    if not scalar and prod(values.shape) != places * prod(row):
        return None
    record = m.rows(named, prod(x.shape[:count]), prod(row), values=values)
    record.scalar, (record.type, record.join) = int(scalar), kind
    return m.writing(record, named)


def _entries(m: CallMaker, x: BufferRef, indices: BufferRef) -> tuple[Named, int] | None:
    """The entries of positions along the last axis of the indices, as one operand each; and how many there are."""
    length = indices.shape[-1]
    found = [
        m.indices(indices, x.shape[k], k, prod(x.shape[k + 1 : length]), (length,), shift=k) for k in range(length)
    ]
    named = _named(found, [indices] * length, (prod(indices.shape[:-1]),))
    return None if named is None else (named, length)


def gather_nd(m: CallMaker) -> IndexingCall | None:
    x, indices = m.call.inputs
    if m.call.config.get("batch_dims") or (found := _entries(m, x, indices)) is None:
        return None
    named, length = found
    return m.reading(m.rows(named, prod(x.shape[:length]), prod(x.shape[length:])), named)


def scatter_nd(m: CallMaker) -> IndexingCall | None:
    x, indices, updates = m.call.inputs
    found, kind = _entries(m, x, indices), m.joined(str(m.call.config.get("reduce", "none")))
    if found is None or kind is None:
        return None
    named, length = found
    record = m.rows(named, prod(x.shape[:length]), prod(x.shape[length:]), values=updates)
    record.type, record.join = kind
    return m.writing(record, named)


def embedding_backward(m: CallMaker) -> IndexingCall | None:
    grad, ids = m.call.inputs
    rows, width = m.out.shape
    kind, named = m.joined("add"), _named([m.indices(ids, rows, 0, 1, (1,))], [ids], (prod(ids.shape),))
    if named is None or kind is None:
        return None
    record = m.rows(named, rows, width, values=grad)
    (record.type, record.join), record.fills = kind, 1
    if isinstance(padding := m.call.config.get("padding_index"), int):
        record.skipped = padding + rows if padding < 0 else padding
    return m.writing(record, named)


def _along(m: CallMaker, indices: BufferRef, axis: int) -> Indices | None:
    """Indices along an axis of x, where they have its extents on the others."""
    shape, given = m.x.shape, indices.shape
    same = (*shape[:axis], *shape[axis + 1 :]) == (*given[:axis], *given[axis + 1 :])
    return m.indices(indices, shape[axis], axis, 1, (1,)) if same else None


def _shared(own: Sequence[int], given: Sequence[int]) -> bool | None:
    """Whether all places along some axes share indices; None where some of them do."""
    return False if tuple(own) == tuple(given) else True if set(given) <= {1} else None


def take_along_axis(m: CallMaker) -> IndexingCall | None:
    x, indices = m.call.inputs
    axis = axis_of(m.call.config, "axis", -1, len(x.shape))
    outer, inner = (_shared(x.shape[part], indices.shape[part]) for part in (slice(axis), slice(axis + 1, None)))
    entry = m.indices(indices, x.shape[axis], axis, 1, (1,))
    if entry is None or outer is None or inner is None:
        return None
    record = lines_along(m, axis)
    record.count = indices.shape[axis]
    record.index_inner = not inner
    record.index_outer = 0 if outer else record.count * prod(indices.shape[axis + 1 :])
    record.block = max(1, TASK_BYTES // (record.inner * record.bytes))
    tasks = -(-record.outer * record.count // record.block)
    return m.done("fuse_gather_lines", tasks, record, [entry], [indices])


def scatter(m: CallMaker, reduce: str) -> IndexingCall | None:
    x, indices, updates = m.call.inputs
    axis = axis_of(m.call.config, "axis", 0, len(x.shape))
    kind, entry = m.joined(reduce), _along(m, indices, axis)
    if kind is None or entry is None:
        return None
    record = lines_along(m, axis, updates)
    record.count, (record.type, record.join) = indices.shape[axis], kind
    return m.done("fuse_put_lines", record.outer * -(-record.inner // record.block), record, [entry], [indices])
