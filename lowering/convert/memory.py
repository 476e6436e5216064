"""Where the values of a tensor-level function live as buffers: the caller's, the arena's, or constants'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from math import prod
from typing import NamedTuple, cast

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    TensorType,
    UnitAttr,
    UnrealizedConversionCastOp,
    i8,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.utils.hints import isa

from fuse_opt.dialects.analysis.place_orders import PlaceOrders
from fuse_opt.dialects.analysis.storage import ARENA, MOST_BYTES, Storage, StorageMap, byte_size, value_name
from fuse_opt.dialects.fused import OutlinedOp, PartitionOp
from fuse_opt.dialects.gpu import ArenaOp, SizeOp
from fuse_opt.dialects.interfaces.layouts import encoding, memory_extents
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import int_array, ints
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.interfaces.symbols import argument_extents
from fuse_opt.dialects.types.dtypes import DType, dtype_of
from fuse_opt.dialects.types.encodings import OrderAttr
from fuse_opt.dialects.types.extents import largest, may_exceed, symbols
from fuse_opt.dialects.types.size import Extent, Size, SizeRefusal
from fuse_opt.dialects.types.symbolic_shape import ShapeAttr
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.kernel.buffers import Scratch
from fuse_opt.lowering.kernel.scope import INDEX

AXES = "fused.axes"
"""
The argument attribute, and the entry of a result, that says which axis of the caller's array each axis of the buffer is.
"""

SIZES = "fused.sizes"
"""The argument attribute, and the entry of a result, that says the extents of a buffer whose type has unknown ones."""

RESULTS = "fused.results"
"""The function attribute that says, for each result of the program, where the caller finds it."""


class Source(NamedTuple):
    """Where a program's result is: `buffer` k, the `donated` argument k, or a copy of `argument`, `constant`, `result` k."""

    type: MemRefType
    kind: str
    number: int = 0
    symbol: str = ""
    extents: tuple[Extent, ...] = ()
    """Those of `type`, where some are sizes."""

    def attribute(self, axes: Mapping[str, Attribute]) -> DictionaryAttr:
        which: Attribute = StringAttr(self.symbol) if self.symbol else IntegerAttr(self.number, i64)
        name = "symbol" if self.symbol else "number"
        known = {} if self.type.has_static_shape() else {SIZES: ShapeAttr.of(self.extents)}
        return DictionaryAttr({"kind": StringAttr(self.kind), name: which, "type": self.type, **known, **axes})


def memref_type(value: SSAValue) -> MemRefType:
    """The buffer of a tensor, row-major: its axes as they lie in memory."""
    return _memref(dtype(value), memory_extents(value))


def caller_axes(value: SSAValue) -> dict[str, Attribute]:
    """
    The entry that says how a caller's array for an argument or a result lies in the buffer; nothing where it does as it is.
    Raises LoweringError where no strides say that.
    """
    if (found := encoding(value)) is None:
        return {}
    steps = found.strides(shape(value)) or ()
    is_order = isinstance(found, OrderAttr)
    order = list(found.order) if is_order else sorted(range(len(steps)), key=lambda axis: -steps[axis])
    if not order or OrderAttr.of(order).strides(shape(value)) != steps:
        owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
        assert owner is not None
        raise LoweringError(
            f"{value_name(value)} is of type '{value.type}'; expected an order for what a caller gives or gets: convert it "
            "by graph.to_layout",
            owner,
        )
    return {AXES: int_array(order)}


def flat_type(value: SSAValue) -> MemRefType:
    """The tensor's elements one after another."""
    return _memref(dtype(value), (prod(shape(value)),))


@lru_cache(maxsize=1024)
def _memref(element: DType, extents: tuple[Extent, ...]) -> MemRefType:
    """Types are costly to make, and a program has few."""
    return MemRefType(element.attribute, [DYNAMIC_INDEX if isinstance(n, Size) else n for n in extents])


def _scratch_bytes(kind: MemRefType, elements: Extent | None) -> Extent:
    element = dtype_of(kind.element_type)
    assert element is not None
    return (kind.element_count() if elements is None else elements) * element.itemsize


