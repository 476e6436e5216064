"""Which kernels store past the caches: those of large results that wait for memory, not for arithmetic.

A line that is stored to is read first, and takes the place of another one in the caches. Where both the line and what it
displaces are gone before they are used again, a non-temporal store saves that reading: a third of the traffic of a kernel
with one operand and one result. Within caches such stores cost several times as much as others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import OpResult, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, trace_kernel
from fuse_opt.dialects.analysis.loop_order import side_by_side
from fuse_opt.dialects.analysis.storage import aliased_operand, byte_size, value_name
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.scalar import cost
from fuse_opt.dialects.types.size import Size
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.memory.inplace_rules import InplaceRules, KernelRules

WAITS_FOR_MEMORY = {"pointwise": 0.7, "row": 0.8, "tile": 0.7}
"""By kind of the schedules whose loops can store so: arithmetic in the time of memory, beyond which cycles of the stores cost
more than what is not read saves. The loops of a row overlap both less than one loop does."""
LIGHT, LONG_ROW = 0.4, 1 << 14
"""The same of rows of fewer bytes: softmax of 128 to 903 f32 took .71 to .88 of the time with ordinary stores, of 1,536 to 3,001
.95 to 1.04, of 8,192 1.25 (Zen 4)."""
LONGEST_KEPT = 64 << 10
"""Bytes of a row of which lowering keeps nothing but in the memory of a result, and where this goes past the caches nothing:
arithmetic is done twice. Softmax of 18,127 and 48,436 f32 took .79 of the time with ordinary stores, of 10,031 1.02 (Zen 4)."""
OUTSIDE_CACHES = 2
"""Times the last level cache that a kernel moves, from which on nothing of it is left there for the next run."""
SMALLEST_PART = 16
"""Of the bytes that a kernel moves, the part of a result that is worth it."""
LINE = 64
"""Bytes of a cache line."""
LONGEST_BROKEN_ROW = {"pointwise": 3584, "row": 2816}
"""By kind, bytes of a row from which on it does not count that it begins and ends within a line: `x[i % n] * 1.5 + y` of 193,
357, 517, 771 and 901 f32 took 1.45, 1.23, 1.1, 1.0 and .82 times the time that it took with ordinary stores, layer norm of 647,
711, 801 and 903 1.05, .93, .81 and .77 times, RMS norm 1.2, 1.03, 1.07 and .73 times (Zen 4)."""
SHORTEST_ROW = 2240
"""Bytes of a row of a `row` kernel from which on it is worth it: with ordinary stores layer norms of 256, 320, 448 and 544 f32
took .8, .8, .89 and .94 of the time, RMS norms .91, .7, .92 and .84, of 560 and more 1.0 to 1.2 (Zen 4)."""

SHORTEST_REQUESTED = 640
"""Bytes of a row of a `row` kernel with one reduction from which on lines are asked for before ordinary stores to them: RMS norms
of 181, 230, 267, 501 and 699 f32 took .93, .96, .94, .88 and .87 of the time, of 97, 110 and 127 1.05, 1.15 and 1.06 times. Where
a row is read more than once before it is stored, memory has time for that: layer norms took .98 to 1.12 times (Zen 4)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a kernel stores past the caches, as a reason code and a sentence for a remark; both empty for small ones."""

    code: str = ""
    message: str = ""
    flip: str = ""
    requested: bool = False
    """Whether lines of ordinary stores are asked for before."""

    @property
    def stores(self) -> str:
        """What the schedule says of it; empty for ordinary stores."""
        return self.code if self.code == "nontemporal" else "requested" if self.requested else ""


class StoreRules:
    """The decision for the kernels of one function, after their schedules but before in-place pairs are chosen."""

    def __init__(self, function: FuncOp, device: Device) -> None:
        self.function = function
        self.least = OUTSIDE_CACHES * device.last_level_cache_bytes
        self.device = device
        self._inplace: InplaceRules | None = None
        self._steps: dict[KernelOp, int] = {}

    def judge(self, kernel: KernelOp) -> Verdict:
        """Whether the kernel's results should go past the caches."""
        sizes = [byte_size(value) or 0 for value in (*kernel.operands, *kernel.results)]
        share = WAITS_FOR_MEMORY.get(kernel.schedule_kind() or "")
        known = not any(isinstance(size, Size) for size in sizes)
        if not self.least or share is None or not known or sum(sizes) < self.least:
            return Verdict()
        loop_body = trace_kernel(kernel)
        moved = _loaded_bytes(loop_body) + sum(sizes[len(kernel.operands) :])
        if moved < self.least:
            return Verdict()
        arithmetic, memory = self.device.work_seconds(_work(loop_body)), self.device.move_seconds(moved)
        is_row = kernel.schedule_kind() == "row"
        rows = [] if kernel.schedule_kind() == "tile" else _rows(loop_body)
        if is_row and max(rows, default=LONG_ROW) < LONG_ROW:
            share = LIGHT
        if is_row and max(rows, default=0) > LONGEST_KEPT:
            arithmetic *= 2
        if arithmetic > share * memory:
            message = (
                f"stores through the caches: {arithmetic * 1e6:.0f} us of arithmetic for {memory * 1e6:.0f} of memory"
            )
            return Verdict("arithmetic-bound", message, "less arithmetic")
        longest = LONGEST_BROKEN_ROW.get(kernel.schedule_kind() or "", 0)
        if row := next((row for row in rows if row % LINE and row < longest), None):
            return Verdict(
                "broken-lines",
                f"stores through the caches: rows of {row} bytes begin and end within lines of {LINE}",
                f"rows that are multiples of {LINE} bytes",
                is_row and _is_requested(loop_body, row),
            )
        if is_row and max(rows, default=SHORTEST_ROW) < SHORTEST_ROW:
            message = f"stores through the caches: rows have {max(rows)} bytes, not {SHORTEST_ROW}"
            return Verdict("short-rows", message, "longer rows", _is_requested(loop_body, max(rows)))
        refusals = [self._refuse(kernel, result, moved) for result in kernel.results]
        if None in refusals:
            return Verdict("nontemporal", f"stores past the caches: it moves {moved} bytes")
        return Verdict("stays-in-cache", f"stores through the caches: {refusals[0]}")

    def _refuse(self, kernel: KernelOp, result: OpResult, moved: int) -> str | None:
        """Why the result should be stored as usual."""
        size, name = byte_size(result) or 0, value_name(result)
        if size * SMALLEST_PART < moved:
            return f"{name} has {size} bytes of {moved}"
        rules = self._rules(kernel)
        memory = rules.classes.known(result)
        if any(rules.refuse(result.index, operand) is None for operand in range(len(kernel.operands))):
            return f"{name} may take over the memory of an operand"
        if memory.kept:
            return f"{name} is used by an op that is no kernel"
        readers = [use.operation for value in memory.values for use in value.uses]
        read = any(not isinstance(op, ReturnOp) and aliased_operand(op) is None for op in readers)
        if read and size < self.device.last_level_cache_bytes:
            return f"{name} has {size} bytes and is read by a later kernel"
        return None

    def _rules(self, kernel: KernelOp) -> KernelRules:
        if self._inplace is None:
            self._inplace = InplaceRules(self.function)
            self._steps = {op: step for step, op in self._inplace.kernels}
        return self._inplace.at(self._steps[kernel], kernel)


