"""Calls of libraries on a device: what a backend gives the runtime of programs for a step, and how a library is found."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from fuse_opt.dialects.implementation.chains import Link, link_of
from fuse_opt.lowering.program import CHAIN, CHAIN_OPERANDS, BufferRef, LibraryCall
from fuse_opt.runtime.device.driver import Device
from fuse_opt.runtime.device.driver_library import CudaError
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


@dataclass(frozen=True)
class LibraryFile:
    """A library of CUDA's: where it is looked for, and the functions that are called of it."""

    name: str
    """As in the file's, such as cublas of libcublas.so.12."""
    title: str
    variable: str
    """The environment variable that says its path, or `off`."""
    chosen: Callable[[], str]
    """What that says; nothing where it is not set."""
    signatures: Mapping[str, Sequence[Any]]
    """By function: the types of its arguments."""
    versions: tuple[str, ...] = VERSIONS

    def load(self) -> ctypes.CDLL | None:
        """The library, loaded once; None where there is none. Raises CudaError for a path that is none."""
        functions = tuple((function, tuple(arguments)) for function, arguments in self.signatures.items())
        return _loaded(self.variable, self.chosen(), self.name, functions, self.versions)

    def problem(self) -> str | None:
        """Why it cannot be called here; it is loaded for that. Raises CudaError for a path that is none."""
        if self.load() is not None:
            return None
        if self.chosen() == "off":
            return f"{self.variable}=off"
        return f"{self.title} is not installed, or not where it is looked for (name it in {self.variable})"

    def required(self) -> ctypes.CDLL:
        """The library. Raises CudaError where there is none, and a program names it."""
        if (found := self.load()) is None:
            raise CudaError(
                f"the program names {self.title}, whose library is not here: name its path in {self.variable}, or compile again"
            )
        return found


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


class Handles:
    """A library as one program uses it, and what is made of it there, which is destroyed with this."""

    def __init__(self, file: LibraryFile, device: Device) -> None:
        """Raises CudaError."""
        self._library = file.required()
        self._device = device

    def _call(self, name: str, *arguments: Any) -> None:
        """Raises CudaError unless the status is success."""
        check(getattr(self._library, name)(*arguments), name)

    def _made(self, create: str, destroy: str | None, *arguments: Any) -> int:
        """What a function makes, to be destroyed by another one; by the caller where none is named. Raises CudaError."""
        handle = ctypes.c_void_p()
        self._call(create, ctypes.byref(handle), *arguments)
        assert handle.value is not None
        if destroy is not None:
            self._owns(destroy, handle)
        return handle.value

    def _owns(self, destroy: str, handle: ctypes.c_void_p) -> None:
        """Has a function destroy what was made when this is gone."""
        weakref.finalize(self, self._device.destroy, getattr(self._library, destroy), handle).atexit = False

    def _buffer(self, nbytes: int, room: BufferRef | None, title: str) -> Any:
        """
        Memory for a call where it asks for more than the room that was planned for it, allocated once, when the program is built;
        None where the room will do. Raises CudaError.
        """
        return None if nbytes <= (0 if room is None else room.nbytes) else self._device.allocate(nbytes, title)


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
