"""Generated C on a machine that is not here: compiled for aarch64 by gcc, and run by qemu's user mode, where both are installed.

The arrays of a program end at pages that may not be touched, so that what reads or writes behind one fails.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
from graph_op_table import Array

from fuse_opt.lowering.program import NUMPY_NAMES, LibraryCall, Program

GCC, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
_FLAGS = ("-O2", "-static", "-march=armv8.2-a+fp16", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno")
_MEANING = ("-fno-trapping-math", "-ffp-contract=off", "-fopenmp-simd", "-w")
_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
static void serial(void (*task)(void *, long, long), void *arg, long count, long grain) {
  (void)grain;
  for (long i = count - 1; i >= 0; --i) task(arg, i, i + 1);
}
static char *place(long size, long alignment) {
  long pages = (size + 4095) / 4096 * 4096;
  char *memory = mmap(0, pages + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(memory + pages, 4096, PROT_NONE);
  return (char *)((uintptr_t)(memory + pages - size) & -alignment);
}
"""


def missing() -> str:
    """What is not installed of what this takes; "" where all is."""
    absent = [name for name in (GCC, QEMU) if shutil.which(name) is None]
    return f"needs {' and '.join(absent)} (Debian: gcc-aarch64-linux-gnu, qemu-user)" if absent else ""


def run_on_arm(program: Program, arrays: Sequence[Array], folder: Path) -> list[Array]:
    """The results of a program without library calls, its tasks one by one from the last to the first."""
    assert not any(isinstance(step, LibraryCall) for step in program.steps)
    lines, given = list[str](), b""
    for number, buffer in enumerate(program.buffers):
        element = np.dtype(NUMPY_NAMES[buffer.dtype])
        size = prod(buffer.shape) * element.itemsize
        data = arrays[number] if buffer.kind == "argument" else buffer.data
        given += b"\xff" * size if data is None else np.ascontiguousarray(data).tobytes()
        alignment = 64 if buffer.kind in ("arena", "constant") else element.itemsize
        lines.append(f"b[{number}] = place({size}, {alignment});")
        lines.append(f"if (fread(b[{number}], 1, {size}, in) != {size}) return 2;")
    lines += [
        f"{step.function}((char *const *)b, serial);" for step in program.steps if not isinstance(step, LibraryCall)
    ]
    kinds = [(r, np.dtype(NUMPY_NAMES[r.dtype])) for r in program.results]
    lines += [f"fwrite(b[{r.index}], 1, {prod(r.shape) * kind.itemsize}, stdout);" for r, kind in kinds]
    body = "\n".join(lines)
    main = f"int main(void) {{ char *b[{len(program.buffers)}]; FILE *in = stdin;\n{body}\nreturn 0; }}\n"
    (folder / "program.c").write_text(program.source + _MAIN + main)
    command = [GCC, *_FLAGS, *_MEANING, "program.c", "-o", "program", "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    done = subprocess.run([QEMU, "-cpu", "max", "./program"], cwd=folder, input=given, capture_output=True)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr.decode()[:1000]}"
    found, at = list[Array](), 0
    for r, kind in kinds:
        count = prod(r.shape)
        found.append(np.frombuffer(done.stdout, kind, count, at).reshape(r.shape))
        at += count * kind.itemsize
    return found
