"""The tree search of memory packing compiled by this machine's C compiler: the same answers as in Python, sooner."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from fuse_opt.passes.memory.packing import exact as packing_exact
from fuse_opt.passes.memory.packing.exact import Outcome, Question, Search, TreeSearch
from fuse_opt.passes.memory.packing.restarts import SEARCH

_INT, _LONG = ctypes.c_int32, ctypes.c_int64
_LARGEST = 1 << 60
"""Bytes of all buffers together up to which sums stay within 64 bits."""


@contextmanager
def compiled_packing() -> Generator[None]:
    """Within it, `pack` searches with the compiled core where a C compiler works, and in Python where none does."""
    token = SEARCH.set(compiled_search)
    try:
        yield
    finally:
        SEARCH.reset(token)


def compiled_search(question: Question) -> Search:
    """A search of this question; the core is built or loaded when first asked for."""
    library = _library()
    if library is None or sum(size for size, _, _ in question.spans) + question.capacity > _LARGEST:
        return TreeSearch(question)
    return CompiledSearch(library, question)


class CompiledSearch:
    """A search in exact.c, behind the interface of `TreeSearch`."""

    def __init__(self, library: ctypes.CDLL, question: Question) -> None:
        """Raises MemoryError."""
        spans = question.spans
        self._library, self._count = library, len(spans)
        columns = [_column(_INT, (lo for _, lo, _ in spans)), _column(_INT, (hi for _, _, hi in spans))]
        columns += [_column(_LONG, (size for size, _, _ in spans)), _column(_INT, question.twins())]
        columns.append(_column(_INT, sorted(range(len(spans)), key=lambda rank: spans[rank][1])))
        sections = max(hi for _, _, hi in spans)
        self._handle = library.fuse_pack_new(self._count, sections, question.capacity, *columns)
        if not self._handle:
            raise MemoryError(f"no memory to search a packing of {self._count} buffers")
        weakref.finalize(self, library.fuse_pack_free, self._handle)

    @property
    def nodes(self) -> int:
        """Placements tried so far."""
        return self._library.fuse_pack_nodes(self._handle)

    @property
    def offsets(self) -> Sequence[int]:
        """By buffer of the question, once found."""
        return self._read()[0]

    @property
    def conflicts(self) -> Sequence[int]:
        """By buffer: in how many dead ends it was."""
        return self._read()[1]

    def run(self, nodes: int) -> Outcome:
        """Tries up to so many placements more. Raises MemoryError."""
        outcome = self._library.fuse_pack_run(self._handle, nodes)
        if outcome not in list(Outcome):
            raise MemoryError(f"no memory to search a packing of {self._count} buffers")
        return Outcome(outcome)

    def _read(self) -> tuple[list[int], list[int]]:
        offsets, conflicts = (_LONG * self._count)(), (_LONG * self._count)()
        self._library.fuse_pack_read(self._handle, offsets, conflicts)
        return list(offsets), list(conflicts)


def _column(kind: type[ctypes.c_int32] | type[ctypes.c_int64], values: Iterable[int]) -> object:
    numbers = list(values)
    return (kind * len(numbers))(*numbers)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The core, or None where it cannot be built."""
    from fuse_opt.runtime.disk_cache import DiskCache
    from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler

    if (compiler := find_c_compiler()) is None:
        return None
    source = Path(packing_exact.__file__).with_suffix(".c").read_text(encoding="utf-8")
    pointer, integers, longs = ctypes.c_void_p, ctypes.POINTER(_INT), ctypes.POINTER(_LONG)
    signatures = {
        "new": (pointer, [_INT, _INT, _LONG, integers, integers, longs, integers, integers]),
        "run": (ctypes.c_int, [pointer, _LONG]),
        "nodes": (_LONG, [pointer]),
        "read": (None, [pointer, longs, longs]),
        "free": (None, [pointer]),
    }
    try:
        library = compiler.load_shared(source, DiskCache(), [f"fuse_pack_{name}" for name in signatures])
    except (CompileError, OSError):
        return None
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"fuse_pack_{name}")
        function.restype, function.argtypes = result, arguments
    return library
