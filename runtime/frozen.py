"""Arrays that arguments of a program are bound to, and how it is known that their elements are still the same.

PyTorch's tensors count how often they were written to: that number and the address are compared at each call. NumPy's arrays
do not. One that has its memory to itself is read-only while it is bound: who writes to it gets NumPy's ValueError in place of
results of the old elements. One that is a view of what others may write to is compared with a copy at each call. What is
written by other means (a view that was made before of an array that is bound itself, an address) is not seen: `refresh` then.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fuse_opt.runtime.prepared import PreparedProgram

Array = NDArray[Any]

_lock = threading.RLock()
_numbers = itertools.count()


@dataclass
class _Held:
    """An array that is read-only, by how many bindings, whether it could be written to before, and a number of its own."""

    array: Array
    bindings: int
    writeable: bool
    number: int


_held: dict[int, _Held] = {}
"""By id of the array."""


class Bound:
    """An array that an argument is bound to; released when this object goes."""

    def __init__(self, given: Any) -> None:
        """Raises TypeError for what does not say when it is written to, and cannot be kept from it."""
        self._given: Any = given
        kind = type(cast(object, given))
        self._counts = hasattr(kind, "_version") and hasattr(kind, "data_ptr")
        self._copy: Array | None = None
        self._changes = 0
        self._number = next(_numbers)
        held: list[Array] = []
        if self._counts:
            self.version()
        elif isinstance(given, np.ndarray):
            array = cast(Array, given)
            private = _private_memory(array)
            self._copy = array.copy() if private is None else None
            held = private or []
        elif not isinstance(given, np.generic | int | float):
            raise TypeError(
                f"expected a NumPy array or a tensor of PyTorch, got {type(given).__name__}, which does not say when its "
                "elements change; give numpy.array(it)"
            )
        for array in held:
            self._number = _hold(array)
        self._finalizer = weakref.finalize(self, _release, held)

    def value(self) -> Any:
        """What the program is called with."""
        return self._given.detach() if self._counts else self._given

    def version(self) -> tuple[int, ...]:
        """Another one after the elements changed; () where they cannot. Raises TypeError for a tensor that does not count."""
        if (copy := self._copy) is not None:
            if not _same_bytes(self._given, copy):
                with _lock:
                    self._copy = self._given.copy()
                    self._changes += 1
            return (self._changes,)
        if not self._counts:
            return ()
        try:
            return self._given.data_ptr(), self._given._version
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"expected a tensor that counts how often it is written to: {reason}") from None

    def identity(self) -> Hashable:
        """The same for bindings whose elements are the same, as far as that is known without looking at them."""
        return ("torch", *self.version()) if self._counts else (self._number, self._changes)

    def release(self) -> None:
        """Lets the array be written to again, unless it is bound elsewhere."""
        self._finalizer()


class FrozenCalls:
    """
    Calls of a program some of whose arguments are bound; from several threads at once. What follows from these is computed
    before the first call that needs it, and again when one of them changed: in new memory, as others may read the old.
    """

    def __init__(
        self, name: str, backend: Any, bound: Mapping[int, Bound], count: int, converted: Callable[[int, Any], Any]
    ) -> None:
        """`bound` by position among `count` arguments of the backend; `converted` gives what it is called with for one."""
        self._name, self._backend = name, backend
        self._bound = dict(sorted(bound.items()))
        self._open = [number for number in range(count) if number not in bound]
        self._count = count
        self._converted = converted
        prepared = isinstance(backend, PreparedProgram) and set(backend.preparation.frozen) <= set(bound)
        self._prepared: PreparedProgram | None = cast(PreparedProgram, backend) if prepared else None
        self._main: Any = backend if self._prepared is None else self._prepared.program
        self._direct: Any = getattr(self._main, "direct", None)
        self._lock = threading.Lock()
        self._refreshed = -1
        self._versioned = [entry for entry in self._bound.values() if entry.version()]
        self._state: tuple[Sequence[Any], list[Any], Any] | None = None
        """The versions, all arguments but those of a call, and what keeps these alive."""

    def __call__(self, arrays: Sequence[Any], out: Any, stream: Any = None) -> Any:
        full = self._full(arrays)
        if stream is not None:
            return self._main(*full, out=out, stream=stream)
        if self._direct is not None and (found := self._direct(tuple(full), out)) is not NotImplemented:
            return found
        return self._main(*full, out=out)

    def taken(self, arrays: Sequence[Any], out: Any) -> Any:
        """As a call where compiled code takes the arrays as they are; else NotImplemented."""
        return NotImplemented if self._direct is None else self._direct(tuple(self._full(arrays)), out)

    def _full(self, arrays: Sequence[Any]) -> list[Any]:
        """All arguments, those of a call in their places."""
        if len(arrays) != len(self._open):
            raise wrong_count(self._name, self._count, len(self._bound), len(arrays))
        full = self._arguments().copy()
        for number, array in zip(self._open, arrays, strict=True):
            full[number] = array
        return full

    def quick(self, arrays: tuple[Any, ...]) -> Any:
        """What a call without `out` gives where the arrays are taken as they are; NotImplemented where they are not."""
        state = self._state
        if self._direct is None or self._versioned or state is None or len(arrays) != len(self._open):
            return NotImplemented
        full = state[1].copy()
        for number, array in zip(self._open, arrays, strict=True):
            full[number] = array
        return self._direct(tuple(full), None)

    def refresh(self) -> None:
        """Computes what follows from the bound arrays anew, at the next call."""
        with self._lock:
            self._refreshed = next(_numbers)
            self._state = None

    def _arguments(self) -> list[Any]:
        """All arguments, with None for those that a call gives."""
        state = self._state
        if state is not None and state[0] == [entry.version() for entry in self._versioned]:
            return state[1]
        with self._lock:
            versions = [entry.version() for entry in self._versioned]
            if self._state is None or self._state[0] != versions:
                self._state = versions, *self._made()
            return self._state[1]

    def _made(self) -> tuple[list[Any], Any]:
        given: list[Any] = [None] * self._count
        for number, entry in self._bound.items():
            given[number] = self._converted(number, entry.value())
        if self._prepared is None:
            return given, None
        full = self._prepared.merged(given)
        entries = [self._bound[number] for number in self._prepared.read]
        version = (self._refreshed, *(entry.identity() for entry in entries))
        arrays = self._prepared.prepared(full, version, (entries, [entry.value() for entry in entries]))
        self._prepared.fill(full, arrays)
        return full, arrays


def wrong_count(name: str, count: int, bound: int, given: int) -> TypeError:
    """The error for a call that gives another number of arguments than those that are not bound."""
    left, verb = count - bound, "is" if bound == 1 else "are"
    noun = "argument" if left == 1 else "arguments"
    return TypeError(f"'{name}' takes {left} {noun} beside {bound} that {verb} frozen, got {given}")


def _private_memory(array: Array) -> list[Array] | None:
    """The array, and what it alone is a view of; None where others may write to its memory."""
    root, owner = array, cast(object, array.base)
    while isinstance(owner, np.ndarray):
        root = cast(Array, owner)
        owner = cast(object, root.base)
    if isinstance(owner, bytes | mmap.mmap) and not root.flags.writeable:
        return [array]
    if owner is None and (root is array or (root is array.base and _references(array) <= _OF_ONE_VIEW)):
        return [array] if root is array else [array, root]
    return None


def _references(view: Array) -> int:
    """How many references there are to what an array is a view of, some of our own among them."""
    return sys.getrefcount(view.base)


_OF_ONE_VIEW = _references(np.empty(2)[1:]) + 1
"""Where one view alone refers to it, and a variable of who asks."""


def _same_bytes(array: Array, copy: Array) -> bool:
    if array.flags.c_contiguous and copy.flags.c_contiguous:
        return not _compare(array.ctypes.data, copy.ctypes.data, array.nbytes)
    return array.tobytes() == copy.tobytes()


_compare: Any = ctypes.CDLL(None).memcmp
_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _hold(array: Array) -> int:
    """Makes an array read-only; the same number as long as it is."""
    with _lock:
        entry = _held.setdefault(id(array), _Held(array, 0, bool(array.flags.writeable), next(_numbers)))
        entry.bindings += 1
        array.flags.writeable = False
        return entry.number


def _release(arrays: Sequence[Array]) -> None:
    with _lock:
        for array in reversed(
            arrays
        ):  # what it is a view of first: a view of what is read-only cannot become writeable
            entry = _held[id(array)]
            entry.bindings -= 1
            if entry.bindings:
                continue
            del _held[id(array)]
            if entry.writeable:
                with suppress(ValueError):
                    array.flags.writeable = True
