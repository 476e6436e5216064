"""Storage of a function's values: which values share memory, whose memory it is, and from when to when it is in use.

Views that move nothing and in-place pairs make values share one storage. Steps are positions of ops in the function's
block. A lifetime is half-open: `[birth, death)`; an op reads its operands and writes its results at its own step, so an
operand and a result overlap there unless they are one storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from fuse_opt.dialects.fused import OutlinedOp
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import is_sized, shape, tensor
from fuse_opt.dialects.interfaces.stored_values import holds_stored
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.dtypes import dtype_of

StorageKind = Literal["argument", "constant", "result", "intermediate", "unplanned"]

DONATED = "graph.donated"
"""The argument attribute by which a caller gives up an argument's memory."""

ARENA = "fused.arena"
"""The function attribute that holds what a plan needs beside the kernels' slots."""

PLACES = "places"
"""Its entry where bytes are sizes: those of places, which the kernels' slots are numbers of."""

MOST_BYTES = 1 << 63
"""Those that addresses count stay below."""

Pairs = Mapping[Operation, Iterable[tuple[int, int]]]
"""In-place pairs (result, operand) by kernel."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that `values` share. Storages are numbered in the order of their first values."""

    number: int
    values: tuple[SSAValue, ...]
    kind: StorageKind
    """The caller's argument, a constant, the caller's result buffer, the arena's, or nobody's yet (bare graph ops)."""
    nbytes: int
    argument: int | None
    donated: bool
    results: tuple[int, ...]
    """Positions in the function's return that are served from here."""
    birth: int
    death: int
    kept: bool
    """It must keep its contents to the end: of a directive `keep_live`, or used by an op that might keep it."""


@dataclass(frozen=True)
class StorageMap:
    """All storages of a function, in order; `steps` is the number of ops, the end of time."""

    storages: tuple[Storage, ...]
    steps: int
    _of: dict[SSAValue, Storage]

    def of(self, value: SSAValue) -> Storage:
        """The storage of a value of the function's block. Raises KeyError for other values."""
        return self._of[value]


def analyse_storage(function: FuncOp, pairs: Pairs | None = None) -> StorageMap:
    """The storages of a function of one block, by the kernels' in-place pairs, or by `pairs` when given.

    Nothing is asked of the pairs: those that are not legal (any more) make lifetimes that overlap, not an error.
    """
    classes = StorageClasses(function)
    for kernel in classes.kernels:
        for result, operand in kernel.inplace_pairs() if pairs is None else pairs.get(kernel, ()):
            classes.unite(kernel.results[result], kernel.operands[operand])
    return classes.storage_map()


@dataclass(slots=True)
class SharedMemory:
    """What is known of a set of values that share memory, while sets still grow."""

    values: list[SSAValue]
    nbytes: int
    birth: int
    last_use: int
    reader: Operation | None = None
    """The last op that uses it."""
    returned: bool = False
    argument: int | None = None
    donated: bool = False
    constant: bool = False
    unplanned: bool = False
    kept: bool = False


