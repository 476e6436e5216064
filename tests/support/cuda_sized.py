"""CUDA programs for all sizes on the CPU: one text, run at several values of its symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from ir_testing import Array, parse

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import Stated
from fuse_opt.lowering.emit.cuda import build_sized_cuda_program
from fuse_opt.passes.devices.gpu_attach_device import make_for
from fuse_opt.runtime.emulation.program import EmulatedProgram, Kernels
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE, FOR_CPUS, make_passes
from fuse_opt.tools.compiler.sized import plan_for_sizes, stated_function
from fuse_opt.tools.compiler.specialization import bind


class SizedOnCpu:
    """A program of unknown extents, compiled once for the CPU as the text for a device is."""

    def __init__(self, text: str, passes: Sequence[str] = DEFAULT_PIPELINE, long_rows: bool = False) -> None:
        """Raises SizeRefusal where something needs numbers."""
        module = parse(text)
        make_for(module, "cuda")
        names = [name for name in passes if name not in FOR_CPUS]
        self.function = stated_function(module, None)
        with sizes_asked_for(long_rows):
            plan_for_sizes(module, None, make_passes(",".join(names)))
            self.sized = build_sized_cuda_program(module)
        self.source = self.sized.program.source
        self._stated = Stated.of(self.function)
        launched = "__global__" in self.source
        self._kernels = Kernels(self.source) if launched else None

    def values(self, arrays: Sequence[Array]) -> Mapping[str, int]:
        """Of symbols, where arguments are these."""
        return bind(self.function, {number: array.shape for number, array in enumerate(arrays)}, self._stated)

    def __call__(self, arrays: Sequence[Array], order: int = 0) -> list[Array]:
        """The results, with blocks and threads in one of ORDERS."""
        program = EmulatedProgram(self.sized.at(self.values(arrays)), self._kernels)
        return program.run([np.ascontiguousarray(array) for array in arrays], order)

    def schedules(self) -> list[str]:
        """What was chosen for each kernel."""
        lines = self.source.splitlines()
        return [line.removeprefix("// schedule: ") for line in lines if line.startswith("// schedule: ")]