class ProgramMemory:
    """The buffers of a function under conversion; ops that make them go to the front of its new block."""

    def __init__(
        self, function: FuncOp, storages: StorageMap, block: Block, constants: Constants, alignment: int
    ) -> None:
        self._storages = storages
        self._block = block
        self._constants = constants
        self._alignment = alignment
        self._old = function.body.block
        self._made: dict[tuple[object, ...], SSAValue] = {}
        self._planned = _planned_bytes(function)
        self._offsets = self._place_intermediates(function)
        self._lives = _Lives(function, storages, self._offsets)
        self._arena: SSAValue | None = None
        self._scratch_end: Extent = 0
        last = self._old.last_op
        assert isinstance(last, ReturnOp)
        self.results, self.own_results = self._place_results(last.operands)

    def _place_intermediates(self, function: FuncOp) -> dict[int, Extent]:
        """By storage: its byte offset. What has no slot gets a range of its own behind the others."""
        offsets: dict[int, Extent] = {}
        waiting: list[Storage] = []
        places, size = _place_offsets(function)
        size = largest(size, self._planned)
        for storage in self._storages.storages:
            if storage.kind == "intermediate":
                slot = next((slot for value in storage.values if (slot := _slot(value)) is not None), None)
                if slot is None:
                    waiting.append(storage)
                elif places:
                    offsets[storage.number] = places[slot]
                else:
                    offsets[storage.number] = slot
                    size = largest(size, slot + storage.nbytes)
        for kernel in function.body.block.ops:
            if isinstance(kernel, OutlinedOp) and (place := kernel.workspace_offset()) is not None:
                size = max(size, place + kernel.workspace_bytes())
            if isinstance(kernel, PartitionOp) and kernel.inner_slots is not None:
                places = zip(kernel.values_inside(), ints(kernel.inner_slots), strict=True)
                size = max([size, *(place + (byte_size(value) or 0) for value, place in places)])
        for storage in waiting:
            offsets[storage.number] = size = -(-size // self._alignment) * self._alignment
            size += storage.nbytes
        if not may_exceed(MOST_BYTES, size):
            raise LoweringError(f"'func.func': the arena has {size} bytes; expected fewer than 2**63", function)
        self.arena_bytes = size
        self.arena_alignment = max(self._alignment, _arena_entry(function, "alignment") or 0)
        return offsets

    def _place_results(self, values: Sequence[SSAValue]) -> tuple[list[Source], list[SSAValue]]:
        """For each returned value its source; and the values that get a buffer of the caller's."""
        sources: list[Source] = []
        own: list[SSAValue] = []
        first: dict[int, int] = {}
        self._result_numbers: dict[int, int] = {}
        for number, value in enumerate(values):
            storage, kind, extents = self._storages.of(value), memref_type(value), memory_extents(value)
            if storage.number in first:
                sources.append(Source(kind, "result", first[storage.number], extents=extents))
            elif storage.kind == "argument":
                assert storage.argument is not None
                sources.append(
                    Source(kind, "donated" if storage.donated else "argument", storage.argument, extents=extents)
                )
            elif not is_constant(storage):
                sources.append(Source(kind, "buffer", len(own), extents=extents))
                self._result_numbers[storage.number] = len(own)
                own.append(value)
            else:
                sources.append(Source(kind, "constant", symbol=self._constants.symbol(storage.values[0])))
            first.setdefault(storage.number, number)
        return sources, own

    def storage(self, value: SSAValue) -> Storage:
        return self._storages.of(value)

    def flat(self, value: SSAValue) -> SSAValue:
        """The value's buffer in one dimension."""
        return self._typed(value, flat_type(value), (prod(shape(value)),))

    def shaped(self, value: SSAValue) -> SSAValue:
        """The value's buffer in its own shape."""
        return self._typed(value, memref_type(value), memory_extents(value))

    def number(self, value: Extent) -> SSAValue:
        """A constant index, or one that is a size of the program."""
        if isinstance(value, Size):
            return self._once(("size", value), lambda: SizeOp(value))
        return self._once(("index", value), lambda: arith.ConstantOp(IntegerAttr(value, INDEX)))

    def _typed(self, value: SSAValue, wanted: MemRefType, extents: Sequence[Extent]) -> SSAValue:
        storage = self._storages.of(value)
        found = self._once((storage.number, wanted, *extents), lambda: self._view(storage, wanted, extents))
        found.name_hint = found.name_hint or value.name_hint
        return found

    def workspace(self, kernel: OutlinedOp) -> SSAValue | None:
        """The bytes that a kernel's implementation works in, where a plan has put them or behind all values; None of none."""
        if not (nbytes := kernel.workspace_bytes()):
            return None
        wanted = MemRefType(i8, [nbytes])
        if (place := kernel.workspace_offset()) is None:
            return self.scratch(self._behind(), wanted)
        return self._once(("workspace", place, nbytes), lambda: self._in_arena(place, wanted))

    def inside(self, partition: PartitionOp) -> list[SSAValue]:
        """The buffers of values inside of a partition, where a plan has put them or one after another behind all values."""
        values, found, end = partition.values_inside(), list[SSAValue](), 0
        slots = None if partition.inner_slots is None else ints(partition.inner_slots)
        for number, value in enumerate(values):
            wanted = memref_type(value)
            if slots is None:
                found.append(self.scratch(self._behind() + end, wanted))
                end += -(-(byte_size(value) or 0) // self._alignment) * self._alignment
            else:
                found.append(
                    self._once(("inside", slots[number], wanted), partial(self._in_arena, slots[number], wanted))
                )
        return found

    def _behind(self) -> Extent:
        """Where there is nothing that a plan has put anywhere."""
        return -(-self.arena_bytes // self._alignment) * self._alignment

    def scratch_start(self, kernel: OutlinedOp, shared: Sequence[Scratch]) -> Extent:
        """
        Where a kernel may work: in the lowest gap between what lives while it runs, or behind that; where sizes are no numbers,
        behind all values. Kernels are asked about in their order.
        """
        ends = (each.offset + _scratch_bytes(each.type, each.elements) for each in shared)
        needed = reduce(largest, ends)
        if isinstance(needed, Size) or isinstance(self.arena_bytes, Size):
            return self._behind()
        start = 0
        for first, end in sorted(self._lives.at(kernel)):
            if first - start >= needed:
                break
            start = max(start, -(-end // self._alignment) * self._alignment)
        return start

    def scratch(self, start: Extent, wanted: MemRefType, elements: Extent | None = None) -> SSAValue:
        """A buffer for what launches of a kernel hand on to each other; `finish` makes room for it."""
        self._scratch_end = largest(self._scratch_end, start + _scratch_bytes(wanted, elements))
        extents = () if elements is None else (elements,)
        return self._once(("scratch", start, wanted, *extents), lambda: self._in_arena(start, wanted, extents))

    def finish(self) -> None:
        """Gives the arena its size."""
        if self._arena is not None and may_exceed(self._scratch_end, self.arena_bytes):
            old = self._arena.owner
            assert isinstance(old, ArenaOp)
            new = ArenaOp(self._scratch_end, self.arena_alignment)
            new.result.name_hint = old.result.name_hint
            self._block.insert_op_before(new, old)
            old.result.replace_all_uses_with(new.result)
            old.detach()
            old.erase()

    def _in_arena(self, offset: Extent, wanted: MemRefType, extents: Sequence[Extent] = ()) -> Operation:
        if self._arena is None:
            self._arena = self._once(("arena",), lambda: ArenaOp(self.arena_bytes, self.arena_alignment))
            self._arena.name_hint = "arena"
        return memref.ViewOp(self._arena, self.number(offset), self._unknown(extents), wanted)

    def _unknown(self, extents: Sequence[Extent]) -> list[SSAValue]:
        """The extents that a type does not say."""
        return [self.number(extent) for extent in extents if isinstance(extent, Size)]

    def _view(self, storage: Storage, wanted: MemRefType, extents: Sequence[Extent]) -> Operation | SSAValue:
        if storage.kind == "intermediate":
            return self._in_arena(self._offsets[storage.number], wanted, extents)
        base = self._base(storage)
        kind = base.type
        assert isa(kind, MemRefType)
        if kind.element_type != wanted.element_type:
            same_extents = MemRefType(wanted.element_type, kind.get_shape())
            base = self._once((storage.number, same_extents), lambda: _converted(base, same_extents))
        return base if base.type == wanted else self._reshaped(base, wanted, extents)

    def _reshaped(self, base: SSAValue, wanted: MemRefType, extents: Sequence[Extent]) -> Operation:
        strides = [prod(extents[axis + 1 :]) for axis in range(len(extents))]
        shape_, steps = ([DYNAMIC_INDEX if isinstance(n, Size) else n for n in each] for each in (extents, strides))
        given = self._unknown(extents), self._unknown(strides)
        return memref.ReinterpretCastOp(base, [], *given, [0], shape_, steps, wanted)

    def _base(self, storage: Storage) -> SSAValue:
        if storage.argument is not None:
            return self._block.args[storage.argument]
        if storage.number in self._result_numbers:
            return self._block.args[len(self._old.args) + self._result_numbers[storage.number]]
        constant = storage.values[0]
        symbol = self._constants.symbol(constant)
        found = self._once(("global", symbol), lambda: memref.GetGlobalOp(symbol, memref_type(constant)))
        found.name_hint = constant.name_hint
        return found

    def _once(self, key: tuple[object, ...], build: Callable[[], Operation | SSAValue]) -> SSAValue:
        if (found := self._made.get(key)) is None:
            made = build()
            if isinstance(made, Operation):
                self._block.add_op(made)
                made = made.results[0]
            found = self._made[key] = made
        return found


def is_constant(storage: Storage) -> bool:
    """Whether the storage is that of a constant outside of kernels, stored or splat."""
    op = storage.values[0].owner
    return storage.argument is None and isinstance(op, StructuredOp) and not op.operands


def _converted(base: SSAValue, wanted: MemRefType) -> Operation:
    """The same bytes as elements of another type of that size: a kernel that works in place may change the type."""
    return UnrealizedConversionCastOp.get([base], [wanted])


def _slot(value: SSAValue) -> int | None:
    """The arena offset that a plan gave to the value."""
    if not isinstance(value, OpResult) or not isinstance(value.op, OutlinedOp) or value.op.slots is None:
        return None
    slot = ints(value.op.slots)[value.index]
    return slot if slot >= 0 else None


def _arena_entry(function: FuncOp, name: str) -> int | None:
    plan = function.attributes.get(ARENA)
    entry = plan.data.get(name) if isinstance(plan, DictionaryAttr) else None
    return entry.value.data if isinstance(entry, IntegerAttr) else None


class _Lives:
    """The ranges of an arena that are in use while an op runs; ops are asked about in their order."""

    def __init__(self, function: FuncOp, storages: StorageMap, offsets: Mapping[int, Extent]) -> None:
        self._steps = {op: step for step, op in enumerate(function.body.block.ops)}
        self._offsets = offsets
        self._waiting = sorted(
            (each for each in storages.storages if each.number in offsets), key=lambda each: each.birth, reverse=True
        )
        self._alive: list[Storage] = []

    def at(self, op: OutlinedOp) -> list[tuple[int, int]]:
        """Half-open, in any order."""
        step = self._steps[op]
        while self._waiting and self._waiting[-1].birth <= step:
            self._alive.append(self._waiting.pop())
        self._alive = [each for each in self._alive if each.death > step]
        starts = ((cast(int, self._offsets[each.number]), each.nbytes) for each in self._alive)
        found = [(start, start + nbytes) for start, nbytes in starts]
        if (place := op.workspace_offset()) is not None:
            found.append((place, place + op.workspace_bytes()))
        return found


def _place_offsets(function: FuncOp) -> tuple[Sequence[Extent], Extent]:
    """Where places of a plan for any sizes begin, and how large the arena is: symbols, whose values follow from a call's."""
    if (orders := PlaceOrders.of(function)) is None:
        return [], 0
    taken = {one.name for extents in argument_extents(function) for one in symbols(extents)}
    if clash := taken.intersection(orders.names):
        raise LoweringError(f"'func.func': symbols {sorted(clash)} have names of places; rename them", function)
    *offsets, arena, _ = orders.symbols()
    return offsets, arena


def _planned_bytes(function: FuncOp) -> int:
    return _arena_entry(function, "size") or 0


class Constants:
    """The constants of a module that are kept in memory, as globals; equal ones are one."""

    def __init__(self, module_block: Block, taken: Iterable[str], alignment: int) -> None:
        self._module_block = module_block
        self._taken = set(taken)
        self._alignment = alignment
        self._symbols: dict[Attribute, str] = {}

    def symbol(self, value: SSAValue) -> str:
        """The name of the global that holds the constant."""
        dense = constant_elements(value)
        if (found := self._symbols.get(dense)) is None:
            number = len(self._symbols)
            while (found := f"constant_{number}") in self._taken:
                number += 1
            self._taken.add(found)
            self._symbols[dense] = found
            global_ = memref.GlobalOp.get(
                StringAttr(found), memref_type(value), dense, constant=UnitAttr(), alignment=self._alignment
            )
            put_first(self._module_block, global_)
        return found


def put_first(block: Block, op: Operation) -> None:
    """Puts the op at the beginning of the block."""
    if block.first_op is None:
        block.add_op(op)
    else:
        block.insert_op_before(op, block.first_op)


def constant_elements(value: SSAValue) -> DenseIntOrFPElementsAttr:
    """
    The elements of a value that an op without operands makes. Raises LoweringError when they are not known, and SizeRefusal
    when it has them for extents that are numbers alone.
    """
    op = value.owner
    assert isinstance(op, Operation)
    if not is_static(value):
        raise SizeRefusal(f"'{op.name}': a constant that no kernel makes has extents that are numbers")
    if isinstance(op, GraphOp) and (stored := op.stored_value()) is not None:
        return stored
    if isinstance(op, StructuredOp) and not op.operands and (body := op.body()).function == "constant":
        elements = DenseIntOrFPElementsAttr.from_list
        if body.dtype.is_float:
            return elements(cast(TensorType[AnyFloat], tensor(value)), [float(body.value)])
        return elements(cast(TensorType[IntegerType], tensor(value)), [int(body.value)])
    raise LoweringError(f"'{op.name}' is not in a kernel; run wrap-kernels first", op)
