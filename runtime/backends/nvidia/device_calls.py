"""Calls of libraries on a device: what a backend gives the runtime of programs for a step, and how a library is found."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from fuse_opt.dialects.implementation.chains import Link, link_of
from fuse_opt.lowering.program import CHAIN, CHAIN_OPERANDS, BufferRef, LibraryCall
from fuse_opt.runtime.device.driver import CudaError
from fuse_opt.runtime.device.installation import VERSIONS, find_cuda_library

Address = Callable[[BufferRef], int]
"""Where a buffer is in the run that is enqueued."""
Enqueue = Callable[[Any], None]
"""Enqueues a call on a stream of PyCUDA's, which may be capturing: nothing is allocated and nothing waited for."""

WORKSPACE_ALIGNMENT = 256
"""Of a workspace of cuBLAS, in bytes. Plans know of 64."""


class DeviceLibrary(Protocol):
    """A library as one program uses it, whose runs follow one another."""

    def bound(self, call: LibraryCall, address: Address) -> Enqueue:
        """What enqueues a step; all that can be asked of the library is asked here. Raises CudaError."""
        ...


@runtime_checkable
class Checks(Protocol):
    """A library whose calls may be refused for what their operands hold, which is known when they have run."""

    def check(self) -> None:
        """Raises what a run that is over is refused with, once."""
        ...


def load_library(
    variable: str,
    chosen: str,
    name: str,
    signatures: Mapping[str, Sequence[Any]],
    versions: tuple[str, ...] = VERSIONS,
) -> ctypes.CDLL | None:
    """
    A library of CUDA's, of one of the versions, with the arguments of its functions declared; None where there is none. What an
    environment variable says is its path, `off`, or nothing. Raises CudaError for a path that is none.
    """
    functions = tuple((function, tuple(arguments)) for function, arguments in signatures.items())
    return _loaded(variable, chosen, name, functions, versions)


@functools.lru_cache(maxsize=16)
def _loaded(
    variable: str, chosen: str, name: str, functions: Sequence[tuple[str, Sequence[Any]]], versions: tuple[str, ...]
) -> ctypes.CDLL | None:
    if chosen == "off":
        return None
    try:
        library = ctypes.CDLL(chosen) if chosen else find_cuda_library(name, versions=versions)
        for function, arguments in functions if library is not None else ():
            getattr(library, function).argtypes = arguments
        return library
    except (OSError, AttributeError) as error:
        if chosen:
            raise CudaError(f"{variable}={chosen!r}: expected the library lib{name}, or 'off' ({error})") from error
        return None


def load_problem(variable: str, chosen: str, title: str, load: Callable[[], object]) -> str | None:
    """Why a library cannot be called here. Raises CudaError for a path that is none."""
    if load() is not None:
        return None
    if chosen == "off":
        return f"{variable}=off"
    return f"{title} is not installed, or not where it is looked for (name it in {variable})"


def required(library: ctypes.CDLL | None, call: str, variable: str) -> ctypes.CDLL:
    """The library. Raises CudaError where there is none, and a program names it."""
    if library is None:
        raise CudaError(
            f"the program names {call}, whose library is not here: name its path in {variable}, or compile again"
        )
    return library


def check(status: int, name: str) -> None:
    """Raises CudaError unless the status is success."""
    if status:
        raise CudaError(f"{name} failed with status {status}")


def workspace_at(call: LibraryCall, address: Address) -> tuple[int, int]:
    """Address and bytes of the call's workspace, at a multiple of WORKSPACE_ALIGNMENT."""
    if call.workspace is None:
        return 0, 0
    start = address(call.workspace)
    skipped = -start % WORKSPACE_ALIGNMENT
    return start + skipped, max(call.workspace.nbytes - skipped, 0)


def with_room(nbytes: int) -> int:
    """The bytes to plan for a workspace of so many, wherever its slot begins."""
    return nbytes + WORKSPACE_ALIGNMENT - 64 if nbytes else 0


def operands_of(call: LibraryCall) -> list[BufferRef]:
    """What the call's op itself reads; steps of a chain behind it read the others."""
    numbers = call.config.get(CHAIN_OPERANDS)
    return [call.inputs[int(n)] for n in numbers] if isinstance(numbers, tuple) else list(call.inputs)


def chain_of(call: LibraryCall) -> list[Link]:
    """The steps behind the call's op, in order."""
    texts = call.config.get(CHAIN)
    return [link_of(str(text)) for text in texts] if isinstance(texts, tuple) else []
