"""Whether the machine code of the benchmark's kernels leaves an H100 bound by memory: its instructions, its loads under way.

Figures of the device: 132 processors at 1.75 GHz, each of which issues for 128 threads a cycle and does 16 special
functions (MUFU); 65536 registers, 2048 threads and 228 KiB of shared memory each; copies run at 3.0e12 bytes a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from cuda_on_cpu import kernels_text, needs_nvcc
from gpu_workloads import array_bytes, workloads
from ir_testing import apply, function, parse
from sass import instructions
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from fuse_opt.lowering.emit.cuda import build_cuda_program
from fuse_opt.lowering.program import GridLaunch, Segment
from fuse_opt.runtime.device.compiler import KernelResources, compile_cuda, find_cuda_compiler, kernel_resources
from fuse_opt.runtime.disk_cache import DiskCache
from fuse_opt.tools.compiler.pipeline import DEFAULT_PIPELINE

COPY = 3.0e12
CYCLES = 132 * 1.75e9
"""Of all processors a second."""
ISSUED, SPECIAL = 128, 16
"""Threads of a processor in a cycle."""
IN_FLIGHT = 40 << 10
"""Bytes of loads under way on a processor that keep the memory of an H100 busy."""
BOUND_BY_WORK = {"W1", "W1h"}
"""Chains of exponentials: thirteen special functions an element take longer than its bytes, however they are spelt."""
WORKLOADS = {w.name: w for w in workloads() if w.name not in ("W12", "W13", "W14")}


@dataclass(frozen=True)
class Kernel:
    """A launch of a workload with its machine code."""

    launch: GridLaunch
    code: list[tuple[str, int]]
    resources: KernelResources

    @property
    def threads(self) -> int:
        x, y, z = self.launch.block
        return x * y * z

    def work_seconds(self, name: str, rate: int) -> float:
        """What its instructions of a name take, or all of them; only where it has no loop."""
        count = sum(found == name or not name for found, _ in self.code)
        return count * self.threads * self.launch.grid[0] / rate / CYCLES

    def bytes_in_flight(self) -> int:
        """Loads that the threads on a processor have under way: those before they meet, or before a loop's next turn."""
        registers = -(-self.resources.registers // 8) * 8
        blocks = min(2048 // self.threads, 65536 // (registers * self.threads), 32)
        blocks = min(blocks, (228 << 10) // (self.resources.shared + 1024))
        names = [name for name, _ in self.code]
        before = self.code[: names.index("BAR")] if "BAR" in names else self.code
        return blocks * self.threads * sum(bits // 8 for name, bits in before if name == "LDG")


@cache
def compiled() -> dict[str, list[Kernel]]:
    functions: list[Operation] = []
    for name, workload in WORKLOADS.items():
        body = function(apply(parse(workload.text()), DEFAULT_PIPELINE))
        body.detach()
        body.sym_name = StringAttr(name)
        functions.append(body)
    module = apply(ModuleOp(functions), "convert-fused-to-gpu")
    compiler = find_cuda_compiler()
    assert compiler is not None
    cubin = compile_cuda(compiler, kernels_text(module), "sm_90", DiskCache())
    code, resources = instructions(cubin.data), kernel_resources(cubin.log)
    found: dict[str, list[Kernel]] = {}
    for name in WORKLOADS:
        steps = build_cuda_program(module, name).steps
        launches = [each for step in steps if isinstance(step, Segment) for each in step.launches]
        found[name] = [
            Kernel(each, code[each.kernel], resources[each.kernel]) for each in launches if isinstance(each, GridLaunch)
        ]
    return found


@needs_nvcc
@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "W9"])
def test_instructions_leave_time_for_memory(name: str) -> None:
    """Nine tenths of the copy rate, if nothing else stood in the way; a division's slow path is counted as if taken once."""
    workload = WORKLOADS[name]
    (kernel,) = compiled()[name]
    moved = sum(array_bytes(ref.shape, ref.dtype) for ref in kernel.launch.buffers)
    allowed = moved / (0.9 * COPY)
    issued, special = kernel.work_seconds("", ISSUED), kernel.work_seconds("MUFU", SPECIAL)
    assert (max(issued, special) <= allowed) == (name not in BOUND_BY_WORK), (
        f"{workload.about}: {len(kernel.code)} instructions take {1e6 * issued:.0f} us, special functions "
        f"{1e6 * special:.0f} us; its bytes take {1e6 * allowed:.0f} us"
    )


@needs_nvcc
def test_rounding_between_ops_is_one_instruction() -> None:
    """And by the one that makes pairs: that of one number alone takes as long as a special function."""
    (kernel,) = compiled()["W1h"]
    elements, ops = 16, 14
    assert sum(name == "F2FP" for name, _ in kernel.code) >= elements * (ops - 1)
    assert not any(name == "F2F" for name, _ in kernel.code) and len(kernel.code) <= 70 * elements


@needs_nvcc
@pytest.mark.parametrize("name", WORKLOADS)
def test_enough_loads_are_under_way(name: str) -> None:
    kernel = compiled()[name][0]
    assert kernel.bytes_in_flight() >= IN_FLIGHT, (kernel.bytes_in_flight(), kernel.resources, kernel.launch.block)


@needs_nvcc
def test_large_arrays_are_moved_16_bytes_at_a_time() -> None:
    """
    But for transposes, which turn elements, columns, where neighbours of a warp are 128 bytes, and rows of odd numbers of
    elements, which begin anywhere.
    """
    widths = {"W9": 32, "W10": 32, "N771": 16, "S771": 32, "S50k": 32}
    for name, (kernel, *_) in compiled().items():
        widest = max(bits for mnemonic, bits in kernel.code if mnemonic == "LDG")
        assert widest == widths.get(name, 128), name
        assert not any(mnemonic in ("LDL", "STL") for mnemonic, _ in kernel.code), name