class StorageClasses:
    """Union-find over the values of a function's block; views that move nothing are united from the start."""

    def __init__(self, function: FuncOp) -> None:
        self.block = block = function.body.block
        self.ops = list(block.ops)
        self.kernels = [op for op in self.ops if isinstance(op, OutlinedOp)]
        self._parent: list[int] = []
        self._classes: list[SharedMemory] = []
        self._index: dict[SSAValue, int] = {}
        self._returns: dict[SSAValue, list[int]] = {}
        self._add_arguments(function, block)
        for step, op in enumerate(self.ops):
            self._add_uses(step, op)
            self._add_results(step, op)

    def _add_arguments(self, function: FuncOp, block: Block) -> None:
        for number, value in enumerate(block.args):
            self._add(value, -1)
            known = argument_attributes(function, number)
            entry = self._classes[-1]
            entry.argument, entry.donated = number, DONATED in known
            entry.kept = "keep_live" in known or "no_inplace" in known

    def _add(self, value: SSAValue, birth: int) -> None:
        number = len(self._parent)
        self._index[value] = number
        self._parent.append(number)
        size = byte_size(value)
        self._classes.append(SharedMemory([value], size or 0, birth, birth, unplanned=size is None))

    def _add_uses(self, step: int, op: Operation) -> None:
        known = isinstance(op, GraphOp | OutlinedOp | ReturnOp)
        read = op.read_operands() if isinstance(op, OutlinedOp) else op.operands
        for operand in read if known else _used_values(op):
            if operand not in self._index:
                continue
            entry = self._classes[self.find(operand)]
            entry.last_use, entry.reader = step, op
            if not known:  # what an unknown op does with memory is unknown, too
                entry.kept = True
        if isinstance(op, ReturnOp):
            for number, operand in enumerate(op.operands):
                self._returns.setdefault(operand, []).append(number)
                self.known(operand).returned = True

    def _add_results(self, step: int, op: Operation) -> None:
        kept = kept_results(op)
        source = aliased_operand(op)
        for number, value in enumerate(op.results):
            self._add(value, step)
            entry = self._classes[-1]
            entry.kept = number in kept
            entry.constant = isinstance(op, GraphOp) and op.stored_value() is not None
            entry.unplanned |= not isinstance(op, OutlinedOp)
        if source is not None:
            self._classes[-1].unplanned = False
            self.unite(op.results[0], source)

    def find(self, value: SSAValue) -> int:
        """The number of the value's class; classes of lower numbers have earlier first values."""
        number = self._index[value]
        while (parent := self._parent[number]) != number:
            self._parent[number] = self._parent[parent]
            number = self._parent[number]
        return number

    def known(self, value: SSAValue) -> SharedMemory:
        """What is known of the value's class."""
        return self._classes[self.find(value)]

    def unite(self, a: SSAValue, b: SSAValue) -> None:
        """Lets two values share memory."""
        first, second = sorted((self.find(a), self.find(b)))
        if first == second:
            return
        self._parent[second] = first
        into, other = self._classes[first], self._classes[second]
        into.values, shorter = sorted((into.values, other.values), key=len, reverse=True)
        into.values.extend(shorter)
        into.nbytes = max(into.nbytes, other.nbytes)
        into.birth = min(into.birth, other.birth)
        if other.last_use > into.last_use:
            into.last_use, into.reader = other.last_use, other.reader
        if into.argument is None or (other.argument is not None and not other.donated):
            into.argument, into.donated = other.argument, other.donated
        into.returned |= other.returned
        into.constant |= other.constant
        into.unplanned |= other.unplanned
        into.kept |= other.kept

    def storage_map(self) -> StorageMap:
        """The classes as they are now."""
        end = len(self.ops)
        storages: list[Storage] = []
        of: dict[SSAValue, Storage] = {}
        for number, entry in enumerate(self._classes):
            if self._parent[number] != number:
                continue
            values = sorted(entry.values, key=self._index.__getitem__)
            results = tuple(sorted(r for v in values for r in self._returns.get(v, ())))
            kind = _kind(entry)
            held = entry.returned or entry.kept or kind == "constant" or (kind == "argument" and not entry.donated)
            storage = Storage(
                len(storages), tuple(values), kind, entry.nbytes, entry.argument, entry.donated, results,
                entry.birth, end if held else entry.last_use + 1, entry.kept,
            )  # fmt: skip
            storages.append(storage)
            of.update(dict.fromkeys(values, storage))
        return StorageMap(tuple(storages), end, of)


def _kind(entry: SharedMemory) -> StorageKind:
    if entry.argument is not None:
        return "argument"
    if entry.constant:
        return "constant"
    if entry.returned:
        return "result"
    return "unplanned" if entry.unplanned else "intermediate"


