"""Ops that state a scalar meaning and index maps: what fusion, in-place, NumPy value and C text are derived from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, ClassVar, TypeAlias

from xdsl.dialects.builtin import DYNAMIC_INDEX
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.interfaces.layouts import (
    address,
    any_stored,
    encoding,
    has_order,
    inherited_order,
    refuse_encodings,
    shared_encoding,
)
from fuse_opt.dialects.interfaces.op import ErrorBound, GraphBuilder, GraphOp
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    are_sizes_asked_for,
    dtype,
    is_static,
    shape,
    storage_error,
    tensor,
)
from fuse_opt.dialects.interfaces.stored_rules import StoredRule, pointwise_rule, reduction_rule, view_rule
from fuse_opt.dialects.types.dtypes import BOOL, DType
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.dialects.types.index_expr import Index, IndexExpr, constant, dimensions
from fuse_opt.dialects.types.size import Extent


class FusionKind(IntEnum):
    """How an op's result depends on its operands, from easy to impossible to fuse."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OPAQUE = 4


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A result that is an operand but for a box of elements, which another operand has: where that begins, by axis."""

    operand: int
    elements: int
    starts: tuple[Extent | IndexExpr, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """A result that is an operand with more elements behind it, along an axis."""

    operand: int
    axis: int
    in_room: Callable[[GraphBuilder, SSAValue], tuple[SSAValue, SSAValue]]
    """From a buffer that begins with the operand and has room: the buffer with all elements, and these alone."""


class StructuredOp(GraphOp):
    """One result, each element of which is a scalar function of one element of each operand, or a reduction of such."""

    COMBINE: ClassVar[str] = ""
    """The primitive that combines the elements of a reduction; empty when there is none."""

    @abstractmethod
    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        """Where `operand` is read for the result element at `index` (and, in a reduction, the element at `reduced`)."""

    def operand_indices(self, index: Index, reduced: Index) -> Iterator[Index]:
        """That of every operand, in order; an op of many may tell them in a pass over these."""
        return (self.operand_index(number, index, reduced) for number in range(len(self._operands)))

    @abstractmethod
    def scalar(self, *operands: Any, **_: Any) -> sc.Scalar:
        """The scalar meaning, over one `Scalar` for each operand, in the operands' compute types."""

    def reduced_extents(self) -> tuple[int, ...]:
        """The extents of the reduced dimensions, outermost first."""
        return ()

    def growth(self) -> Growth | None:
        """Says that the result is an operand with more behind it, where sizes are asked for."""
        return None

    def initial(self) -> int | float | bool:
        """The value of an empty reduction, neutral to COMBINE."""
        raise self.error("is no reduction")

    def overwritten(self) -> Overwritten | None:
        """What in place is left to write; None where it is all."""
        return None

    def body(self) -> sc.Scalar:
        """The traced scalar meaning; the same object for equal operand types and properties."""
        near, what = self._facts()
        if (held := _HELD.get(near)) is not None:
            return held[1]
        found = self._body(what[: len(self._operands)])
        if len(_HELD) >= _REMEMBERED:
            _HELD.clear()
        _HELD[near] = what, found
        return found

    def _facts(self, *more: Attribute) -> tuple[tuple[object, ...], tuple[Attribute, ...]]:
        """A key for what follows from the operands' types, the properties and `more`, and what it has the ids of."""
        properties, types = self.properties, [value.type for value in self._operands]
        what = (*types, *properties.values(), *more)
        return (type(self), are_sizes_asked_for(), len(types), *properties, *map(id, what)), what

    def _body(self, operand_types: tuple[Attribute, ...]) -> sc.Scalar:
        key = (type(self), are_sizes_asked_for(), operand_types, frozenset(self.properties.items()))
        if (found := _BODIES.get(key)) is None:
            operands = (sc.operand(k, dtype(value).compute) for k, value in enumerate(self._operands))
            found = _BODIES[key] = self.scalar(*operands)
        return found

    def refuse_arithmetic(self) -> None:
        kept = {k: dtype(value) for k, value in enumerate(self._operands) if dtype(value).storage_only}
        body = self.body()
        if (primitive := sc.primitive_reading(body, set(kept), self.COMBINE)) is not None:
            raise storage_error(next(iter(kept.values())), f"'{primitive}' computes with it")

    def carried_encoding(self, type_: AnyTensor) -> EncodingPart | None:
        """That of operands as large as a pointwise result; of other results the order in which an operand's axes lie."""
        extents = type_.get_shape()
        if DYNAMIC_INDEX in extents or not all(map(is_static, self._operands)):
            return None
        index = dimensions("i", extents)
        inner = dimensions("c", self.reduced_extents()) if self.COMBINE else ()
        sources = list(self.operand_indices(index, inner))
        if self._is_pointwise(sources, index):
            return shared_encoding(self._operands, extents)
        known = [pair for pair in zip(self._operands, sources, strict=True) if encoding(pair[0]) is not None]
        return inherited_order(*known[0], index) if known else None

    def _is_pointwise(self, sources: Sequence[Index], index: Index) -> bool:
        read = zip(sources, self._operands, strict=True)
        return not self.COMBINE and all(_is_broadcast(source, index, shape(value)) for source, value in read)

    def check_encodings(self) -> None:
        """Any of dense values: loops go through memory as a result lies there. Those of a pointwise op must agree."""
        values = (*self._operands, *self.results)
        if not self._operands:
            refuse_encodings(values)
        if self.COMBINE or not all(map(is_static, values)):
            return
        (result,) = self.results
        index = dimensions("i", shape(result))
        if not self._is_pointwise(list(self.operand_indices(index, ())), index):
            return
        expected = shared_encoding(self._operands, shape(result))
        is_given = has_order(shape(result)) and any(shape(value) == shape(result) for value in self._operands)
        if is_given and encoding(result) != expected:
            wanted = with_encoding(tensor(result), expected)
            raise VerifyException(
                f"result 0: expected '{wanted}', in the order of its operands, got '{result.type}'; "
                "convert it behind by graph.to_layout"
            )

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        """Derived: of what is pointwise, a sum, or a view of a matrix."""
        if not all(map(is_static, self._operands)) or not any_stored(self._operands):
            return None
        (type_,) = self.infer_types()
        index, inner = dimensions("i", type_.get_shape()), dimensions("r", self.reduced_extents())
        sources = list(self.operand_indices(index, inner))
        if self._is_pointwise(sources, index):
            return pointwise_rule(self.body(), self._operands, with_encoding(type_, None), fast, constant_of)
        if len(self._operands) != 1:
            return None
        (x,), (source,) = self._operands, sources
        if self.COMBINE == "add":
            return reduction_rule(self.body(), x, type_, source, inner, constant_of)
        return view_rule(x, type_, source, index) if self.body().function == "operand" else None

    def error_bound(self) -> ErrorBound:
        """Unless stated: what the primitives allow, each on the exact values of the ones before, no error amplified."""
        if self.stored_value() is not None:
            return ErrorBound()
        return ErrorBound(sc.ulps(self.body()) if self.ULPS is None else self.ULPS, self.SLACK)

    def result_dtype(self) -> DType:
        """i1 for predicates, otherwise the type of the first operand that the scalar meaning has the type of."""
        computed = self.body().dtype
        if computed is BOOL:
            return BOOL
        return next((d for d in map(dtype, self._operands) if d.compute is computed), computed)

    def fusion_kind(self) -> FusionKind:
        """Derived from the index maps."""
        if self.COMBINE:
            return FusionKind.REDUCTION
        near, what = self._facts(self.results[0].type)
        if (held := _KINDS.get(near)) is not None:
            return held[1]
        if len(_KINDS) >= _REMEMBERED:
            _KINDS.clear()
        found = self._kind()
        _KINDS[near] = what, found
        return found

    def _kind(self) -> FusionKind:
        """That of an op that is no reduction."""
        index = dimensions("i", shape(self.results[0]))
        kind = FusionKind.ELEMENTWISE
        for source, value in zip(self.operand_indices(index, ()), self._operands, strict=True):
            if source == index:
                continue
            if not _is_broadcast(source, index, shape(value)):
                return FusionKind.INJECTIVE
            kind = FusionKind.BROADCAST
        return kind

    def is_view(self) -> bool:
        """Whether the result is operand 0 read at other indices, with no arithmetic."""
        body = self.body()
        return body.function == "operand" and not self.COMBINE and dtype(self.results[0]) is dtype(self._operands[0])

    def widens(self) -> bool:
        """Whether the result is operand 0 element for element, in the wider type in which its elements are computed."""
        if self.COMBINE or len(self._operands) != 1 or self.body().function != "operand":
            return False
        given = dtype(self._operands[0])
        return given.is_float and dtype(self.results[0]) is given.compute

    def is_alias(self) -> bool:
        """Whether the result is operand 0 element for element in memory: a view that moves nothing."""
        if len(self._operands) != 1 or not self.is_view():
            return False
        types = (self._operands[0].type, self.results[0].type)
        key = (type(self), are_sizes_asked_for(), types, frozenset(self.properties.items()))
        if (found := _ALIASES.get(key)) is None:
            found = _ALIASES[key] = self._shares_memory()
        return found

    def _shares_memory(self) -> bool:
        source, result = shape(self._operands[0]), shape(self.results[0])
        if prod(source) != prod(result):
            return False
        if not prod(result):
            return True
        index = dimensions("i", result)
        return address(self._operands[0], self.operand_index(0, index, ())) == address(self.results[0], index)


