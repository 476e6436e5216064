"""Bases of the ops: what an op states about itself, and what is derived from it.

A record is one class. It states its operands and properties, how its result type follows from them, and either its
scalar meaning with index maps (`StructuredOp`), its decomposition (`CompositeOp`), or nothing more (`OpaqueOp`). Fusion
kind, in-place candidates, NumPy value, C and CUDA text are derived; passes and backends see these bases only. An op of
another dialect that derives from one of them is fused, planned and lowered like ours.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue, SSAValues
from xdsl.irdl import IRDLOperation, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects import scalar as sc
from fuse_opt.dialects.interfaces.layouts import (
    any_encoded,
    any_stored,
    check_encoding,
    check_stored,
    encoded,
    encoding,
    refuse_encodings,
)
from fuse_opt.dialects.interfaces.shapes import AnyTensor, dtype, has_sizes, sizes_asked_for, tensor
from fuse_opt.dialects.interfaces.stored_rules import StoredRule
from fuse_opt.dialects.types import symbolic_shape
from fuse_opt.dialects.types.encodings import EncodingPart, with_encoding
from fuse_opt.dialects.types.size import Extent


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """How far from the exact value a result may be on any backend, when the exact value is finite.

    `ulps` units in the last place of the result, and `slack` epsilons of its type times the largest magnitude among the
    finite operand elements, the exact results and 1. Both 0: the exact value rounded once, bit for bit.
    """

    ulps: float = 0.0
    slack: float = 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """An extent that must not be above another one: a call where it is, is refused."""

    message: str
    """What is said where it is broken, with `{least}` and `{most}` for the two."""
    least: Extent
    most: Extent

    def problem(self, least: str, most: str) -> str:
        """What is wrong with numbers, written with what they are of."""
        return self.message.format(least=least, most=most)


class OpClass(ABCMeta):
    """Instances are what derives from it: Python asks abstract classes, and all that derive from them, for more."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class GraphOp(IRDLOperation, metaclass=OpClass):
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

    def call_limits(self) -> Sequence[Limit]:
        """What calls have to keep beside what types say, as it may be unknown before."""
        return ()

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

    def discard(self) -> None:
        """Erases what was made in vain, or its operands would count it among their users."""
        for op in reversed(self.ops):
            op.erase()

    def replace(self, op: Operation, result: SSAValue) -> None:
        """Puts what was made where an op of one result is, which goes: `result` has its readers and its name."""
        assert op.parent is not None
        for made in self.ops:
            made.location = op.location
            op.parent.insert_op_before(made, op)
        result.name_hint = op.results[0].name_hint
        op.results[0].replace_all_uses_with(result)
        Rewriter.erase_op(op)


def _refines(given: AnyTensor, inferred: AnyTensor) -> bool:
    """Whether both describe the same tensor as far as they are known: `?` agrees with any extent."""
    if given.element_type != inferred.element_type or given.get_num_dims() != inferred.get_num_dims():
        return False
    pairs = zip(symbolic_shape.extents_of(given), symbolic_shape.extents_of(inferred), strict=True)
    return all(n == m or DYNAMIC_INDEX in (n, m) for n, m in pairs)
