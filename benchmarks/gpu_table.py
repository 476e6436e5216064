"""What the kernels of gpu_workloads.py come to by their machine code, beside Triton's, without a device.

    python benchmarks/gpu_table.py [--only W4,N768] [--device h200] [--arch sm_90] [--cuobjdump PATH]

Prints a table in Markdown: registers, threads, kibibytes of loads under way on a processor, instructions and special functions
(MUFU) an element, the microseconds that memory and instructions take, and the share of the copy rate that follows.
Needs nvcc and cuobjdump (package nvidia-cuda-cuobjdump with nvidia-cuda-nvdisasm). Nothing is timed: it is a model.

A copy moves nine tenths of what the memory is rated at, 0.95 of that is the most that a kernel gets; a processor issues 0.85 of
four instructions a cycle at 1.75 GHz. Memory and instructions overlap: the eighth root of the sum of eighth powers. Where one
block is all that a processor has room for, "in series" is the share if they do so between barriers alone: a device was seen on
either side of it. Loops without a count in the text are taken as often as their loads come to what a thread has of the largest
array.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gpu_sass import Loop, Way, ways
from gpu_workloads import Workload, array_bytes, residual_norm, workloads
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

from fuse_opt.dialects import gpu
from fuse_opt.lowering.c.language import CUDA
from fuse_opt.lowering.c.printer import print_function, print_translation_unit
from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.passes.devices.device import find_device
from fuse_opt.runtime.device.compiler import KernelResources, compile_cuda, find_cuda_compiler, kernel_resources
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.tools.compiler.api import optimize
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

TRITON: dict[str, tuple[float, float]] = {
    "W2": (38.1, 1.00), "W2t": (29.0, 2.00),
    "W2h": (31.9, 2.00), "W2odd": (49.8, 1.00), "W4": (19.5, 1.03), "S771": (26.2, 1.08), "W4h": (25.1, 1.06),
    "W5": (9.6, 0.03), "W5odd": (20.6, 0.04), "W6": (5.6, 0.03), "W6h": (11.1, 0.06), "W7": (30.8, 2.00),
    "W10": (13.9, 0.00), "N768": (11.4, 0.00), "N1024": (11.0, 0.00), "N1280": (30.2, 0.00), "N5120": (15.4, 0.00),
    "S1024h": (21.5, 1.06), "S16": (24.8, 1.06),
    "W1": (99.5, 13.00), "W1h": (101.2, 13.00), "W3": (18.4, 0.00), "W6s": (15.6, 2.00), "W8": (18.8, 2.50),
    "W11": (15.0, 0.50), "W2c": (56.5, 3.00), "Pool": (6.1, 0.00), "N771": (22.7, 0.04), "N1536": (27.8, 0.17),
    "N2560": (25.9, 0.10),
}  # fmt: skip
"""
Instructions and special functions an element of kernels written by hand as Inductor 2.13 writes them, compiled by Triton 3.9
for sm_90 in November 2026; their rows are held in registers. W4h at its 4096 columns is a looped kernel by default (54). Those
from W1 on are what `gpu_triton_table.py` prints; it counts up to 1.7 instructions more than were counted for N768 and N1024.
"""
TRITON_SHARES = {"S32k": 0.65, "S50k": 0.55, "S128k": 0.65, "W9": 0.90, "Middle": 0.60, "Few": 0.80}
"""Shares of the copy rate that were estimated from Inductor's way: reads, loops; of the same month."""


def gelu_by_erfc(f: Any, x: Any, b: Any) -> Any:
    """As JAX writes it."""
    y = x + b
    return f.op("erfc", [y * -(0.5**0.5)]) * (y * 0.5)


POOL = "{kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 2>} "
EXTRAS = [
    Workload("W2t", "bias + GELU (tanh)", ((16384, 2048), (2048,)), lambda f, x, b: f.gelu(x + b, "tanh")),
    Workload("W2c", "bias + GELU (erfc), JAX's", ((16384, 2048), (2048,)), gelu_by_erfc),
    Workload("W2odd", "bias + GELU (erf), odd rows", ((16384, 2047), (2047,)), lambda f, x, b: f.gelu(x + b, "none")),
    Workload("W5odd", "dropout, residual, norm, odd rows", (*((49152, 771),) * 3, (771,), (771,)), residual_norm,
             ("f32", "f32", "i1", "f32", "f32")),
    Workload("W6h", "RMS norm", ((16384, 4096), (4096,)), lambda f, x, s: f.rms_norm(x, s), "bf16"),
    Workload("S1024h", "softmax of rows", ((65536, 1024),), lambda f, x: f.softmax(x), "bf16"),
    Workload("Pool", "average of windows of 2 x 2", ((31, 64, 112, 112),),
             lambda f, x: f.op("avg_pool", [x], (31, 64, 56, 56), POOL)),
    Workload("Middle", "softmax over a middle axis", ((64, 1024, 512),),
             lambda f, x: f.op("softmax", [x], attributes="{axis = 1 : i64} ")),
    Workload("Few", "mean over axis 0 of 4 columns", ((10_000_000, 4),), lambda f, x: f.mean(x, 0)),
]  # fmt: skip
RATED, MOST, ISSUE, CLOCK = 0.9, 0.95, 0.85, 1.75e9


