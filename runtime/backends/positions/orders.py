"""Running totals along an axis, and places in ascending numbers."""

from __future__ import annotations

from math import prod

from fuse_opt.runtime.backends.positions.calls import (
    MOST_RANGES,
    ORDERS,
    TYPES,
    CallMaker,
    IndexingCall,
    LinesRecord,
    axis_of,
    itemsize_of,
    lines_along,
)
from fuse_opt.runtime.host.c_records import number_in
from fuse_opt.runtime.host.thread_pool import num_threads

_LINES_TOGETHER, _FEW_TASKS = number_in(ORDERS, "LINES"), 4
"""Lines whose running totals a task takes together, as each waits for its last one; tasks that are worth more than that."""
_LEAST_COLUMNS = 512
"""Of running totals side by side, and as many as there are threads for: memory is asked for ahead along rows."""
_MOST_COLUMNS = number_in(ORDERS, "MOST_COLUMNS")
_SEARCHED = 1024
"""Values whose places a task looks for."""


def running_total(m: CallMaker, join: int) -> IndexingCall | None:
    config = m.call.config
    if m.x.dtype not in TYPES:
        return None
    axis = axis_of(config, "axis", 0, len(m.x.shape))
    record = lines_along(m, axis)
    record.type, record.join, record.count = TYPES.index(m.x.dtype), join, m.out.shape[axis]
    record.late = bool(config.get("exclusive") or config.get("include_initial"))
    record.backwards = bool(config.get("reverse"))
    if record.inner == 1:
        record.block = max(1, min(record.outer // _FEW_TASKS, _LINES_TOGETHER))
        return m.done("fuse_run_totals", -(-record.outer // record.block), record, [], [])
    some = max(-(-record.outer * record.inner // min(num_threads(), MOST_RANGES)), _LEAST_COLUMNS)
    record.block = min(record.inner, some, _MOST_COLUMNS)
    return m.done("fuse_run_totals", record.outer * -(-record.inner // record.block), record, [], [])


def search(m: CallMaker) -> IndexingCall | None:
    """Places of values among those of x."""
    values, record = m.call.inputs[1], LinesRecord()
    if m.x.dtype not in TYPES:
        return None
    m.place_all(record, values)
    record.extent, record.count, record.block, record.bytes = (
        m.x.shape[0],
        prod(values.shape),
        _SEARCHED,
        itemsize_of(values),
    )
    record.type, record.join = TYPES.index(m.x.dtype), m.call.config.get("side", "left") == "right"
    return m.done("fuse_search_lines", -(-record.count // record.block), record, [], [])
