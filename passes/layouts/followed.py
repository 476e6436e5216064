"""What the layouts of a function are worked out from, each answered once: kinds of values, operands that lie as a result does."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import NoneAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.interfaces.layouts import encoding, has_order
from fuse_opt.dialects.interfaces.shapes import is_static, shape, tensor
from fuse_opt.dialects.interfaces.structured_op import FusionKind, StructuredOp
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.dialects.types.index_expr import dimensions


@dataclass(frozen=True, slots=True)
class Kind:
    """What an order of memory depends on of a value; equal types have the same one."""

    number: int
    extents: tuple[int, ...]
    is_static: bool
    has_order: bool
    nbytes: int
    layout: EncodingPart | None


@dataclass(eq=False, frozen=True, slots=True)
class Alike:
    """What ops have in common that differ in nothing but the values that they read."""

    operands: tuple[Kind, ...]
    results: tuple[Kind, ...]
    followed: tuple[int, ...]
    """The operands that lie as the result does; none of an op that is no structured one."""
    ordered: Sequence[int]
    """The operands whose order such an op asks for where it has a say in it: those that it follows, or of an opaque op all."""


def operands_of(op: Operation) -> Sequence[SSAValue]:
    """The operands as they are kept: xDSL's view of them is made anew by each look, which is felt where all ops are looked at."""
    return tuple(op._operands)  # pyright: ignore[reportPrivateUsage]


@dataclass
class Values:
    """The kinds of a function's values, and which operands its ops want in the order of their results."""

    _kinds: dict[int, tuple[Attribute, Kind]] = field(default_factory=dict[int, tuple[Attribute, Kind]])
    """By the identity of a type, which lives as long as it is here."""
    _of_type: dict[Hashable, Kind] = field(default_factory=dict[Hashable, Kind])
    _laid_out: dict[tuple[int, int], tuple[TensorType[Attribute] | None, EncodingPart]] = field(
        default_factory=dict[tuple[int, int], "tuple[TensorType[Attribute] | None, EncodingPart]"]
    )
    """By the identities of a type and of a layout, which live as long as they are here; and by kind, a number below 0."""
    _alike: dict[Hashable, Alike] = field(default_factory=dict[Hashable, Alike])
    """By the op's own key, and by one of identities, which is made faster."""

    def kind(self, value: SSAValue) -> Kind:
        there = value.type
        if (known := self._kinds.get(id(there))) is not None:
            return known[1]
        type_, extents = tensor(value), shape(value)
        encoded = None if isinstance(type_.encoding, NoneAttr) else type_.encoding
        key = extents, type_.element_type, encoded  # the type, in what is hashed fast
        if (found := self._of_type.get(key)) is None:
            nbytes = byte_size(value) or 0
            found = Kind(len(self._of_type), extents, is_static(value), has_order(extents), nbytes, encoding(value))
            self._of_type[key] = found
        self._kinds[id(there)] = there, found
        return found

    def laid_out(self, value: SSAValue, layout: EncodingPart) -> TensorType[Attribute] | None:
        """
        The value's type with its elements in other places, one object for values of equal types; None where these have no order.
        """
        if (known := self._laid_out.get(quick := (id(value.type), id(layout)))) is not None:
            return known[0]
        kind = self.kind(value)  # which keeps the type
        if (found := self._laid_out.get(key := (-1 - kind.number, id(layout)))) is None:
            found = self._laid_out[key] = with_encoding(tensor(value), layout) if kind.has_order else None, layout
        self._laid_out[quick] = found
        return found[0]

    def key(self, op: Operation) -> Hashable:
        """Equal for ops that differ in nothing but the values that they read."""
        kinds = tuple([self.kind(value).number for value in (*op.operands, *op.results)])
        return type(op), kinds, frozenset(op.properties.items()) if op.properties else None

    def alike(self, op: Operation, operands: Sequence[SSAValue]) -> Alike:
        """What the op, which has these operands, has in common with others."""
        # all that is named by its identity is kept by `_kinds` or lives as long as the op does
        quick = None
        if not op.properties:
            values = (*operands, *op.results)
            quick = type(op), *[id(value._type) for value in values]  # pyright: ignore[reportPrivateUsage]
            if (known := self._alike.get(quick)) is not None:
                return known
        if (found := self._alike.get(key := self.key(op))) is None:
            found = self._alike[key] = self._described(op)
        if quick is not None:
            self._alike[quick] = found
        return found

    def _described(self, op: Operation) -> Alike:
        operands, results = (tuple(map(self.kind, values)) for values in (op.operands, op.results))
        if not isinstance(op, StructuredOp):
            return Alike(operands, results, (), range(len(operands)))
        followed = self.followed(op)
        return Alike(operands, results, followed, followed)

    def followed(self, op: StructuredOp) -> tuple[int, ...]:
        """
        The operands that lie as the result does, whose axes are the result's one by one: of pointwise ops those of its shape,
        of windows and of what keeps reduced axes all of its rank. None where the op looks at axes in another way.
        """
        if not op.operands or len(op.results) != 1 or op.stored_value() is not None:
            return ()
        return self._worked_out(op)

    def _worked_out(self, op: StructuredOp) -> tuple[int, ...]:
        kinds, result = [self.kind(value) for value in op.operands], self.kind(op.results[0])
        if not all(kind.is_static for kind in (*kinds, result)) or not result.has_order:
            return ()
        extents = result.extents
        if op.fusion_kind() <= FusionKind.BROADCAST:
            return tuple(number for number, kind in enumerate(kinds) if kind.extents == extents)
        index, inner = dimensions("i", extents), dimensions("c", op.reduced_extents())
        reduced = frozenset(dim for expression in inner for dim in expression.dims())
        found: list[int] = []
        for number, kind in enumerate(kinds):
            source = op.operand_index(number, index, inner)
            if len(source) != len(extents):
                return ()
            if not all(i.dims() <= own.dims() | reduced for i, own in zip(source, index, strict=True)):
                return ()
            if kind.has_order:
                found.append(number)
        return tuple(found)
