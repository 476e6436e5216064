"""CUDA programs on the CPU: the kernels through `cuda_shim.h`, steps and buffers by NumPy, one step after another."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, BufferRef, GridLaunch, LibraryCall, Program, Segment
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.runtime.emulation.building import build, identity
from fuse_opt.runtime.emulation.translation import translated

Array = npt.NDArray[Any]

SANITIZE = (
    "-g1",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize=float-divide-by-zero,vptr",
    "-fsanitize-recover=all",
)
"""Each fault is a line on stderr; the process must have gcc's libasan preloaded."""

_GUARD = 256
"""Bytes around each buffer that no kernel may change, nor read under the sanitizers."""
ALIGNMENT = {"argument": 16, "result": 16, "arena": 256, "constant": 256}
"""What the runtime promises of the address of a buffer of each kind; no more is given."""


class EmulationError(RuntimeError):
    """The emulation cannot be built, or a kernel does what no kernel may; the message says which and what."""


def find_cxx() -> str | None:
    """The C++ compiler that emulations are built with."""
    return shutil.which("g++")


class Kernels:
    """The kernels of a CUDA text, compiled for the CPU."""

    def __init__(self, text: str, sanitize: bool = False) -> None:
        """Raises EmulationError where there is no g++, or it refuses the text."""
        self.process = ctypes.CDLL(None) if sanitize else None
        """Where the sanitizers are, if they watch."""
        self._library = ctypes.CDLL(str(_built(text, SANITIZE if sanitize else ())))

    def launch(self, launch: GridLaunch, addresses: Sequence[int], order: int = 0) -> None:
        """
        Runs blocks and threads upwards, with order 1 downwards, else shuffled by this seed. Raises EmulationError for what
        the shim finds.
        """
        launch = launch.at(addresses)
        run = getattr(self._library, f"run_{launch.kernel}")
        run.restype = ctypes.c_char_p
        values = (*addresses, *launch.sizes)
        pointers = (ctypes.c_void_p * max(len(values), 1))(*values)
        error = run(pointers, (ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), int(order))
        if error is not None:
            raise EmulationError(f"{launch.kernel}: {error.decode()}")


def _built(text: str, flags: Sequence[str]) -> Path:
    cxx = find_cxx()
    if cxx is None:
        raise EmulationError("CUDA C runs on the CPU by g++, and there is none on PATH; install it")
    return DiskCache().get_or_build([*identity(cxx, flags), text], ".so", lambda path: _build(cxx, text, flags, path))


def _build(cxx: str, text: str, flags: Sequence[str], path: Path) -> None:
    result = build(cxx, partial(translated, text), flags, path)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or ["it says nothing"]
        raise EmulationError(f"g++ refuses the CUDA text: {lines[0]}")


Watch = Callable[[int, "Memory"], None]
"""Told the number of a step, and the memory of the run."""


class Memory:
    """The buffers of one run, with guards around them, aligned as promised and not further."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.blocks = [_block(buffer) for buffer in program.buffers]
        for number, buffer in enumerate(program.buffers):
            if buffer.data is not None:
                self.whole(number)[...] = buffer.data

    def address(self, ref: BufferRef) -> int:
        return self.blocks[ref.buffer].ctypes.data + _GUARD + ref.offset

    def array(self, ref: BufferRef) -> Array:
        """What a reference means, over the same memory."""
        start = _GUARD + ref.offset
        return self.blocks[ref.buffer][start : start + ref.nbytes].view(NUMPY_NAMES[ref.dtype]).reshape(ref.shape)

    def whole(self, number: int) -> Array:
        """The contents of a buffer."""
        buffer = self._program.buffers[number]
        return self.array(BufferRef(number, 0, buffer.shape, buffer.dtype))

    def check(self) -> None:
        """Raises EmulationError for a write outside of a buffer, or to a constant."""
        for buffer, block in zip(self._program.buffers, self.blocks, strict=True):
            guards = np.concatenate([block[:_GUARD], block[len(block) - _GUARD :]])
            if not np.all(guards == 0xA5):
                raise EmulationError(f"written outside of {buffer.kind} {buffer.name}")
            if buffer.data is not None and not np.array_equal(
                block[_GUARD:-_GUARD], buffer.data.reshape(-1).view(np.uint8)
            ):
                raise EmulationError(f"a constant changed: {buffer.name}")

    @contextmanager
    def guarded(self, process: ctypes.CDLL | None) -> Generator[None]:
        """Makes the guards forbidden memory for the sanitizers of a process."""
        self._mark(process, "__asan_poison_memory_region")
        try:
            yield
        finally:
            self._mark(process, "__asan_unpoison_memory_region")

    def _mark(self, process: ctypes.CDLL | None, function: str) -> None:
        for block in self.blocks if process is not None else ():
            for start in (0, len(block) - _GUARD):
                address = ctypes.c_void_p(block.ctypes.data + start)
                getattr(process, function)(address, ctypes.c_size_t(_GUARD))


def _block(buffer: Buffer) -> Array:
    """What nobody has written yet reads as NaN."""
    size = int(np.prod(buffer.shape, dtype=np.int64)) * np.dtype(NUMPY_NAMES[buffer.dtype]).itemsize
    alignment = ALIGNMENT[buffer.kind]
    whole = np.empty(size + 2 * _GUARD + 2 * alignment, np.uint8)
    start = (alignment - whole.ctypes.data) % (2 * alignment)
    block = whole[start : start + size + 2 * _GUARD]
    block[:_GUARD] = block[len(block) - _GUARD :] = 0xA5
    block[_GUARD : len(block) - _GUARD] = 0xFF
    return block


class EmulatedProgram:
    """A CUDA program that runs on the CPU: slow, for comparison."""

    def __init__(self, program: Program, kernels: Kernels | None = None) -> None:
        """`kernels` where they are built already. Raises EmulationError."""
        self.program = program
        self._kernels = kernels if kernels is not None or not program.source else Kernels(program.source)

    def run(
        self, arrays: Sequence[Array], order: int = 0, before: Watch | None = None, after: Watch | None = None
    ) -> list[Array]:
        """
        The results, in the axes of the buffers, as the arguments are; `before` and `after` look at the memory around each
        step. Raises EmulationError.
        """
        memory = Memory(self.program)
        for number, array in enumerate(arrays):
            memory.whole(number)[...] = array
        for number in range(len(self.program.steps)):
            if before is not None:
                before(number, memory)
            self._take(self.program.steps[number], memory, order)
            if after is not None:
                after(number, memory)
        memory.check()
        return [memory.array(BufferRef(r.index, 0, r.shape, r.dtype)).copy() for r in self.program.results]

    def _take(self, step: Segment | LibraryCall, memory: Memory, order: int) -> None:
        if isinstance(step, LibraryCall):
            step.run(
                [memory.array(ref) for ref in step.inputs], [memory.array(ref) for ref in step.written], step.config
            )
            return
        assert self._kernels is not None
        with memory.guarded(self._kernels.process):
            for launch in step.launches:
                assert isinstance(launch, GridLaunch)
                self._kernels.launch(launch, [memory.address(ref) for ref in launch.buffers], order)
