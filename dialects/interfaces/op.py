"""Bases of the ops: what an op states about itself, and what is derived from it.

A record is one class. It states its operands and properties, how its result type follows from them, and either its
scalar meaning with index maps (`StructuredOp`), its decomposition (`CompositeOp`), or nothing more (`OpaqueOp`). Fusion
kind, in-place candidates, NumPy value, C and CUDA text are derived; passes and backends see these bases only. An op of
another dialect that derives from one of them is fused, planned and lowered like ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr
from xdsl.ir import Attribute, Block, OpResult, SSAValue, SSAValues
from xdsl.irdl import IRDLOperation, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.interfaces.contraction import Contraction
from fuse_opt.dialects.interfaces.layouts import (
    address,
    any_encoded,
    any_stored,
    check_encoding,
    check_stored,
    encoded,
    encoding,
    has_order,
    inherited_order,
    refuse_encodings,
    shared_encoding,
)
from fuse_opt.dialects.interfaces.shapes import (
    AnyTensor,
    are_sizes_asked_for,
    dtype,
    has_sizes,
    is_static,
    shape,
    sizes_asked_for,
    tensor,
)
from fuse_opt.dialects.interfaces.stored_rules import StoredRule, pointwise_rule, reduction_rule, view_rule
from fuse_opt.dialects.interfaces.window_contraction import WindowContraction
from fuse_opt.dialects.types import symbolic_shape
from fuse_opt.dialects.types.dtypes import BOOL, DType
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.dialects.types.index_expr import Index, constant, dimensions


class FusionKind(IntEnum):
    """How an op's result depends on its operands, from easy to impossible to fuse."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OPAQUE = 4


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """How far from the exact value a result may be on any backend, when the exact value is finite.

    `ulps` units in the last place of the result, and `slack` epsilons of its type times the largest magnitude among the
    finite operand elements, the exact results and 1. Both 0: the exact value rounded once, bit for bit.
    """

    ulps: float = 0.0
    slack: float = 0.0


