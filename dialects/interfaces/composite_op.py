"""Ops that state their decomposition into others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, Block, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.interfaces.layouts import any_encoded, encoding
from fuse_opt.dialects.interfaces.op import GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    are_sizes_asked_for,
    dtype,
    is_static,
    shape,
    storage_error,
    tensor,
)
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding


@dataclass(frozen=True)
class Expansion:
    """A decomposition of a composite in a block of its own: the arguments stand for the operands."""

    block: Block
    results: tuple[SSAValue, ...]


class CompositeOp(GraphOp):
    """Defined by its decomposition into other graph ops."""

    def expansion(self) -> Expansion:
        """
        The decomposition; the same object for equal operand types and properties, not to be changed. It is on operands in
        row-major order where it cannot be on operands that lie as they do.
        """
        operand_types = tuple(value.type for value in self._operands)
        key = (type(self), are_sizes_asked_for(), operand_types, frozenset(self.properties.items()))
        if (found := _EXPANSIONS.get(key)) is None:
            found = _EXPANSIONS[key] = self._expanded(operand_types)
        return found

    def _expanded(self, operand_types: Sequence[Attribute]) -> Expansion:
        is_encoded = any_encoded(self._operands)
        try:
            return self._expanded_on(operand_types)
        except VerifyException:
            if not is_encoded:
                raise
        return self._expanded_on([with_encoding(tensor(value), None) for value in self._operands])

    def _expanded_on(self, operand_types: Sequence[Attribute]) -> Expansion:
        block = Block(arg_types=operand_types)
        builder = GraphBuilder()
        stand_in = self.clone()
        stand_in.operands = block.args
        results = tuple(stand_in.decompose(builder))
        stand_in.erase()
        block.add_ops(builder.ops)
        return Expansion(block, results)

    def carried_encoding(self, type_: AnyTensor) -> EncodingPart | None:
        """That of the first operand, for a result of its shape."""
        first = self._operands[0]
        return encoding(first) if shape(first) == type_.get_shape() else None

    def check_encodings(self) -> None:
        """Any of dense values: they are converted where the decomposition needs that."""

    def refuse_arithmetic(self) -> None:
        """Its ops may move elements of a storage type; a conversion to another one is there to compute with them."""
        if not all(is_static(value) for value in self.operands):
            return  # it may have no expansion yet
        for op in self.expansion().block.ops:  # which are checked where they are built
            kept = [dtype(value) for value in op.operands if dtype(value).storage_only]
            if kept and not any(dtype(value).storage_only for value in op.results):
                raise storage_error(kept[0], "it is computed with")

    @abstractmethod
    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        """Builds the ops that give the same results; returns a value for each result."""


_EXPANSIONS: dict[
    tuple[type[CompositeOp], bool, tuple[Attribute, ...], frozenset[tuple[str, Attribute]]], Expansion
] = {}