def byte_size(value: SSAValue) -> int | None:
    """Bytes of a value's elements, a size where these are asked for; None when they are not known, or it is no tensor."""
    if not isinstance(value.type, TensorType) or not is_sized(value):
        return None
    element = dtype_of(tensor(value).element_type)
    return None if element is None else prod(shape(value)) * element.itemsize


def aliased_operand(op: Operation) -> SSAValue | None:
    """The operand whose memory the op's result shares, for a view that moves nothing; else None."""
    if not isinstance(op, StructuredOp) or len(op.operands) != 1:
        return None
    if not is_sized(op.operands[0]) or not is_sized(op.results[0]):
        return None
    return op.operands[0] if op.is_alias() else None


def directed_results(op: Operation, directive: str) -> dict[int, Operation]:
    """The results that a directive is about, with the op that carries it.

    On an op it is about all of its results. In a kernel it is about what the op that carries it yields; on the kernel
    itself about every result, unless an op inside carries it and so says which.
    """
    if not isinstance(op, OutlinedOp):
        return dict.fromkeys(range(len(op.results)), op) if directive in op.attributes else {}
    inner = [o for o in op.block.ops if directive in o.attributes]
    if inner:
        return {
            number: value.owner
            for number, value in enumerate(op.yielded())
            if isinstance(value, OpResult) and value.owner in inner
        }
    return dict.fromkeys(range(len(op.results)), op) if directive in op.attributes else {}


def kept_results(op: Operation) -> dict[int, Operation]:
    """The results that `keep_live` keeps readable to the end of the program, with the op that carries it."""
    return directed_results(op, "keep_live")


def argument_attributes(function: FuncOp, number: int) -> Mapping[str, Attribute]:
    """The attributes of a function's argument."""
    return {} if function.arg_attrs is None else function.arg_attrs.data[number].data


def functions_of(module: Operation) -> list[FuncOp]:
    """
    The functions of a module that have one block, in order; those of nested modules, too. None with values of storage kinds:
    `lower-storage` takes these apart first.
    """
    return [function for function in all_functions_of(module) if not holds_stored(function)]


def all_functions_of(module: Operation) -> list[FuncOp]:
    """The functions of a module that have one block, in order; those of nested modules, and with values of storage kinds, too."""
    found: list[FuncOp] = []
    pending = [module]
    while pending:
        op = pending.pop()
        if isinstance(op, FuncOp):
            blocks = op.body.blocks
            if blocks.first is not None and blocks.first is blocks.last:
                found.append(op)
            continue
        nested = [inner for region in op.regions for block in region.blocks for inner in block.ops]
        pending.extend(reversed(nested))
    return found


def _used_values(op: Operation) -> list[SSAValue]:
    """The values that an op of an unknown kind and the ops nested in it use."""
    return [operand for inner in op.walk() for operand in inner.operands]


def value_name(value: SSAValue) -> str:
    """How a message calls a value: by its name in the text, else by what makes it."""
    if value.name_hint is not None:
        return f"%{value.name_hint}"
    if isinstance(value, BlockArgument):
        return f"argument {value.index}"
    if isinstance(value, OpResult) and isinstance(value.op, OutlinedOp):
        return f"{value_name(value.op.yielded()[value.index])} of a kernel"
    if isinstance(value, OpResult):
        return (
            f"the result of '{value.op.name}'"
            if len(value.op.results) == 1
            else f"result {value.index} of '{value.op.name}'"
        )
    return "a value without a definition"


def forget_places(function: FuncOp) -> None:
    """Drops where a function's values lie and which kernels are launched together, after a change of what runs when."""
    for op in (op for block in function.body.blocks for op in block.ops):
        if isinstance(op, OutlinedOp):
            op.drop_places()
            op.segment = None
    function.attributes.pop(ARENA, None)


def forget_plan(function: FuncOp) -> None:
    """Drops what was decided about a function's memory and launches, for rewrites after which it may not hold."""
    forget_places(function)
    for op in function.body.block.ops:
        if isinstance(op, OutlinedOp):
            op.inplace = None