class GraphOp(IRDLOperation, ABC):
    """An op on tensors, without effects. Text: operands, attribute dictionary, function type."""

    traits = traits_def(Pure())

    __hash__ = object.__hash__  # xDSL's, by identity as well, is a call of Python for each look into a table

    ULPS: ClassVar[float | None] = None
    """`ErrorBound.ulps` where it does not follow from the primitives of the scalar meaning."""
    SLACK: ClassVar[float] = 0.0
    """`ErrorBound.slack`, for what cancels or adds many rounding errors up."""

    ACCEPTS_STORAGE: ClassVar[bool] = False
    """States that operands of storage types (`DType.storage_only`) are only moved or converted, where it is not derived."""

    @abstractmethod
    def infer_types(self) -> Sequence[AnyTensor]:
        """The result types that follow from operands and properties; raises VerifyException when none does.

        Serves the builder, the verifier and shape refinement alike. Dimensions may be dynamic.
        """

    def elements_touched(self) -> Sequence[int | None]:
        """
        By operand, then by result, how many elements a run reads or writes at most; None where all. Empty says all of all.
        Where the first result has a number, they hold if that overwrites the first operand.
        """
        return ()

    @classmethod
    def build_op(cls, *operands: SSAValue, **properties: Attribute) -> Self:
        """An op with inferred result types; raises VerifyException as `infer_types` does."""
        op = cls.create(operands=operands, properties=properties)
        try:
            op._set_result_types(op.known_types())
            op.check_storage_types()
        except Exception:
            op.erase()  # or the operands would count it among their users
            raise
        return op

    def on_types(self, types: Sequence[Attribute]) -> Self:
        """The same op outside of any IR, on operands of other types; raises VerifyException when they do not fit."""
        block = Block(arg_types=types)
        copy = self.clone(dict(zip(self._operands, block.args, strict=False)))
        copy.operands = block.args  # an operand that occurs twice has two types here
        known = zip(copy.known_types(), self.results, strict=True)
        copy._set_result_types([encoded(type_, encoding(result)) for type_, result in known])
        return copy

    def known_types(self) -> Sequence[AnyTensor]:
        """
        The result types that follow, with sizes where operands have them. What a rule asks of sizes may have no answer that holds
        for all of them: then the types that follow from operands without them. Raises VerifyException as `infer_types` does.
        """
        if any(has_sizes(value) for value in self._operands):
            try:
                with sizes_asked_for():
                    return self.infer_types()
            except (TypeError, VerifyException):
                pass
        return self.infer_types()

    def _set_result_types(self, types: Sequence[AnyTensor]) -> None:
        """Results of these types, with the encodings that operands hand on."""
        self.results = SSAValues(OpResult(type_, self, number) for number, type_ in enumerate(types))
        if any_encoded(self._operands):
            laid_out = self.encoded_types()
            self.results = SSAValues(OpResult(type_, self, number) for number, type_ in enumerate(laid_out))
            self._check_all_encodings()

    def encoded_types(self) -> Sequence[AnyTensor]:
        """The types that follow from operands and properties, with the encodings that operands hand on; the op has results."""
        types = self.known_types()
        if not any_encoded(self._operands):
            return types
        if any_stored(self._operands):
            rule = self.stored_rule()
            return tuple(with_encoding(type_, None) for type_ in types) if rule is None else rule.results
        return tuple(encoded(type_, self.carried_encoding(type_)) for type_ in types)

    def carried_encoding(self, type_: AnyTensor) -> EncodingPart | None:
        """How a result of an inferred type lies in memory, by how operands do. Raises VerifyException where they differ."""
        return None

    def check_encodings(self) -> None:
        """Raises VerifyException for encodings of operands or results that the op cannot take; here of all."""
        refuse_encodings((*self.operands, *self.results))

    def _check_all_encodings(self) -> None:
        if any_stored((*self._operands, *self.results)):
            rule = self.written_rule()
            types = [with_encoding(type_, None) for type_ in self.infer_types()] if rule is None else rule.results
            check_stored(self.results, self._operands, types, rule is not None and rule.any_capacity)
        else:
            self.check_encodings()

    def stored_rule(self, fast: bool = False) -> StoredRule | None:
        """
        How the op runs on operands of storage kinds as they are, or gives results of the kinds that are written; None where
        it takes dense operands only. With `fast` what else it reads is taken to be finite.
        """
        return None

    def written_rule(self) -> StoredRule | None:
        """The rule by which the op gives its results as they are written: those of storage kinds are a person's decision."""
        return self.stored_rule(fast=any_stored(self.results))

    def verify_(self) -> None:
        try:
            for value in (*self.operands, *self.results):
                dtype(value)
                check_encoding(value)
            expected = self.known_types()
            self.check_storage_types()
            if any_encoded((*self._operands, *self.results)):
                self._check_all_encodings()
        except VerifyException as error:
            raise self.error(str(error)) from error
        except sc.ScalarTypeError as error:
            given = ", ".join(str(value.type) for value in self.operands)
            message = f"operands ({given}): {error}; expected one element type that it accepts, insert graph.astype"
            raise self.error(message) from error
        for number, (result, type_) in enumerate(zip(self.results, expected, strict=True)):
            if result.type != type_ and not _refines(tensor(result), type_):
                raise self.error(f"result {number}: expected '{type_}' as its operands give, got '{result.type}'")

    def check_storage_types(self) -> None:
        """Raises VerifyException where storage types are computed with."""
        if not self.ACCEPTS_STORAGE and any(dtype(value).storage_only for value in self.operands):
            self.refuse_arithmetic()

    @abstractmethod
    def refuse_arithmetic(self) -> None:
        """Raises VerifyException when the op computes with operands of storage types, instead of moving them."""

    def error(self, message: str) -> VerifyException:
        """An error about the op, which the message begins with."""
        name = f"'{self.name}' "
        return VerifyException(name + message.removeprefix(name))

    def error_bound(self) -> ErrorBound:
        """The documented tolerance, the same for every backend."""
        return ErrorBound(self.ULPS or 0.0, self.SLACK)

    def stored_value(self) -> DenseIntOrFPElementsAttr | None:
        """The elements of a constant that has to be kept in memory, else None."""
        return None

    def canonical(self) -> GraphOp | None:
        """A simpler op with the same result, or None; it and those that compute its operands are not yet in the IR."""
        return None

    def relaxed(self) -> GraphOp | None:
        """The same where floats may be taken for real numbers: with another rounding, without NaN and infinities."""
        return None

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":", f" in '{cls.name}', after the operands and attributes, before the function type")
        position = parser.pos
        type_ = parser.parse_function_type()
        names = cls.get_irdl_definition().properties
        return cls.create(
            operands=parser.resolve_operands(operands or (), type_.inputs.data, position),
            result_types=type_.outputs.data,
            properties={name: value for name, value in attributes.items() if name in names},
            attributes={name: value for name, value in attributes.items() if name not in names},
        )

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            printer.print_list(self.operands, printer.print_ssa_value)
        if self.properties or self.attributes:
            printer.print_string(" ")
            printer.print_attr_dict({**self.properties, **self.attributes})
        printer.print_string(" : ")
        printer.print_function_type([value.type for value in self.operands], [value.type for value in self.results])