@dataclass
class Line:
    """A workload's kernels."""

    workload: Workload
    launches: list[tuple[GridLaunch, Way, KernelResources, str]]
    bytes_moved: int

    @property
    def elements(self) -> int:
        return max(prod(shape) for shape in self.workload.shapes)


def held_share(note: str) -> float | None:
    """What part of a row is held in shared memory while the rest is read again; None where that is not a kernel's way."""
    found = re.search(r"(\d+) % held", note)
    return None if found is None else int(found[1]) / 100


@dataclass
class Work:
    """Of all threads, between barriers."""

    instructions: float = 0.0
    special: float = 0.0
    loaded: float = 0.0
    stored: float = 0.0


def work(launch: GridLaunch, path: Way, note: str) -> list[Work]:
    """What the parts of a kernel that end at barriers come to."""
    threads = launch.grid[0] * prod(launch.block)
    largest = max(launch.buffers, key=lambda ref: array_bytes(ref.shape, "bf16"))
    own = prod(largest.shape) * array_bytes((1,), largest.dtype) / threads
    times = {id(loop): turns(path, loop, own, held_share(note)) for loop in path.loops}
    found: list[Work] = []
    for phase in path.phases():
        part = Work()
        for place in phase:
            loop, instruction = path.loop_of(place), path.code[place]
            count = threads * (1.0 if loop is None else times[id(loop)])
            part.instructions += count
            part.special += count * (instruction.kind == "MUFU")
            part.loaded += count * instruction.size * (instruction.kind == "LDG")
            part.stored += count * instruction.size * (instruction.kind == "STG")
        found.append(part)
    return found


def turns(path: Way, loop: Loop, own: float, held: float | None) -> float:
    """Of a loop: as many as what it moves goes into what a thread has of the largest array, or of the part that is held."""
    if held is not None:
        is_of_held = path.moved("LDS", loop) + path.moved("STS", loop) > 0
        own *= held if is_of_held else 1 - held
    for kind in () if loop.rest else ("LDG", "STG", "LDS"):
        if moved := path.moved(kind, loop):
            return max(own / moved, 1.0)
    return 1.0


def seconds(memory: float, instructions: float, special: float, processors: int) -> float:
    """Of what overlaps."""
    cycles = processors * CLOCK
    parts = (memory, instructions / (128 * ISSUE * cycles), special / (16 * cycles))
    return sum(part**8 for part in parts) ** 0.125 / MOST


