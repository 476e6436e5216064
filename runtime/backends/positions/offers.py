"""Which ops loops of indexing_tasks.c and order_tasks.c run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from fuse_opt.dialects.implementation.site import Cost, Site
from fuse_opt.lowering.program import NUMPY_NAMES, BufferRef, LibraryCall
from fuse_opt.lowering.reference.kernels.costs import NATIVE_CALL, moving_cost
from fuse_opt.lowering.reference.kernels.registry import native_implementation
from fuse_opt.runtime.backends.positions import indexing, orders
from fuse_opt.runtime.backends.positions.calls import CallMaker, IndexingCall
from fuse_opt.runtime.backends.positions.python_calls import loops_or


def indexing_call(call: LibraryCall, table: int) -> IndexingCall | None:
    """The call on the buffers of `table`; None where it is no such call, or one that is not for these loops."""
    make = _MAKERS.get(call.implementation)
    return None if make is None else make(CallMaker(call, table))


_MAKERS: Mapping[str, Callable[[CallMaker], IndexingCall | None]] = {
    "fuse.take": indexing.take,
    "fuse.take_along_axis": indexing.take_along_axis,
    "fuse.checked_positions": indexing.checked_positions,
    "fuse.gather_nd": indexing.gather_nd,
    "fuse.index": indexing.index,
    "fuse.index_put": indexing.index_put,
    "fuse.scatter": lambda m: indexing.scatter(m, "none"),
    "fuse.scatter_add": lambda m: indexing.scatter(m, "add"),
    "fuse.scatter_reduce": lambda m: indexing.scatter(m, str(m.call.config["reduce"])),
    "fuse.scatter_nd": indexing.scatter_nd,
    "fuse.embedding_backward": indexing.embedding_backward,
    "fuse.cumulative_sum": lambda m: orders.running_total(m, 1),
    "fuse.cumulative_prod": lambda m: orders.running_total(m, 2),
    "fuse.searchsorted": orders.search,
}
"""By implementation."""


def _refusal(name: str, site: Site) -> str | None:
    """
    Why the loops do not run an op, by making the call as if its operands were somewhere. Extents that are sizes are what is
    typical, and NumPy runs calls whose arrays are not for the loops.
    """
    tensors = (*site.operands, *site.results)
    if not site.is_known:
        return "extent-unknown"
    if site.is_static and not all(tensor.size for tensor in tensors):
        return "empty"
    if any(tensor.dtype not in NUMPY_NAMES for tensor in tensors):
        return "dtype"
    refs = tuple(BufferRef(0, 0, tensor.usual_shape, tensor.dtype) for tensor in tensors)
    count = len(site.operands)
    call = LibraryCall(name, site.name, refs[:count], refs[count:], site.config, _never)
    return None if _MAKERS[name](CallMaker(call, 0, lambda task, kind: 0)) is not None else "form"


def _never(inputs: object, outputs: object, config: object) -> None:
    """Such a call is not made."""


def _cost(site: Site) -> Cost:
    return replace(moving_cost(site), call=NATIVE_CALL)


for _name, _make in _MAKERS.items():
    _what = _name.partition(".")[2]
    native_implementation(
        _name,
        f"numpy.{_what}",
        f"graph.{_what}",
        functools.partial(_refusal, _name),
        _cost,
        sized=True,
        run=functools.partial(loops_or, name=_name, make=_make),
    )
