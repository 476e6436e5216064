"""oneDNN's C library by ctypes: where it is, and its entry points, each status checked."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from fuse_opt.runtime.host.c_records import address_in

VARIABLE = "FUSE_OPT_ONEDNN"
"""The environment variable with the path of the library, or `off`."""
WHEEL = "onednn-cpu-gomp"
_MAJOR = 3
_SEQUENTIAL, _OPENMP = 1, 2
_RUNTIMES = {4: "TBB", 8: "a pool of its caller's", 0x200: "SYCL"}
_CPU, _IN_ORDER = 1, 1
_IMPLEMENTATION, _STRIDES, _WEIGHTS, _SCRATCHPAD = 8, 14, 131, 136
_PADDED, _INNER, _INNER_SIZES, _INNER_AXES = 260, 263, 264, 265
_ANY = 1
MOST_AXES = 12

_P, _I, _L, _F = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "dnnl_engine_create": (_P, _I, ctypes.c_size_t),
    "dnnl_stream_create": (_P, _P, ctypes.c_uint),
    "dnnl_stream_destroy": (_P,),
    "dnnl_memory_create": (_P, _P, _P, _P),
    "dnnl_memory_destroy": (_P,),
    "dnnl_memory_set_data_handle": (_P, _P),
    "dnnl_memory_desc_create_with_strides": (_P, _I, _P, _I, _P),
    "dnnl_memory_desc_create_with_tag": (_P, _I, _P, _I, _I),
    "dnnl_memory_desc_query": (_P, _I, _P),
    "dnnl_memory_desc_destroy": (_P,),
    "dnnl_primitive_attr_create": (_P,),
    "dnnl_primitive_attr_destroy": (_P,),
    "dnnl_primitive_attr_set_scratchpad_mode": (_P, _I),
    "dnnl_primitive_attr_set_post_ops": (_P, _P),
    "dnnl_post_ops_create": (_P,),
    "dnnl_post_ops_destroy": (_P,),
    "dnnl_post_ops_append_eltwise": (_P, _I, _F, _F),
    "dnnl_post_ops_append_binary": (_P, _I, _P),
    "dnnl_post_ops_append_sum": (_P, _F, ctypes.c_int32, _I),
    "dnnl_matmul_primitive_desc_create": (_P, _P, _P, _P, _P, _P, _P),
    "dnnl_convolution_forward_primitive_desc_create": (_P, _P, _I, _I, _P, _P, _P, _P, _P, _P, _P, _P, _P),
    "dnnl_softmax_forward_primitive_desc_create": (_P, _P, _I, _I, _P, _P, _I, _P),
    "dnnl_layer_normalization_forward_primitive_desc_create": (_P, _P, _I, _P, _P, _P, _F, ctypes.c_uint, _P),
    "dnnl_primitive_desc_query": (_P, _I, _I, _P),
    "dnnl_primitive_desc_destroy": (_P,),
    "dnnl_primitive_create": (_P, _P),
    "dnnl_primitive_destroy": (_P,),
    "dnnl_primitive_execute": (_P, _P, _I, _P),
}
"""Functions that give a status."""
STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
}


class OneDnnError(RuntimeError):
    """oneDNN is not there, or is not what is called here, or a function of it gave a status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a tensor lies in the library's words."""

    strides: tuple[int, ...]
    """By axis, from one block to the next."""
    padded: tuple[int, ...]
    """By axis, the extent that whole blocks have."""
    inner: tuple[tuple[int, int], ...]
    """The axes of blocks and how many elements one has, innermost last."""


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", _I),
        ("minor", _I),
        ("patch", _I),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


def find_library() -> Path | str:
    """The path of the library, or why there is none."""
    return _found(os.environ.get(VARIABLE, ""))


@functools.cache
def _found(chosen: str) -> Path | str:
    if chosen == "off":
        return f"{VARIABLE}=off"
    if chosen:
        return Path(chosen)
    try:
        files = distribution(WHEEL).files or ()
    except PackageNotFoundError:
        return f"the package {WHEEL} is not installed; install it (pip install 'fuse-opt[onednn]') or set {VARIABLE}"
    found = sorted(str(file.locate()) for file in files if file.name.startswith("libdnnl.so"))
    return Path(found[0]).resolve() if found else f"the package {WHEEL} has no libdnnl.so"


