"""Programs that note which thread runs which piece of a step, and when: what they compute, and how, is as without."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from fuse_opt.lowering.program import Program
from fuse_opt.runtime.cpu.frames import BoundFrame, PythonCall
from fuse_opt.runtime.cpu.program import Array, CpuProgram, call_library
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.host.c_compiler import CompileError, find_c_compiler
from fuse_opt.runtime.host.c_records import address_in, fields_of, number_in, runtime_text
from fuse_opt.runtime.host.program_call import LoopRow
from fuse_opt.runtime.host.thread_pool import num_threads

_FILE = "cpu/noted_loops.c"


@dataclass(frozen=True)
class Piece:
    """What a thread ran at a time: tasks of a loop of a step, or a step that is a call of Python."""

    step: int
    thread: int
    """0 is the caller's."""
    tasks: tuple[int, int]
    """The first, and the one behind the last."""
    started: float
    ended: float
    """Seconds from the beginning of the run."""


class _Note(ctypes.Structure):
    """The record `note`."""

    _fields_ = fields_of(_FILE, "note")


class _Notes(ctypes.Structure):
    """The record `notes`."""

    _fields_ = fields_of(_FILE, "notes")


class _NotedLoop(ctypes.Structure):
    """The record `noted_loop`."""

    _fields_ = fields_of(_FILE, "noted_loop")


class NotedProgram(CpuProgram):
    """A program whose loops are called by way of others, which note the time; one run at a time."""

    def __init__(self, program: Program, cache: DiskCache | None = None) -> None:
        super().__init__(program, cache)
        self.direct = self._in_memory = None
        self._noting = _noting_library()
        self._notes = _Notes()
        self._loops: list[_NotedLoop] = []
        self._numbers = {id(step): number for number, step in enumerate(program.steps)}
        self._frames.noted = self._noted
        self.pieces: list[Piece] = []
        """Of the last run, in the order in which they began."""
        self.seconds = 0.0
        """Of the last run, but for the look at arguments."""

    def _noted(self, step: int, rows: Sequence[LoopRow]) -> list[LoopRow]:
        task, prepare = (address_in(self._noting, f"noted_{name}") for name in ("task", "prepare"))
        found: list[LoopRow] = []
        for row in rows:
            loop = _NotedLoop(row.task, row.arg, row.prepare, step, ctypes.addressof(self._notes))
            self._loops.append(loop)
            prepares = prepare if row.prepare else 0
            found.append(row._replace(task=task, arg=ctypes.addressof(loop), prepare=prepares))
        return found

    def _take_steps(self, frame: BoundFrame, memory: list[Array]) -> None:
        most = len(self._loops) * num_threads() * number_in("host/parallel_for.c", "CHUNKS_PER_THREAD")
        rows = (_Note * max(most, 1))()
        self._notes.rows, self._notes.most, self._notes.used = ctypes.addressof(rows), most, 0
        now, caller = self._noting.noted_time, self._noting.noted_thread()
        calls: list[_Note] = []
        began = now()
        for piece in frame.pieces:
            if isinstance(piece, PythonCall):
                started = now()
                call_library(piece, memory)
                calls.append(_Note(self._numbers[id(piece.step)], caller, 0, 1, started, now()))
            elif self._caller is not None:
                self._caller.run(piece)
        self.seconds = 1e-9 * (now() - began)
        frame.check()
        assert self._notes.used <= most, "a loop is cut into more pieces than the pool makes"
        self.pieces = _pieces([*rows[: self._notes.used], *calls], caller, began)


def _pieces(notes: Sequence[_Note], caller: int, began: int) -> list[Piece]:
    """With threads numbered as they first appear, behind the caller's."""
    threads = {caller: 0}
    return [
        Piece(
            note.step,
            threads.setdefault(note.thread, len(threads)),
            (note.begin, note.end),
            1e-9 * (note.started - began),
            1e-9 * (note.ended - began),
        )
        for note in sorted(notes, key=lambda note: (note.started, note.thread))
    ]


@functools.cache
def _noting_library() -> ctypes.CDLL:
    """Raises `CompileError` where there is no compiler."""
    if (compiler := find_c_compiler()) is None:
        raise CompileError("there is no working C compiler; install one, or name it in FUSE_OPT_CC")
    names = ("noted_task", "noted_prepare", "noted_thread", "noted_time")
    library = compiler.load_shared(runtime_text(_FILE), DiskCache(), names)
    for function in (library.noted_thread, library.noted_time):
        function.argtypes, function.restype = [], ctypes.c_int64
    return library