def constant_of(value: SSAValue) -> sc.Scalar | None:
    """The number that an op gives everywhere in a value, from nothing; None for another value."""
    op = value.owner
    if not isinstance(op, StructuredOp) or op.operands or op.stored_value() is not None:
        return None
    return body if (body := op.body()).function == "constant" else None


_Facts: TypeAlias = tuple[type[StructuredOp], bool, tuple[Attribute, ...], frozenset[tuple[str, Attribute]]]
"""All that an answer depends on: the kind of op, whether sizes are asked for, types and properties."""
_BODIES: dict[_Facts, sc.Scalar] = {}
_HELD: dict[tuple[object, ...], tuple[tuple[Attribute, ...], sc.Scalar]] = {}
"""The same by the ids of types and properties, which take their time to hash; they are held, so that the ids stay theirs."""
_KINDS: dict[tuple[object, ...], tuple[tuple[Attribute, ...], FusionKind]] = {}
_REMEMBERED = 1 << 12
_ALIASES: dict[_Facts, bool] = {}


def _is_broadcast(source: Index, index: Index, source_shape: Sequence[int]) -> bool:
    """Whether `source` is the trailing part of `index` with some positions replaced by 0."""
    if len(source) > len(index):
        return False
    trailing = index[len(index) - len(source) :]
    zero = constant(0)
    return all(s == i or (s == zero and n == 1) for s, i, n in zip(source, trailing, source_shape, strict=True))