class StructuredOp(GraphOp):
    """One result, each element of which is a scalar function of one element of each operand, or a reduction of such."""

    COMBINE: ClassVar[str] = ""
    """The primitive that combines the elements of a reduction; empty when there is none."""

    @abstractmethod
    def operand_index(self, operand: int, index: Index, reduced: Index) -> Index:
        """Where `operand` is read for the result element at `index` (and, in a reduction, the element at `reduced`)."""

    @abstractmethod
    def scalar(self, *operands: Any, **_: Any) -> sc.Scalar:
        """The scalar meaning, over one `Scalar` for each operand, in the operands' compute types."""

    def reduced_extents(self) -> tuple[int, ...]:
        """The extents of the reduced dimensions, outermost first."""
        return ()

    def initial(self) -> int | float | bool:
        """The value of an empty reduction, neutral to COMBINE."""
        raise self.error("is no reduction")

    def body(self) -> sc.Scalar:
        """The traced scalar meaning; the same object for equal operand types and properties."""
        operand_types = tuple(value.type for value in self._operands)
        key = (type(self), are_sizes_asked_for(), operand_types, frozenset(self.properties.items()))
        if (found := _BODIES.get(key)) is None:
            operands = (sc.operand(k, dtype(value).compute) for k, value in enumerate(self._operands))
            found = _BODIES[key] = self.scalar(*operands)
        return found

    def refuse_arithmetic(self) -> None:
        kept = {k: dtype(value) for k, value in enumerate(self._operands) if dtype(value).storage_only}
        body = self.body()
        if (primitive := sc.primitive_reading(body, set(kept), self.COMBINE)) is not None:
            raise _storage_error(next(iter(kept.values())), f"'{primitive}' computes with it")

    def carried_encoding(self, type_: AnyTensor) -> EncodingPart | None:
        """That of operands as large as a pointwise result; of other results the order in which an operand's axes lie."""
        extents = type_.get_shape()
        if DYNAMIC_INDEX in extents or not all(map(is_static, self._operands)):
            return None
        index = dimensions("i", extents)
        inner = dimensions("c", self.reduced_extents()) if self.COMBINE else ()
        sources = [self.operand_index(number, index, inner) for number in range(len(self._operands))]
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
        if not self._is_pointwise([self.operand_index(k, index, ()) for k in range(len(self._operands))], index):
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
        sources = [self.operand_index(number, index, inner) for number in range(len(self._operands))]
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
        index = dimensions("i", shape(self.results[0]))
        kind = FusionKind.ELEMENTWISE
        for number, value in enumerate(self._operands):
            source = self.operand_index(number, index, ())
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


