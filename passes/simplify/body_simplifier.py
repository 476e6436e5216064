"""What an elementwise op becomes by the algebra of scalar bodies: of its own, or joined with that of an op it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from xdsl.ir import SSAValue

from fuse_opt.dialects.fused import directives
from fuse_opt.dialects.graph.materialize import computed, filled
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import dtype, is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.scalar import PRIMITIVES, Scalar, constant, cost, operand, topological
from fuse_opt.dialects.scalar.evaluate import converted, known
from fuse_opt.dialects.scalar.simplify import may_reassociate, simplified
from fuse_opt.dialects.types.encodings import with_encoding

_Shape: TypeAlias = tuple[object, ...]
"""What decides how a body simplifies: the body itself, and which operands are equal, constant or bodies themselves."""


@dataclass
class _Leaves:
    """The values that a body is over, each once."""

    values: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])

    def of(self, value: SSAValue) -> tuple[Scalar, object]:
        """What stands for a value in a body, and what decides about it."""
        if (known_number := _splat(value)) is not None:
            return known_number, (known_number.dtype.name, repr(known_number.value))
        number = self.values.setdefault(value, len(self.values))
        return operand(number, dtype(value).compute), number


class BodyAlgebra:
    """Finds simpler ops for the ops of a module; remembers what it found about bodies."""

    def __init__(self, fast: bool) -> None:
        self._fast = fast
        self._known: dict[_Shape, Scalar | None] = {}

    def simpler(self, op: StructuredOp) -> SSAValue | None:
        """A value that equals the op's result, of ops that are not in the IR yet; None when no rule applies."""
        if (value := self._own(op)) is not None:
            return value
        body = op.body()
        if not _is_word(body):
            return None
        for producer in dict.fromkeys(value.owner for value in op.operands):
            if not isinstance(producer, StructuredOp) or not producer.operands or producer.COMBINE:
                continue
            inner = producer.body()
            if not may_reassociate(body, inner, self._fast) or not _may_be_joined(producer, inner, op):
                continue
            if (value := self._joined(op, producer)) is not None:
                return value
        return None

    def _own(self, op: StructuredOp) -> SSAValue | None:
        leaves = _Leaves()
        given = [leaves.of(value) for value in op.operands]
        if not leaves.values:
            return None  # to be evaluated, not rearranged
        found = self._simplified((op.body(), *(key for _, key in given)), op.body(), [leaf for leaf, _ in given])
        return None if found is None else self._value(op, found, list(leaves.values), 1, cost(op.body()))

    def _joined(self, op: StructuredOp, producer: StructuredOp) -> SSAValue | None:
        leaves = _Leaves()
        inner = [leaves.of(value) for value in producer.operands]
        whole = _substituted(producer.body(), [leaf for leaf, _ in inner])
        key = (producer.body(), *(key for _, key in inner))
        joined = producer.results[0]
        given = [(whole, key) if value is joined else leaves.of(value) for value in op.operands]
        found = self._simplified((op.body(), *(key for _, key in given)), op.body(), [leaf for leaf, _ in given])
        if found is None:
            return None
        dies = all(use.operation is op for use in joined.uses)
        budget = cost(op.body()) + (cost(producer.body()) if dies else 0)
        return self._value(op, found, list(leaves.values), 2 if dies else 1, budget)

    def _simplified(self, key: _Shape, body: Scalar, leaves: Sequence[Scalar]) -> Scalar | None:
        if key not in self._known:
            self._known[key] = simplified(body, leaves, self._fast)
        return self._known[key]

    def _value(
        self, op: StructuredOp, body: Scalar, values: Sequence[SSAValue], count: int, budget: int
    ) -> SSAValue | None:
        """The value of a simpler body in place of the op's result, when few enough ops compute it there."""
        result = op.results[0]
        if not _broadcasts(op) or not _shape_is_kept(op, body, values):
            return None
        if body.function == "operand":
            kept = values[int(body.value)]
            return kept if kept.type == result.type else None
        if body.function == "constant":
            if not is_static(result):
                return None
            plain = with_encoding(tensor(result), None)  # constants are in row-major order
            return filled(converted(known(body), dtype(result)), plain).results[0]
        if cost(body) > budget:
            return None
        builder = computed(body, values, exact=not self._fast)
        if builder is None:
            return None
        made = builder.ops[-1].results[0]
        if made.type != result.type or sum(bool(each.operands) for each in builder.ops) > count:
            builder.discard()
            return None
        return made


def _splat(value: SSAValue) -> Scalar | None:
    """The number that a value is everywhere."""
    owner = value.owner
    if not isinstance(owner, StructuredOp) or owner.operands or owner.stored_value() is not None:
        return None
    body = owner.body()
    if body.function != "constant":
        return None
    number, element = known(body), dtype(value)
    return constant(number if element is body.dtype else converted(number, element), body.dtype)


def _is_word(body: Scalar) -> bool:
    """Whether a body is one primitive on operands and constants."""
    return bool(body.args) and all(arg.function in ("operand", "constant") for arg in body.args)


def _may_be_joined(producer: StructuredOp, body: Scalar, op: StructuredOp) -> bool:
    """Whether reading around the producer rounds no less often."""
    element = dtype(producer.results[0])
    if producer.parent is not op.parent or directives(producer) or not _is_word(body) or not _broadcasts(producer):
        return False
    return element.compute is element or (body.function != "cast" and PRIMITIVES[body.function].ulps == 0)


def _broadcasts(op: StructuredOp) -> bool:
    """Whether the operands are read as NumPy broadcasts them, and nothing depends on the position."""
    if any(node.function == "index" for node in topological(op.body())):
        return False
    return not op.is_view() and op.fusion_kind() <= FusionKind.BROADCAST


def _shape_is_kept(op: StructuredOp, body: Scalar, values: Sequence[SSAValue]) -> bool:
    """Whether operands that the simpler body does not read may be left out: they could give unknown extents their size."""
    if is_static(op.results[0]):
        return True
    read = {values[int(node.value)] for node in topological(body) if node.function == "operand"}
    left_out = [value for value in (*values, *op.operands) if value not in read]
    return all(is_static(value) and prod(shape(value)) == 1 for value in left_out if not _is_inner(value, read))


def _is_inner(value: SSAValue, read: set[SSAValue]) -> bool:
    """Whether an operand is computed from values that are all read still."""
    owner = value.owner
    if not isinstance(owner, GraphOp) or not owner.operands:
        return False
    return all(inner in read or (is_static(inner) and prod(shape(inner)) == 1) for inner in owner.operands)


def _substituted(body: Scalar, leaves: Sequence[Scalar]) -> Scalar:
    done: dict[int, Scalar] = {}
    for node in topological(body):
        if node.function == "operand":
            done[id(node)] = leaves[int(node.value)]
        else:
            done[id(node)] = Scalar(node.function, tuple(done[id(arg)] for arg in node.args), node.dtype, node.value)
    return done[id(body)]
