"""NumPy's own BLAS: its entry points as addresses, where it is an OpenBLAS that may be called from several threads."""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass

from fuse_opt.runtime.host.c_records import address_in


@dataclass(frozen=True)
class Routines:
    """A BLAS's entry points, as addresses, with `wide` for integers of 64 bits."""

    products: tuple[int, ...]
    """gemm and gemv, each for f32 and f64."""
    set_threads: int
    get_threads: int
    wide: bool


def numpy_library() -> ctypes.CDLL | None:
    """The extension module of NumPy that multiplies: names are looked up in it and in what it is linked to."""
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
        return ctypes.CDLL(str(module.__file__))
    except (ImportError, OSError):
        return None


def find_routines() -> Routines | None:
    """None where NumPy multiplies by something else, or by a BLAS built for one thread."""
    if (library := numpy_library()) is None:
        return None
    for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "_64"), ("", "")):
        kinds = ("sgemm", "dgemm", "sgemv", "dgemv")
        names = [f"{prefix}cblas_{kind}{suffix}" for kind in kinds]
        names += [f"{prefix}openblas_{name}{suffix}" for name in ("set_num_threads", "get_num_threads")]
        if all(hasattr(library, name) for name in names):
            break
    else:
        return None
    wide = bool(suffix)
    if parallel := getattr(library, f"{prefix}openblas_get_parallel{suffix}", None):
        parallel.argtypes, parallel.restype = [], ctypes.c_int
        if parallel() == 0:
            return None  # built for one thread: it may share buffers between the threads that call it
    if describe := getattr(library, f"{prefix}openblas_get_config{suffix}", None):
        describe.argtypes, describe.restype = [], ctypes.c_char_p
        wide = b"USE64BITINT" in describe()  # it may be so without a suffix
    *products, put, get = (address_in(library, name) for name in names)
    return Routines(tuple(products), put, get, wide)