_BODIES: dict[tuple[type[StructuredOp], bool, tuple[Attribute, ...], frozenset[tuple[str, Attribute]]], sc.Scalar] = {}


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
                raise _storage_error(kept[0], "it is computed with")

    @abstractmethod
    def decompose(self, builder: GraphBuilder) -> Sequence[SSAValue]:
        """Builds the ops that give the same results; returns a value for each result."""


_EXPANSIONS: dict[
    tuple[type[CompositeOp], bool, tuple[Attribute, ...], frozenset[tuple[str, Attribute]]], Expansion
] = {}


class OpaqueOp(GraphOp):
    """Run by an implementation as a whole; never inlined, never in place unless its implementation says so."""

    RUN_BY_CALLER: ClassVar[bool] = False
    """States that who calls the program runs the op between its steps, so that it stays in the function that is called."""

    TAKES_ORDERS: ClassVar[bool] = False
    """States that operands and results may lie in memory in any order; it is implementations that take some of them."""

    def check_encodings(self) -> None:
        """All are refused where the op does not say that it takes orders."""
        if not self.TAKES_ORDERS:
            refuse_encodings((*self._operands, *self.results))

    def as_reads(self, builder: GraphBuilder) -> SSAValue | None:
        """
        The only result by ops for which code is generated, where all that the op does is to read at positions that are data;
        these are checked before. None where it does more; the shapes are known.
        """
        return None

    def contraction(self) -> Contraction | None:
        """The product of its first two operands that its only result is, for generated code; None where it is none."""
        return None

    def window_contraction(self) -> WindowContraction | None:
        """The convolution of its first operand by its second one that its only result is; None where it is none."""
        return None

    def weight_gradient(self) -> WindowContraction | None:
        """
        The convolution whose gradient by its weight the only result is, from that by its result and from its input, the first
        two operands; None where it is none.
        """
        return None

    def input_gradient(self) -> WindowContraction | None:
        """
        The convolution whose gradient by its input the only result is, from that by its result and from its weight, the first
        two operands; None where it is none.
        """
        return None

    def scaled_axes(self) -> tuple[int, int] | None:
        """
        An axis of the second operand and one of the only result such that who multiplies the operand along its axis multiplies
        the result along the other; None where there are none.
        """
        return None

    def refuse_arithmetic(self) -> None:
        kept = next(dtype(value) for value in self.operands if dtype(value).storage_only)
        raise _storage_error(kept, "it is computed with")


def _storage_error(element: DType, why: str) -> VerifyException:
    return VerifyException(
        f"{element} is a storage type and {why}: insert graph.astype to {element.compute} before, and back after"
    )


class GraphBuilder:
    """Collects ops that a decomposition or a rewrite creates, each with inferred types."""

    def __init__(self) -> None:
        self.ops: list[GraphOp] = []

    def __call__(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> SSAValue:
        """The first result of a new op; raises VerifyException as `build_op` does."""
        return self.all(op_type, *operands, **properties)[0]

    def all(self, op_type: type[GraphOp], *operands: SSAValue, **properties: Attribute) -> Sequence[SSAValue]:
        """All results of a new op."""
        op = op_type.build_op(*operands, **properties)
        self.ops.append(op)
        return op.results


def _refines(given: AnyTensor, inferred: AnyTensor) -> bool:
    """Whether both describe the same tensor as far as they are known: `?` agrees with any extent."""
    if given.element_type != inferred.element_type or given.get_num_dims() != inferred.get_num_dims():
        return False
    pairs = zip(symbolic_shape.extents_of(given), symbolic_shape.extents_of(inferred), strict=True)
    return all(n == m or DYNAMIC_INDEX in (n, m) for n, m in pairs)


def _is_broadcast(source: Index, index: Index, source_shape: Sequence[int]) -> bool:
    """Whether `source` is the trailing part of `index` with some positions replaced by 0."""
    if len(source) > len(index):
        return False
    trailing = index[len(index) - len(source) :]
    zero = constant(0)
    return all(s == i or (s == zero and n == 1) for s, i, n in zip(source, trailing, source_shape, strict=True))
