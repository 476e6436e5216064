"""CUDA text as C++ that a CPU runs, by `cuda_shim.h`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SHIM = Path(__file__).with_name("cuda_shim.h")
FLAGS = ("-std=gnu++14", "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-w")
"""C++14: the mathematics header of later ones takes as long to read as all else."""

KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\((\d+)[^)]*\)\s+)?(\w+)\(([^)]*)\)\s*\{")
"""The head of a kernel: threads of a block at most, name, parameters."""
_WAITS = re.compile(r"__sync|__shfl|__shared__")
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\[\];")


def for_shim(text: str) -> str:
    """CUDA text as C++ for the shim, without the shim itself."""
    text = re.sub(r"#include <cuda_\w+\.h>\n", "", text)
    return _DYNAMIC.sub(r"\1 *const \2 = reinterpret_cast<\1 *>(shim::dynamic);", text)


def kernels_of(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """The head of each kernel of a text, and whether its threads may wait for each other."""
    starts = list(KERNEL.finditer(text))
    for kernel, following in zip(starts, [*starts[1:], None], strict=False):
        yield kernel, _WAITS.search(text, kernel.end(), following.start() if following else len(text)) is not None


def translated(text: str, shim: Path) -> str:
    """C++ with the shim, which will lie there, and a function `run_NAME` for each kernel."""
    exports = [f"SHIM_EXPORT({kernel[2]}, {str(waits).lower()})\n" for kernel, waits in kernels_of(text)]
    return f'#include "{shim}"\n{for_shim(text)}\n{"".join(exports)}'
