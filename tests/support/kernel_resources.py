"""What nvcc says of the kernels of a module: they must not spill, and must fit the registers that they are launched with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
from cuda_on_cpu import NVCC, kernels_text
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.dialects import gpu
from fuse_opt.lowering.c.names import global_identifier


def compiled(text: str, folder: Path) -> dict[str, str]:
    """By kernel: what ptxas says of it. Fails on warnings."""
    assert NVCC is not None
    source = folder / "kernels.cu"
    source.write_text(text)
    suppressed = "-diag-suppress=186"  # unsigned < 0: the sign of what has none
    command = [
        NVCC,
        "-cubin",
        "-arch=sm_90a",
        suppressed,
        "-Xptxas",
        "-v",
        "-o",
        str(folder / "kernels.cubin"),
        str(source),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr, result.stderr
    parts = re.split(r"ptxas info\s*: Compiling entry function '(\w+)'", result.stderr)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def check_resources(module: ModuleOp, folder: Path) -> None:
    found = compiled(kernels_text(module), folder)
    kernels = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    assert len(found) == len(kernels)
    for kernel in kernels:
        info = found[global_identifier(kernel.sym_name.data)]
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in info, kernel.sym_name.data + info
        assert (registers := re.search(r"Used (\d+) registers", info)), info
        assert kernel.block_size is not None
        assert int(registers[1]) * int(np.prod(kernel.block_size)) <= 1 << 16
