"""Make csr operands of products dense where dense products, with what the copy takes, cost less."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.graph.sparse.expansion import Flat, over_parts, with_dense
from fuse_opt.dialects.graph.sparse.storage import ToStorageOp
from fuse_opt.dialects.implementation.selection import NEAR
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.interfaces.stored_values import is_stored
from fuse_opt.dialects.types.encodings import with_encoding
from fuse_opt.dialects.types.storage_kinds import part_types
from fuse_opt.passes.decisions.choices import Choices, choosing
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.devices.device_pass import DevicePass
from fuse_opt.passes.implementation.costs import alone_seconds
from fuse_opt.passes.remarks import Number, remark
from fuse_opt.passes.rewrite_pass import RewritePass
from fuse_opt.passes.storage.assign_storage import functions_with_stored

_DENSE = "dense"
"""What is chosen for a product that runs on a dense copy."""


@dataclass(frozen=True)
class ChooseStoragePass(DevicePass, RewritePass):
    """Converts an operand that is stored as csr for products that cost less on a dense one: with its capacity near its size.

    ```mlir
    %0 = graph.matmul %a, %x : (tensor<64x64xf32, #graph.csr<capacity = 4000>>, tensor<64x512xf32>) -> tensor<64x512xf32>
    ```
    becomes
    ```mlir
    %1 = graph.to_storage %a : (tensor<64x64xf32, #graph.csr<capacity = 4000>>) -> tensor<64x64xf32>
    %0 = graph.matmul %1, %x : (tensor<64x64xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
    ```
    Costs are those that implementations say; a capacity stands for what is stored. The copy is one for all readers that gain,
    and pays for itself in each call, but for an operand that follows from frozen arguments alone. Each choice is a remark.
    Products of what is absent with infinities and NaN, which a csr product leaves out, are NaN in a dense one: so nothing is
    converted where `numerics` is "strict", and a remark says what would be. Nothing is converted in the other direction: that
    a matrix has few entries is for a person to say.

    Requires: nothing; where kinds flow, after `assign-storage`.
    """

    name = "choose-storage"

    numerics: Literal["strict", "fast"] = "strict"
    """Whether a dense operand that a csr one is multiplied with may be taken to be finite: "fast" where it may."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if functions := functions_with_stored(op):
            with choosing(self.name, op) as choices:
                for function in functions:
                    self._choose(function, self.machine(op), choices)

    def _choose(self, function: FuncOp, machine: Device, choices: Choices) -> None:
        frozen, order = _from_frozen(function), {op: number for number, op in enumerate(function.body.block.ops)}
        for value in _stored_values(function):
            readers = sorted({use.operation for use in value.uses}, key=order.__getitem__)
            known = [found for reader in readers if (found := _Reader.of(reader, value, frozen, machine)) is not None]
            gaining = [reader for reader in known if reader.dense < reader.stored]
            copy = 0.0 if value in frozen else _on_parts(ToStorageOp.of(_stand_in(value), None), (), None, machine)[0]
            dense = copy + sum(reader.dense for reader in gaining)
            chosen = gaining if dense * NEAR < _together(gaining) else []
            if choices.replays:
                chosen = [reader for reader in known if self._is_told(reader.op, choices)]
            if self.numerics == "fast":
                chosen = [reader for reader in chosen if choices.take(reader.op, _DENSE)]
                self._convert(value, [reader.op for reader in chosen])
            for reader in known:
                self._say(reader, reader in chosen, copy, value)

    def _is_told(self, op: GraphOp, choices: Choices) -> bool:
        """Whether a file has an op run on a dense copy. Raises DecisionError."""
        step = choices.told_one(op, _DENSE)
        if step is not None and self.numerics != "fast":
            message = f"is the same where what it multiplies is finite: expected '{self.name}' with numerics=fast"
            raise step.decision.choice_error(message)
        return step is not None

    def _convert(self, value: SSAValue, readers: Sequence[GraphOp]) -> None:
        """One dense copy, in front of the first of its readers, where there are any."""
        if not readers:
            return
        first, block = readers[0], readers[0].parent_block()
        assert block is not None
        conversion = ToStorageOp.of(value, None)
        conversion.location = first.location
        conversion.result.name_hint = value.name_hint
        block.insert_op_before(conversion, first)
        for reader in readers:
            reader.operands = [conversion.result if operand is value else operand for operand in reader.operands]

    def _say(self, reader: _Reader, is_chosen: bool, copy: float, value: SSAValue) -> None:
        numbers: dict[str, Number] = {"stored_us": _us(reader.stored), "dense_us": _us(reader.dense)}
        numbers |= {"copy_us": _us(copy), "bytes": byte_size(_stand_in(value, dense=True)) or 0}
        if is_chosen and self.numerics == "fast":
            remark(self.name, reader.op, "dense", "is computed on a dense copy, which costs less", numbers=numbers)
        elif is_chosen:
            flip = "choose-storage=numerics=fast, or graph.to_storage in front of it"
            message = "would cost less on a dense copy, which is the same where what it multiplies is finite"
            remark(self.name, reader.op, "finite", message, flip=flip, numbers=numbers)
        else:
            flip = "graph.to_storage in front of it"
            message = "is computed on what is stored, which costs no more"
            remark(self.name, reader.op, "stored", message, flip=flip, numbers=numbers)


