"""The kernels and programs of converted modules on the CPU, by `fuse_opt.runtime.emulation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import pytest
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects import gpu
from fuse_opt.lowering.c.language import CUDA
from fuse_opt.lowering.c.printer import print_function, print_translation_unit
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.runtime.emulation.program import EmulatedProgram, Kernels, find_cxx
from fuse_opt.tools.bootstrap import find_nvcc

Array = npt.NDArray[Any]

CXX = find_cxx()
NVCC = find_nvcc()
needs_cxx = pytest.mark.skipif(CXX is None, reason="no g++ to run CUDA text on the CPU")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc to compile CUDA text")

ORDERS = {"forwards": 0, "backwards": 1, "shuffled": 7}
"""In which the blocks and the threads of a block run: 0 upwards, 1 downwards, else by this seed."""


def kernels_text(module: ModuleOp) -> str:
    """A translation unit of all kernels of a converted module."""
    kernels = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    return print_translation_unit([print_function(kernel, CUDA) for kernel in kernels], CUDA)


class CudaOnCpu:
    """The kernels of a converted module, compiled for the CPU."""

    def __init__(self, module: ModuleOp, sanitize: bool = False) -> None:
        self.module = module
        self.kernels = sum(isinstance(op, gpu.FuncOp) for op in module.walk())
        self._kernels = Kernels(kernels_text(module), sanitize)
        self._programs: dict[str, EmulatedProgram] = {}

    def run(self, function: str, arguments: Sequence[Array], order: int = 0) -> list[Array]:
        """The results of a function of the module, with blocks and threads in one of ORDERS."""
        if function not in self._programs:
            self._programs[function] = EmulatedProgram(build_cuda_program(self.module, function), self._kernels)
        return self._programs[function].run(arguments, order)
