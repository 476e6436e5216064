"""A stand-in for nvcc: makes of CUDA C a shared library for the CPU, by cuda_shim.h, and calls it a cubin.

python nvcc.py --cubin -arch=sm_90 -Xptxas -v -o kernels.cubin kernels.cu

$FAKE_NVCC_REFUSES is a pattern of names of kernels that it refuses; $FAKE_NVCC_KNOWS are the architectures that it knows.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import partial
from pathlib import Path

from fuse_opt.runtime.emulation.building import build
from fuse_opt.runtime.emulation.translation import KERNEL, SHIM, kernels_of, translated


def with_figures(text: str, shim: Path) -> str:
    """C++ for the shim, with what the stand-in driver asks of each kernel."""
    lines = [translated(text, shim)]
    for kernel, _ in kernels_of(text):
        threads, name, parameters = kernel.groups()
        count = parameters.count(",") + 1 if parameters.strip() else 0
        addresses = ", ".join(str(int("*" in each)) for each in parameters.split(","))
        figures = f"int parameters_of_{name} = {count}, threads_of_{name} = {threads or 1024}"
        lines.append(f'extern "C" {{ {figures}; bool addresses_of_{name}[] = {{{addresses}}}; }}')
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    if "--version" in arguments:
        print(f"stand-in for nvcc, {hashlib.sha256(SHIM.read_bytes() + Path(__file__).read_bytes()).hexdigest()}")
        return 0
    if "--list-gpu-arch" in arguments:
        print(os.environ.get("FAKE_NVCC_KNOWS", "compute_80 compute_90").replace(" ", "\n"))
        return 0
    (arch,) = (argument.removeprefix("-arch=") for argument in arguments if argument.startswith("-arch="))
    if (arch.startswith("compute_")) != ("--ptx" in arguments):
        print(f"nvcc fatal   : '{arch}' and what was asked for do not go together", file=sys.stderr)
        return 1
    source, target = Path(arguments[-1]), arguments[arguments.index("-o") + 1]
    text = source.read_text()
    for kernel in KERNEL.finditer(text):
        if (refused := os.environ.get("FAKE_NVCC_REFUSES")) and re.fullmatch(refused, kernel[2]):
            line = text.count("\n", 0, kernel.start()) + 1
            print(f"{source}({line}): error: {kernel[2]} is refused on request", file=sys.stderr)
            return 1
    result = build("g++", partial(with_figures, text), (), Path(target))
    sys.stderr.write(result.stderr)
    for kernel in KERNEL.finditer(text):
        print(f"ptxas info    : Compiling entry function '{kernel[2]}' for 'sm_90'")
        print("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 16 registers")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