def row(line: Line, device: str) -> str:
    found = find_device(device)
    copy, processors = found.bandwidth * RATED, found.processors
    took = series = total = special = 0.0
    for launch, path, resources, note in line.launches:
        parts = work(launch, path, note)
        issued, functions, loaded, stored = (
            sum(getattr(part, name) for part in parts) for name in ("instructions", "special", "loaded", "stored")
        )
        moved = sum(array_bytes(ref.shape, ref.dtype) for ref in launch.buffers)
        if len(line.launches) == 1:
            moved = max(moved, line.bytes_moved)  # in place: a buffer that is read and written
        again = max(loaded - sum_of_reads(launch), 0) if "stream" in note else 0
        if held_share(note) is None or again / launch.grid[0] * processors > found.cache_bytes / 2:
            moved += again  # else what the rows under way read again is in the second-level cache
        total, special = total + issued, special + functions
        took += (overlapped := seconds(moved / copy, issued, functions, processors))
        if resident_blocks(launch, resources) > 1:
            series += overlapped
            continue
        for part in parts:
            share = (part.loaded + part.stored) / (loaded + stored)
            series += seconds(share * moved / copy, part.instructions, part.special, processors)
    ideal, count = line.bytes_moved / copy, line.elements
    launch, path, resources, note = max(line.launches, key=issued_by)
    share, theirs = ideal / took, triton_share(line, ideal, processors)
    cells = [
        line.workload.name, line.workload.about, note, len(line.launches), resources.registers, prod(launch.block),
        in_flight(launch, path, resources) >> 10, f"{total / count:.1f}", f"{special / count:.2f}",
        f"{1e6 * ideal:.0f}/{1e6 * total / (128 * processors * CLOCK):.0f}", f"{share:.2f}",
        f"{ideal / series:.2f}" if series > took else "-",
        f"{TRITON[line.workload.name][0]}" if line.workload.name in TRITON else "-",
        "-" if theirs is None else f"{theirs:.2f}", "" if theirs is None or share >= theirs - 0.005 else "behind",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def issued_by(each: tuple[GridLaunch, Way, KernelResources, str]) -> float:
    """Instructions of a launch."""
    launch, path, _, note = each
    return sum(part.instructions for part in work(launch, path, note))


def sum_of_reads(launch: GridLaunch) -> int:
    """Bytes of the largest array, which a launch reads at least."""
    return max(array_bytes(ref.shape, ref.dtype) for ref in launch.buffers)


def triton_share(line: Line, ideal: float, processors: int) -> float | None:
    name = line.workload.name
    if name in TRITON:
        issued, special = (each * line.elements for each in TRITON[name])
        return ideal / seconds(ideal, issued, special, processors)
    return TRITON_SHARES.get(name)


def resident_blocks(launch: GridLaunch, resources: KernelResources) -> int:
    """Blocks that a processor has room for."""
    threads = prod(launch.block)
    blocks = min(2048 // threads, 65536 // (-(-resources.registers // 8) * 8 * threads), 32)
    return min(blocks, (228 << 10) // (resources.shared + launch.shared + 1024))


def in_flight(launch: GridLaunch, path: Way, resources: KernelResources) -> int:
    """Bytes of loads that the threads on a processor have under way."""
    return resident_blocks(launch, resources) * prod(launch.block) * path.before_waiting()


def compiled(chosen: Sequence[Workload], device: str, arch: str, cuobjdump: str) -> list[Line]:
    """All in one call of the compiler."""
    functions: list[Operation] = []
    attributes: dict[str, Attribute] = {}
    for workload in chosen:
        module = optimize(workload.text(), [f"gpu-attach-device{{device={device}}}", *DEFAULT_PIPELINE])
        body = next(op for op in module.ops if isinstance(op, FuncOp))
        attributes |= module.attributes  # the device
        body.detach()
        body.sym_name = StringAttr(workload.name)
        functions.append(body)
    module = optimize(ModuleOp(functions, attributes), ["convert-fused-to-gpu"])
    kernels = {op.sym_name.data: op for op in module.walk() if isinstance(op, gpu.FuncOp)}
    compiler = find_cuda_compiler()
    if compiler is None:
        sys.exit("gpu_table.py: no nvcc and no NVRTC found; install one, or set its variable (docs/install.md)")
    source = print_translation_unit([print_function(kernel, CUDA) for kernel in kernels.values()], CUDA)
    cubin = compile_cuda(compiler, source, arch, DiskCache())
    resources, code = kernel_resources(cubin.log), ways(listing(cubin.data, cuobjdump))
    lines: list[Line] = []
    for workload in chosen:
        program = build_cuda_program(module, workload.name)
        launches = [each for step in program.steps if isinstance(step, Segment) for each in step.launches]
        ours = [
            (each, code[each.kernel], resources[each.kernel], said(kernels[each.kernel]))
            for each in launches
            if isinstance(each, GridLaunch)
        ]
        moved = sum(array_bytes(shape, workload.dtype(k)) for k, shape in enumerate(workload.shapes))
        moved += sum(array_bytes(result.shape, result.dtype) for result in program.results)
        lines.append(Line(workload, ours, moved))
    return lines


def said(kernel: gpu.FuncOp) -> str:
    """How a kernel runs, in words."""
    note = kernel.attributes["fused.schedule"]
    assert isinstance(note, StringAttr)
    return note.data


def listing(cubin: bytes, cuobjdump: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([cuobjdump, "-sass", file.name], capture_output=True, text=True, check=True).stdout


HEADS = (
    "workload", "about", "schedule", "launches", "registers", "threads", "KiB under way", "instructions", "MUFU",
    "us memory/issue", "share of copy", "in series", "Triton's instructions", "share", "",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads, with commas between them")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    options = parser.parse_args()
    if options.cuobjdump is None:
        parser.error(
            "no cuobjdump on PATH: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, or name it by --cuobjdump"
        )
    known = [*(w for w in workloads() if w.name not in ("W12", "W13", "W14")), *EXTRAS]
    chosen = [w for w in known if not options.only or w.name in options.only.split(",")]
    print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
    for line in compiled(chosen, options.device, options.arch, options.cuobjdump):
        print(row(line, options.device))


if __name__ == "__main__":
    main()
