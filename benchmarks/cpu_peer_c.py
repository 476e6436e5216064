"""Peers in C: hand-written loops, and the limit, which moves the bytes of a workload and does nothing else."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from platform import machine
from typing import Any

import numpy as np
from cpu_peer_base import Call, Loaded, in_room, room, typed_inputs
from cpu_workloads import Case

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC")
SOURCES = Path(__file__).resolve().parent / "workloads"


class Stream(ctypes.Structure):
    """A stream of workloads/limit.c."""

    _fields_ = [("source", ctypes.c_void_p), ("target", ctypes.c_void_p), ("bytes", ctypes.c_long)]


def load_limit(case: Case, inputs: list[Any], results: list[Any]) -> Call:
    """Results are copies of inputs of the same size, as far as there are any; donated inputs are copied onto themselves."""
    if not case.is_bound_by_memory:
        raise NotImplementedError("bound by arithmetic, not by memory")
    library = _built("limit.c")
    arrays = typed_inputs(case, inputs)
    left = list(range(len(arrays)))
    streams: list[tuple[Any, Any]] = []
    out = [room(r.shape, arrays[0].dtype) for r in results]
    for k, result in enumerate(out):
        if case.workload.donated:
            number = case.workload.donated[k]
            out[k] = result = arrays[number]
        else:
            number = next((n for n in left if arrays[n].nbytes == result.nbytes), None)
        streams.append((None if number is None else arrays[number], result))
        left = [n for n in left if n != number]
    streams += [(arrays[n], None) for n in left]
    table = (Stream * len(streams))()
    for entry, (source, target) in zip(table, streams, strict=True):
        entry.source, entry.target = (None if a is None else a.ctypes.data for a in (source, target))
        entry.bytes = (target if source is None else source).nbytes
    function, count = library.limit, ctypes.c_long(len(streams))
    address, key = ctypes.c_void_p(ctypes.addressof(table)), ctypes.c_uint64(0)

    def call() -> Any:
        function(address, count, key)
        return out, table, arrays

    return call


def load_plain_c(case: Case, inputs: list[Any], results: list[Any]) -> Loaded:
    if case.dtype != "f32":
        raise NotImplementedError(f"not written for {case.dtype}")
    library = _built("plain.c", "-lmvec", "-lm")
    function = getattr(library, case.name, None)
    if function is None:
        raise NotImplementedError("not written: it needs a library")
    arrays, donated = [in_room(a) for a in inputs], case.workload.donated
    out = [arrays[n] for n in donated] or [room(r.shape, np.float32) for r in results]
    pointers = [(ctypes.c_void_p * len(side))(*(a.ctypes.data for a in side)) for side in (arrays, out)]
    extents = [n for a in arrays[:2] for n in a.shape]
    extent = (ctypes.c_long * len(extents))(*extents)

    def call() -> Any:
        function(*pointers, extent)
        return tuple(out)

    return Loaded(call, kept=arrays)


def alike() -> Call:
    """
    What lets the next call find the processor as every other one does: rounding to nearest, no small number taken for zero.
    To load what was linked with -ffast-math lets it take them for zero from then on, and some packages set that back.
    """
    if machine() not in ("x86_64", "AMD64"):
        return lambda: None
    return _built("alike.c").alike


def _built(source: str, *libraries: str) -> ctypes.CDLL:
    """A file of workloads/, compiled into the folder of this run."""
    path = Path(os.environ["CPU_PEERS_FOLDER"], f"{source}.so")
    if not path.exists():
        flags = [flag for flag in FLAGS if source == "plain.c" or flag != "-ffast-math"]
        subprocess.run(["gcc", *flags, str(SOURCES / source), "-o", str(path), *libraries], check=True)
    return ctypes.CDLL(str(path))
