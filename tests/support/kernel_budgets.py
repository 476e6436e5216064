"""What a launch's machine code asks of an H200: instructions, special functions, registers, loads under way.

Figures of the device: 132 processors at 1.75 GHz; 65536 registers, 2048 threads and 228 KiB of shared memory each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fuse_opt.lowering.program import GridLaunch
from fuse_opt.runtime.device.compiler import KernelResources

CYCLES = 132 * 1.75e9
"""Of all processors a second."""


@dataclass(frozen=True)
class Kernel:
    """A launch with its machine code."""

    launch: GridLaunch
    code: list[tuple[str, int]]
    resources: KernelResources

    @property
    def threads(self) -> int:
        return prod(self.launch.block)

    @property
    def instructions_an_element(self) -> float:
        """Of all threads, for each element of the largest array; loops and slow paths count as if taken once."""
        elements = max(prod(ref.shape) for ref in self.launch.buffers)
        return len(self.code) * self.threads * prod(self.launch.grid) / elements

    @property
    def widest_load(self) -> int:
        """Bits; 0 where it loads nothing."""
        return max((bits for name, bits in self.code if name == "LDG"), default=0)

    def work_seconds(self, name: str, rate: float) -> float:
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