@dataclass(frozen=True)
class _Reader:
    """A product, and the seconds that it takes on a stored operand and on a dense one."""

    op: GraphOp
    own: float
    shared: Mapping[Hashable, float]
    """What it needs of the stored operand alone, as its transpose: made once for all products that need it."""
    dense: float

    @property
    def stored(self) -> float:
        return self.own + sum(self.shared.values())

    @classmethod
    def of(cls, op: Operation, value: SSAValue, frozen: Collection[SSAValue], machine: Device) -> _Reader | None:
        """None for what is no product of the value and a dense one."""
        if not isinstance(op, GraphOp) or not _may_be_dense(op, value):
            return None
        numbers = [number for number, operand in enumerate(op.operands) if operand is value]
        copy = with_dense(op, numbers, [_stand_in(operand, dense=True) for operand in op.operands])
        found = cls(op, *_on_parts(op, frozen, value, machine), alone_seconds(copy, machine))
        copy.erase()
        return found


def _together(readers: Sequence[_Reader]) -> float:
    shared: dict[Hashable, float] = {}
    for reader in readers:
        shared |= reader.shared
    return sum(reader.own for reader in readers) + sum(shared.values())


def _on_parts(
    op: GraphOp, frozen: Collection[SSAValue], of: SSAValue | None, machine: Device
) -> tuple[float, dict[Hashable, float]]:
    """
    The seconds of the ops over parts that an op becomes, and of those that follow from one operand alone. What follows from
    frozen operands takes none.
    """
    builder, flats = GraphBuilder(), list[Flat]()
    free, alone = set[SSAValue](), set[SSAValue]()
    for operand in op.operands:
        parts = Block(arg_types=part_types(operand.type)).args
        flats.append(parts)
        free.update(parts if operand in frozen else ())
        alone.update(parts if operand is of else ())
    over_parts(op, builder, flats)
    total, shared = 0.0, dict[Hashable, float]()
    for inner in builder.ops:
        if all(operand in free for operand in inner.operands):
            free.update(inner.results)
        elif all(operand in alone for operand in inner.operands):
            alone.update(inner.results)
            shared[(len(shared), inner.name, frozenset(inner.properties.items()))] = alone_seconds(inner, machine)
        else:
            total += alone_seconds(inner, machine)
    return total, shared


def _may_be_dense(op: GraphOp, value: SSAValue) -> bool:
    """Whether an op would give the same on a dense copy, and perhaps sooner."""
    if [*filter(is_stored, dict.fromkeys(op.operands))] != [value]:
        return False
    rule = op.written_rule()
    return rule is not None and rule.may_be_dense and not any(map(is_stored, op.results))


def _stored_values(function: FuncOp) -> list[SSAValue]:
    made = (value for op in function.body.block.ops for value in op.results)
    return [value for value in (*function.body.block.args, *made) if is_stored(value)]


def _from_frozen(function: FuncOp) -> set[SSAValue]:
    """The values that follow from frozen arguments alone."""
    found: set[SSAValue] = {function.body.block.args[number] for number in frozen_arguments(function)}
    for op in function.body.block.ops:
        if op.operands and all(operand in found for operand in op.operands):
            found.update(op.results)
    return found


def _stand_in(value: SSAValue, dense: bool = False) -> SSAValue:
    """Another value of that type, outside of any IR."""
    type_: Attribute = with_encoding(tensor(value), None) if dense and is_stored(value) else value.type
    return Block(arg_types=[type_]).args[0]


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)
