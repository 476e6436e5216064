"""Runs CUDA programs on the CPU, for tests: the emitted kernels through `cuda_shim.h`, steps and buffers by NumPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fake_cuda.nvcc import for_shim
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects import gpu
from fuse_opt.lowering.c.language import CUDA
from fuse_opt.lowering.c.names import global_identifier
from fuse_opt.lowering.c.printer import print_function, print_translation_unit
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.program import NUMPY_NAMES, Buffer, BufferRef, GridLaunch, Program, Segment
from fuse_opt.tools.bootstrap import find_nvcc

Array = npt.NDArray[Any]

CXX = shutil.which("g++")
NVCC = find_nvcc()
needs_cxx = pytest.mark.skipif(CXX is None, reason="no g++ to run CUDA text on the CPU")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc to compile CUDA text")

ORDERS = {"forwards": 0, "backwards": 1, "shuffled": 7}
"""In which the blocks and the threads of a block run: 0 upwards, 1 downwards, else by this seed."""

SANITIZE = (
    "-g1",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize=float-divide-by-zero,vptr",
    "-fsanitize-recover=all",
)
"""Each fault is a line on stderr; the process must have gcc's libasan preloaded, see `cuda_matrix.py`."""

_SHIM = Path(__file__).parent / "cuda_shim.h"
_FLAGS = ("-std=gnu++17", "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-w")
_GUARD = 256
"""Bytes around each buffer that no kernel may change, nor read under the sanitizers."""
_ALIGNMENT = {"argument": 16, "result": 16, "arena": 256, "constant": 256}
"""What the runtime promises of the address of a buffer of each kind; no more is given."""


def kernels_text(module: ModuleOp) -> str:
    """A translation unit of all kernels of a converted module."""
    kernels = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    return print_translation_unit([print_function(kernel, CUDA) for kernel in kernels], CUDA)


class CudaOnCpu:
    """The kernels of a converted module, compiled for the CPU."""

    def __init__(self, module: ModuleOp, folder: Path, sanitize: bool = False) -> None:
        self.module = module
        exports: list[str] = []
        for kernel in module.walk():
            if isinstance(kernel, gpu.FuncOp):
                waits = any(isinstance(op, gpu.BarrierOp | gpu.ShuffleOp) for op in kernel.walk())
                exports.append(f"SHIM_EXPORT({global_identifier(kernel.sym_name.data)}, {str(waits).lower()})\n")
        self.kernels = len(exports)
        source, library = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text(f'#include "{_SHIM}"\n{for_shim(kernels_text(module))}\n{"".join(exports)}')
        assert CXX is not None
        command = [CXX, *_FLAGS, *(SANITIZE if sanitize else ()), str(source), "-o", str(library)]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        self._library = ctypes.CDLL(str(library))
        self._process = ctypes.CDLL(None) if sanitize else None
        self._programs: dict[str, Program] = {}

    def run(self, function: str, arguments: Sequence[Array], order: int = 0) -> list[Array]:
        """The results of a function of the module, with blocks and threads in one of ORDERS."""
        program = self._program(function)
        memory = [_memory(buffer, program) for buffer in program.buffers]
        for number, array in enumerate(arguments):
            _array(memory, _whole(program, number))[...] = array
        for number, buffer in enumerate(program.buffers):
            if buffer.data is not None:
                _array(memory, _whole(program, number))[...] = buffer.data
        for step in program.steps:
            if isinstance(step, Segment):
                with self._guarded(memory):
                    for launch in step.launches:
                        assert isinstance(launch, GridLaunch)
                        self._launch(launch, memory, order)
            else:
                inputs = [_array(memory, ref) for ref in step.inputs]
                step.run(inputs, [_array(memory, ref) for ref in step.outputs], step.config)
        for buffer, block in zip(program.buffers, memory, strict=True):
            guards = np.concatenate([block[:_GUARD], block[len(block) - _GUARD :]])
            assert np.all(guards == 0xA5), f"written outside of {buffer.kind} {buffer.name}"
            if buffer.data is not None:
                assert np.array_equal(block[_GUARD:-_GUARD], buffer.data.reshape(-1).view(np.uint8)), (
                    "a constant changed"
                )
        return [_array(memory, BufferRef(r.index, 0, r.shape, r.dtype)).copy() for r in program.results]

    def _program(self, function: str) -> Program:
        if function not in self._programs:
            self._programs[function] = build_cuda_program(self.module, function)
        return self._programs[function]

    def _launch(self, launch: GridLaunch, memory: Sequence[Array], order: int) -> None:
        addresses = [memory[ref.buffer].ctypes.data + _GUARD + ref.offset for ref in launch.buffers]
        launch = launch.at(addresses)
        run = getattr(self._library, f"run_{global_identifier(launch.kernel)}")
        run.restype = ctypes.c_char_p
        pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        error = run(pointers, (ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), int(order))
        assert error is None, f"{launch.kernel}: {error.decode()}"

    @contextmanager
    def _guarded(self, memory: Sequence[Array]) -> Generator[None]:
        """Makes the guards forbidden memory, which the sanitizers watch."""
        self._mark("__asan_poison_memory_region", memory)
        try:
            yield
        finally:
            self._mark("__asan_unpoison_memory_region", memory)

    def _mark(self, function: str, memory: Sequence[Array]) -> None:
        if self._process is not None:
            for block in memory:
                for start in (0, len(block) - _GUARD):
                    address = ctypes.c_void_p(block.ctypes.data + start)
                    getattr(self._process, function)(address, ctypes.c_size_t(_GUARD))


def _memory(buffer: Buffer, program: Program) -> Array:
    """Bytes with guards around them, aligned as promised and not further; what nobody has written yet reads as NaN."""
    size = int(np.prod(buffer.shape, dtype=np.int64)) * np.dtype(NUMPY_NAMES[buffer.dtype]).itemsize
    alignment = _ALIGNMENT[buffer.kind]
    whole = np.empty(size + 2 * _GUARD + 2 * alignment, np.uint8)
    start = (alignment - whole.ctypes.data) % (2 * alignment)
    block = whole[start : start + size + 2 * _GUARD]
    block[:_GUARD] = block[len(block) - _GUARD :] = 0xA5
    block[_GUARD : len(block) - _GUARD] = 0xFF
    return block


def _whole(program: Program, number: int) -> BufferRef:
    buffer = program.buffers[number]
    return BufferRef(number, 0, buffer.shape, buffer.dtype)


def _array(memory: Sequence[Array], ref: BufferRef) -> Array:
    start = _GUARD + ref.offset
    return memory[ref.buffer][start : start + ref.nbytes].view(NUMPY_NAMES[ref.dtype]).reshape(ref.shape)