class Library:
    """The library with its CPU engine. All handles are addresses."""

    def __init__(self, path: Path) -> None:
        """Raises OneDnnError."""
        try:
            self._library = ctypes.CDLL(str(path))
            for name, types in _SIGNATURES.items():
                function = getattr(self._library, name)
                function.argtypes, function.restype = types, _I
            self._library.dnnl_version.restype = ctypes.POINTER(_Version)
            describe: Any = self._library.dnnl_primitive_desc_query_md
            describe.argtypes, describe.restype = (_P, _I, _I), _P
            size: Any = self._library.dnnl_memory_desc_get_size
            size.argtypes, size.restype = (_P,), ctypes.c_size_t
        except (OSError, AttributeError) as error:
            raise OneDnnError(f"{path} cannot be loaded as oneDNN: {error}") from error
        self.threads = self._threads(path)
        self.engine = self.make("dnnl_engine_create", _CPU, 0)

    def _threads(self, path: Path) -> tuple[int, int]:
        """The addresses of OpenMP's functions that get and set the caller's count of threads; (0, 0) without OpenMP."""
        version = self._library.dnnl_version().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != _MAJOR:
            raise OneDnnError(f"{path} is oneDNN {self.version}; expected version {_MAJOR}")
        if version.cpu_runtime == _SEQUENTIAL:
            return 0, 0
        if version.cpu_runtime != _OPENMP:
            runs = _RUNTIMES.get(version.cpu_runtime, f"runtime {version.cpu_runtime}")
            raise OneDnnError(f"{path} runs on {runs}; expected a build for OpenMP, or for one thread")
        try:
            return self.address("omp_get_max_threads"), self.address("omp_set_num_threads")
        except AttributeError as error:
            raise OneDnnError(f"{path} brings no OpenMP: {error}") from error

    def address(self, name: str) -> int:
        """Of a function of the library, or of what it is linked to. Raises AttributeError."""
        return address_in(self._library, name)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises OneDnnError with the status, where that is not success."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise OneDnnError(f"{name} failed: {STATUS.get(status, f'status {status}')}", status)

    def make(self, name: str, *arguments: Any) -> int:
        """What a function gives as its first argument. Raises OneDnnError."""
        found = ctypes.c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value or 0

    @contextmanager
    def one_thread(self) -> Generator[None]:
        """The calling thread asks for no other threads in the body: what is made there is made for one."""
        get, put = self.threads
        before = 1 if not get else ctypes.CFUNCTYPE(_I)(get)()
        set_threads = ctypes.CFUNCTYPE(None, _I)(put) if put else None
        if set_threads is not None and before != 1:
            set_threads(1)
        try:
            yield
        finally:
            if set_threads is not None and before != 1:
                set_threads(before)

    def memory_desc(self, dtype: int, shape: Sequence[int], strides: Sequence[int]) -> int:
        """A description of a tensor, to be destroyed. Raises OneDnnError."""
        extents, steps = (ctypes.c_int64 * MOST_AXES)(*shape), (ctypes.c_int64 * MOST_AXES)(*strides)
        return self.make("dnnl_memory_desc_create_with_strides", len(shape), extents, dtype, steps)

    def any_memory_desc(self, dtype: int, shape: Sequence[int]) -> int:
        """The same of a tensor that lies as a primitive would like. Raises OneDnnError."""
        extents = (ctypes.c_int64 * MOST_AXES)(*shape)
        return self.make("dnnl_memory_desc_create_with_tag", len(shape), extents, dtype, _ANY)

    def weights_desc(self, description: int) -> int:
        """Of a primitive of this description: the description of its weights, which is its own."""
        return self._library.dnnl_primitive_desc_query_md(description, _WEIGHTS, 0) or 0

    def size_of(self, desc: int) -> int:
        """Bytes of a tensor of a description of memory, with what the library keeps behind its elements."""
        return self._library.dnnl_memory_desc_get_size(desc)

    def blocks(self, desc: int, axes: int) -> Blocks:
        """How the tensor of a description of memory lies. Raises OneDnnError where no blocks say that."""
        count = ctypes.c_int()
        self.call("dnnl_memory_desc_query", desc, _INNER, ctypes.byref(count))

        def numbers(what: int, count: int) -> tuple[int, ...]:
            found = ctypes.POINTER(ctypes.c_int64)()
            self.call("dnnl_memory_desc_query", desc, what, ctypes.byref(found))
            return tuple(found[:count])

        inner = zip(numbers(_INNER_AXES, count.value), numbers(_INNER_SIZES, count.value), strict=True)
        return Blocks(numbers(_STRIDES, axes), numbers(_PADDED, axes), tuple(inner))

    def stream(self) -> int:
        """A stream of the engine, to be destroyed."""
        return self.make("dnnl_stream_create", self.engine, _IN_ORDER)

    def implementation(self, description: int) -> str:
        """What a primitive of this description is, in oneDNN's words."""
        text = ctypes.c_char_p()
        self.call("dnnl_primitive_desc_query", description, _IMPLEMENTATION, 0, ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")

    def scratchpad_desc(self, description: int) -> tuple[int, int]:
        """Of a primitive of this description: the description of its scratchpad, which is its own, and the bytes."""
        found = self._library.dnnl_primitive_desc_query_md(description, _SCRATCHPAD, 0) or 0
        return found, self._library.dnnl_memory_desc_get_size(found) if found else 0


@functools.cache
def _loaded(path: Path) -> Library | str:
    try:
        return Library(path)
    except OneDnnError as error:
        return str(error)


def load_library() -> Library:
    """The library, loaded once. Raises OneDnnError where it is not there or cannot be used."""
    path = find_library()
    found = path if isinstance(path, str) else _loaded(path)
    if isinstance(found, str):
        raise OneDnnError(found)
    return found
