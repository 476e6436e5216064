"""The buffers that a kernel's function takes: one for each memory and element type that it reads or writes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from fuse_opt.dialects.analysis.loop_body import LoopBody, ScalarNode, Store
from fuse_opt.dialects.fused import KernelOp
from fuse_opt.dialects.fused.knobs import LANES, LENT, NEXT_ROW, OVERLAP, REGISTER_BITS, TASKS
from fuse_opt.dialects.interfaces.shapes import dtype, shape
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.dialects.types.size import Extent
from fuse_opt.lowering.hints import is_deferred, is_nontemporal
from fuse_opt.lowering.kernel.element_emitter import element_buffer_type

WORK_PER_CHUNK = 12288 * 4
"""Simple operations that make it worth to hand a part of a loop to another thread; a light element has four."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that the launches of one kernel hand on to each other: where it begins, in bytes, what it holds, a name."""

    offset: int
    type: MemRefType
    name: str | None
    elements: Extent | None = None
    """That it has, where its type does not say it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A buffer that a kernel's function takes: that of an operand, of a result, or scratch memory; the others are None."""

    operand: int | None
    result: int | None
    scratch: Scratch | None = None

    def value_of(self, kernel: KernelOp) -> SSAValue:
        if self.operand is not None:
            return kernel.operands[self.operand]
        assert self.result is not None
        return kernel.results[self.result]


class KernelBuffers:
    """Which parameter holds what; `memory` names the storage of each operand and result: equal ones are one buffer."""

    def __init__(self, kernel: KernelOp, passes: Sequence[LoopBody], memory: Sequence[Hashable]) -> None:
        self.parameters: list[Parameter] = []
        self.types: list[MemRefType] = []
        self.hints: list[str | None] = []
        self.sources: dict[SSAValue, int] = {}
        """By value that the kernel loads: its parameter."""
        self.targets: list[int] = []
        """By result: its parameter."""
        self.nontemporal = is_nontemporal(kernel)
        """Whether stores go past the caches where they can."""
        self.deferred = is_deferred(kernel)
        """Whether a row's are to be made while the next one is computed, where they can."""
        self.next_row = NEXT_ROW.word(kernel)
        """Whether loops may ask for memory of the next row: always, never, or where processors gain by it."""
        self.overlap = OVERLAP.word(kernel)
        """Whether the last loop of a row may run together with the first one of the next row."""
        self.lanes = LANES.count(kernel)
        """Accumulators of a reduction side by side, where the schedule says how many."""
        self.lent = LENT.number(kernel)
        """Bytes of a row of a result from which on its memory holds what is kept of the row."""
        self.register_bits = REGISTER_BITS.number(kernel)
        """Of a register of the machine."""
        self.chunk = TASKS.count(kernel) or WORK_PER_CHUNK
        """Simple operations of the least piece of work that a thread takes."""
        self._memory = memory
        self._known: dict[tuple[Hashable, Attribute], int] = {}
        self._owners: dict[Hashable, int] = {}
        self._shared: set[int] = set()
        loaded = {node.value for loop_body in passes for node in loop_body.loads() if prod(shape(node.value))}
        for number, argument in enumerate(kernel.block.args):
            if argument in loaded:
                self.sources[argument] = self._place(argument, number, Parameter(number, None))
        for number, result in enumerate(kernel.results):
            self.targets.append(self._place(result, len(kernel.operands) + number, Parameter(None, number)))

    @property
    def shared(self) -> frozenset[int]:
        """Parameters whose memory another one has, too."""
        return frozenset(self._shared)

    def in_place(self, loop_body: LoopBody, stores: Sequence[Store] | None = None) -> bool:
        """Whether a pass of the kernel, or these stores of it, may write to memory that it reads."""
        read = {self.sources[node.value] for node in loop_body.loads() if node.value in self.sources}
        written = {self.targets[store.result] for store in (loop_body.stores if stores is None else stores)}
        return not read.isdisjoint(written) or not self._shared.isdisjoint(written)

    def _place(self, value: SSAValue, number: int, parameter: Parameter) -> int:
        kind = element_buffer_type(dtype(value), prod(shape(value)))
        memory = self._memory[number]
        found = self._known.get((memory, kind))
        if found is not None:
            return found
        place = self._known[memory, kind] = len(self.types)
        self.types.append(kind)
        self.hints.append(value.name_hint)
        self.parameters.append(parameter)
        if memory in self._owners:
            self._shared.update((self._owners[memory], place))
        self._owners[memory] = place
        return place


def operand_pass(value: SSAValue) -> LoopBody:
    """A pass that loads a value, so that the kernel has a buffer of it."""
    index = dimensions("i", shape(value))
    return LoopBody(index, shape(value), (), (), (ScalarNode(value, index, None),), ())
