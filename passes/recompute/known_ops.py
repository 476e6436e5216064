"""What is known of graph ops by their structure, so that equal layers and copies of a program are asked about once."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.analysis.bare_ops import is_creation
from fuse_opt.dialects.analysis.storage import aliased_operand, byte_size
from fuse_opt.dialects.fused import RECOMPUTED, directives
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.shapes import shape
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.extents import estimate
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.implementation.costs import alone_seconds


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds of an op as long as its types and attributes stay, whatever it reads."""

    is_view: bool
    """One that moves nothing."""
    is_constant: bool
    is_repeatable: bool
    nbytes: tuple[int | None, ...]
    """Of its results."""


class KnownOps:
    """Answers about ops of one program and its copies: of those with the same properties and types they are the same."""

    def __init__(self) -> None:
        self._numbers: dict[Attribute, int] = {}
        self._number_of: dict[int, tuple[Attribute, int]] = {}
        """By identity, as attributes take long to hash: what keeps it, and its number."""
        self._facts: dict[object, Facts] = {}
        self._seconds: dict[object, float] = {}

    def facts(self, op: Operation) -> Facts:
        """What holds of an op."""
        if op.regions:
            return _facts(op)
        if (found := self._facts.get(key := self._structure(op))) is None:
            found = self._facts[key] = _facts(op)
        return found

    def seconds(self, op: Operation, device: Device) -> float:
        """What an op takes: a loop by its work, a call by what the cheapest implementation says."""
        if op.regions:
            return _work_seconds(op, device)
        if (found := self._seconds.get(key := (device.name, self._structure(op)))) is None:
            found = self._seconds[key] = _work_seconds(op, device)
        return found

    def _structure(self, op: Operation) -> object:
        """An op without what it reads, and what it is computed again for."""
        attributes = {name: value for name, value in op.attributes.items() if name != RECOMPUTED}
        values: Iterable[Attribute] = (*op.properties.values(), *attributes.values())
        types = (*(value.type for value in op.operands), *(value.type for value in op.results))
        names = (op.name, *op.properties, *attributes)
        return (names, len(op.operands), *map(self._number, values), *map(self._number, types))

    def _number(self, attribute: Attribute) -> int:
        if (known := self._number_of.get(id(attribute))) is None:
            number = self._numbers.setdefault(attribute, len(self._numbers))
            known = self._number_of[id(attribute)] = attribute, number
        return known[1]


_KNOWN: ContextVar[KnownOps | None] = ContextVar("fuse_opt_known_ops", default=None)


@contextmanager
def knowing(known: KnownOps | None = None) -> Generator[KnownOps]:
    """Has its body ask about each structure once; without `known` those that an outer one knows are known."""
    known = known or _KNOWN.get() or KnownOps()
    token = _KNOWN.set(known)
    try:
        yield known
    finally:
        _KNOWN.reset(token)


def facts_of(op: Operation) -> Facts:
    """What holds of an op."""
    return _facts(op) if (known := _KNOWN.get()) is None else known.facts(op)


def work_seconds(op: Operation, device: Device) -> float:
    """What an op takes: a loop by its work, a call by what the cheapest implementation says."""
    return _work_seconds(op, device) if (known := _KNOWN.get()) is None else known.seconds(op, device)


def value_bytes(value: SSAValue) -> int | None:
    """Of a value; of sizes about so many, as it is all about profit. None where extents are unknown."""
    found = byte_size(value)
    return None if found is None else estimate(found)


def is_repeatable(op: Operation) -> bool:
    """Whether an op gives the same whenever it is computed, whatever that costs."""
    if not isinstance(op, GraphOp) or _is_constant(op) or directives(op) or len(op.results) != 1:
        return False
    if not isinstance(op, StructuredOp) and (not isinstance(op, OpaqueOp) or op.RUN_BY_CALLER):
        return False
    return all(byte_size(value) is not None for value in (op.results[0], *op.operands))


def _facts(op: Operation) -> Facts:
    return Facts(
        aliased_operand(op) is not None, _is_constant(op), is_repeatable(op), tuple(map(value_bytes, op.results))
    )


def _is_constant(op: Operation) -> bool:
    """Whether an op gives what every kernel may have, from nothing: a number everywhere, or what is kept in memory."""
    if not isinstance(op, GraphOp) or op.operands:
        return False
    return op.stored_value() is not None or is_creation(op)


def _work_seconds(op: Operation, device: Device) -> float:
    if isinstance(op, StructuredOp):
        return device.work_seconds(
            sc.cost(op.body()) * estimate(prod(shape(op.results[0])) * prod(op.reduced_extents()))
        )
    return alone_seconds(op, device) if isinstance(op, GraphOp) else device.launch