def _loaded_bytes(loop_body: LoopBody) -> int:
    """Of each operand the elements that are read, no more than it has."""
    read: dict[SSAValue, int] = {}
    for node in loop_body.loads():
        elements = read.get(node.value, 0) + prod(dim.extent for dim in node.address.dims())
        read[node.value] = min(elements, prod(shape(node.value)))
    return sum(elements * dtype(value).itemsize for value, elements in read.items())


def _rows(loop_body: LoopBody) -> list[int]:
    """Bytes of the rows of results that a loop goes along."""
    if loop_body.is_row:
        length = prod(dim.extent for index in loop_body.columns for dim in index.dims())
    else:
        length = side_by_side(loop_body)
    return [length * dtype(store.node.value).itemsize for store in loop_body.stores if not store.per_row]


def _is_requested(loop_body: LoopBody, row: int) -> bool:
    reductions = sum(1 for node in loop_body.nodes if node.op is not None and node.op.COMBINE)
    return reductions == 1 and row >= SHORTEST_REQUESTED


def _work(loop_body: LoopBody) -> int:
    """Simple operations, each as often as what it depends on varies."""
    total = 0
    for node in loop_body.nodes:
        if node.op is not None:
            dims = node.dims.union(*(operand.dims for operand in node.operands))
            total += (cost(node.op.body()) + bool(node.op.COMBINE)) * prod(dim.extent for dim in dims)
    return total
