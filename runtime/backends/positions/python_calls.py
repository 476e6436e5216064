"""The same loops on arrays whose extents no program knows, as Python calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fuse_opt.lowering.program import NUMPY_NAMES, Array, BufferRef, Config, LibraryCall, Run
from fuse_opt.runtime.backends.positions.calls import CallMaker, IndexingCall
from fuse_opt.runtime.host import thread_pool

_NAMES = {np.dtype(given): name for name, given in NUMPY_NAMES.items()}
_PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)


def loops_or(otherwise: Run, name: str, make: Callable[[CallMaker], IndexingCall | None]) -> Run:
    """Runs an implementation by the loops that `make` gives, and by `otherwise` where it gives none."""
    call = LibraryCall(name, f"graph.{name.partition('.')[2]}", (), (), {}, otherwise)

    def run(inputs: Sequence[Array], outputs: Sequence[Array], config: Config) -> None:
        arrays = (*inputs, *outputs)
        table = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        if (maker := _maker(replace(call, config=config), arrays, len(inputs), table)) is None or (
            found := make(maker)
        ) is None:
            otherwise(inputs, outputs, config)
            return
        row = found.row
        _PARALLEL_FOR(thread_pool.load_pool())(row.task, row.arg, row.tasks, row.grain)
        if found.fault is not None and found.fault.failed:
            raise found.error()

    return run


def _maker(
    call: LibraryCall, arrays: Sequence[Array], inputs: int, table: ctypes.Array[ctypes.c_void_p]
) -> CallMaker | None:
    """Of a call on arrays with elements, in C order; None without a C compiler."""
    names = [_NAMES.get(array.dtype) for array in arrays]
    known = [name for name in names if name is not None]
    if len(known) < len(names) or not all(array.size and array.flags.c_contiguous for array in arrays):
        return None
    if not thread_pool.load_pool():
        return None
    refs = [BufferRef(k, 0, array.shape, name) for k, (array, name) in enumerate(zip(arrays, known, strict=True))]
    call = replace(call, inputs=tuple(refs[:inputs]), outputs=tuple(refs[inputs:]))
    return CallMaker(call, ctypes.addressof(table))
