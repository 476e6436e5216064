"""Patterns in the `pdl` dialect of MLIR and xDSL: read from text, and matched from a root op through its operands.

    pdl.pattern @scaled_tanh : benefit(2) {
      %x = pdl.operand
      %t = pdl.type
      %0 = pdl.operation "graph.tanh"(%x : !pdl.value) -> (%t : !pdl.type)
      %1 = pdl.result 0 of %0
      %2 = pdl.operation "graph.multiply"(%1, %x : !pdl.value, !pdl.value) -> (%t : !pdl.type)
      pdl.rewrite %2 with "fuse"
    }

Meanings are those of MLIR's PDL: an operation without operands or results matches only ops without any, what is named
twice is the same twice, a range stands for any number. Kernels are looked through: an op in one matches as it would outside.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import cast

from xdsl.context import Context
from xdsl.dialects import builtin, pdl
from xdsl.ir import Attribute, Operation, OpResult, SSAValue, TypedAttribute
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.mlir_lexer import MLIRTokenKind

from fuse_opt.dialects.analysis.bare_ops import bare_source, is_creation
from fuse_opt.dialects.analysis.loop_body import member_ops
from fuse_opt.passes.fusion.patterns.rule_files import refused_at
from fuse_opt.passes.remarks import RefusedError

REWRITE = "fuse"
"""The rewrite of every pattern: what matches becomes one kernel."""

_UNDEFINED = re.compile(r"values used but not defined: \[(%[^\],]+)")
_STATEMENTS = (
    pdl.AttributeOp,
    pdl.OperandOp,
    pdl.OperandsOp,
    pdl.OperationOp,
    pdl.ResultOp,
    pdl.RewriteOp,
    pdl.TypeOp,
    pdl.TypesOp,
)


@dataclass(frozen=True)
class _Node:
    """An op that a pattern asks for; the values are those of the pattern."""

    handle: SSAValue
    name: str | None
    operands: tuple[SSAValue, ...]
    attributes: tuple[tuple[str, SSAValue], ...]
    results: tuple[SSAValue, ...]

    @classmethod
    def of(cls, op: pdl.OperationOp) -> _Node:
        names = [name.data for name in op.attributeValueNames.data]
        attributes = tuple(zip(names, op.attribute_values, strict=True))
        name = None if op.opName is None else op.opName.data
        return cls(op.op, name, tuple(op.operand_values), attributes, tuple(op.type_values))


@dataclass(frozen=True)
class Pattern:
    """A pattern of a file; those of greater benefit come first, among equals the one that is first in the file."""

    name: str
    benefit: int
    root: _Node
    nodes: dict[SSAValue, _Node]

    def match(self, op: Operation, view: BlockView) -> list[Operation] | None:
        """The ops that are meant when `op` is the root, which comes first; None when it does not match."""
        binding = _Binding(view)
        found: dict[Operation, None] = {}
        pending = [(self.root, op)]
        while pending:
            node, candidate = pending.pop()
            if node.handle in binding.known:
                if binding.known[node.handle] is not candidate:
                    return None
                continue
            parents = binding.take(node, candidate)
            if parents is None:
                return None
            found[candidate] = None
            pending.extend((self.nodes[handle], parent) for handle, parent in reversed(parents))
        return list(found)


class BlockView:
    """The graph ops of a block, those in its kernels among them, as if there were no kernels."""

    def __init__(self, ops: Iterable[Operation]) -> None:
        self.ops = [inner for op in ops for inner in member_ops([op])]
        self._by_name: dict[str, list[Operation]] = {}
        self._created: dict[tuple[object, ...], SSAValue] = {}
        for op in self.ops:
            self._by_name.setdefault(op.name, []).append(op)

    def candidates(self, pattern: Pattern) -> Sequence[Operation]:
        """The ops that may be the root."""
        return self.ops if pattern.root.name is None else self._by_name.get(pattern.root.name, ())

    def source(self, value: SSAValue) -> SSAValue:
        """What the value is outside of kernels; one value for all constants that are equal, of which kernels have copies."""
        value = bare_source(value)
        owner = value.owner
        if isinstance(owner, Operation) and is_creation(owner):
            key = (type(owner), value.type, frozenset(owner.properties.items()))
            return self._created.setdefault(key, value)
        return value


@dataclass
class _Binding:
    """What the values of a pattern stand for, as far as that is known."""

    view: BlockView
    known: dict[SSAValue, object] = field(default_factory=dict[SSAValue, object])

    def take(self, node: _Node, op: Operation) -> list[tuple[SSAValue, Operation]] | None:
        """Binds the op and its values; gives the ops that its operands must come from, or None where it does not match."""
        if node.name is not None and node.name != op.name:
            return None
        operands = _aligned(node.operands, [self.view.source(value) for value in op.operands])
        types = _aligned(node.results, [value.type for value in op.results])
        if operands is None or types is None:
            return None
        self.known[node.handle] = op
        attributes = ((variable, op.get_attr_or_prop(name)) for name, variable in node.attributes)
        if not all(attr is not None and self._attribute(variable, attr) for variable, attr in attributes):
            return None
        if not all(self._type(variable, type_) for variable, type_ in types):
            return None
        parents: list[tuple[SSAValue, Operation]] = []
        for variable, value in operands:
            match variable.owner:
                case pdl.ResultOp(parent_=parent, index=index):
                    if not isinstance(value, OpResult) or value.index != index.value.data:
                        return None
                    parents.append((parent, value.op))
                case pdl.OperandOp(value_type=type_) | pdl.OperandsOp(value_type=type_):
                    if type_ is not None and not self._type(type_, _types(value)):
                        return None
                    if not self._same(variable, value):
                        return None
                case _:
                    return None
        return parents

    def _same(self, variable: SSAValue, actual: object) -> bool:
        return self.known.setdefault(variable, actual) == actual

    def _type(self, variable: SSAValue, actual: object) -> bool:
        match variable.owner:
            case pdl.TypeOp(constantType=wanted) if wanted is not None and wanted != actual:
                return False
            case pdl.TypesOp(constantTypes=wanted) if wanted is not None and wanted.data != actual:
                return False
            case _:
                return self._same(variable, actual)

    def _attribute(self, variable: SSAValue, actual: Attribute) -> bool:
        owner = variable.owner
        if not isinstance(owner, pdl.AttributeOp) or (owner.value is not None and owner.value != actual):
            return False
        if owner.value_type is None:
            return self._same(variable, actual)
        typed = isinstance(actual, TypedAttribute) and self._type(owner.value_type, actual.get_type())
        return typed and self._same(variable, actual)


def _types(value: object) -> object:
    """The type of a value, or those of a range of values."""
    if isinstance(value, SSAValue):
        return cast(SSAValue, value).type
    return tuple(inner.type for inner in cast(tuple[SSAValue, ...], value))


def _aligned(wanted: Sequence[SSAValue], found: Sequence[object]) -> list[tuple[SSAValue, object]] | None:
    """Each value of a pattern with what it stands for, a tuple for a range; None when there are too few or too many."""
    at = next((k for k, variable in enumerate(wanted) if isinstance(variable.type, pdl.RangeType)), None)
    if at is None:
        return list(zip(wanted, found, strict=True)) if len(wanted) == len(found) else None
    if len(found) < len(wanted) - 1:
        return None
    end = len(found) - (len(wanted) - at - 1)
    head, tail = zip(wanted[:at], found[:at], strict=True), zip(wanted[at + 1 :], found[end:], strict=True)
    return [*head, (wanted[at], tuple(found[at:end])), *tail]


def parse_patterns(text: str, file: str, ctx: Context) -> list[Pattern]:
    """The patterns of a text, by priority. Raises RefusedError at the place in the file."""
    module = _parse(text, file, ctx)
    for op in module.body.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            hint = "; every op is found from the root through operands" if "bindable" in str(error) else ""
            raise RefusedError(f"'{op.name}': {error}{hint}", op) from error
    patterns: dict[str, Pattern] = {}
    for number, op in enumerate(module.body.block.ops):
        if not isinstance(op, pdl.PatternOp):
            raise RefusedError(f"expected 'pdl.pattern', got '{op.name}'", op)
        pattern = _pattern(op, number, ctx)
        if pattern.name in patterns:
            raise RefusedError(f"there are two patterns '{pattern.name}'; rename one", op)
        patterns[pattern.name] = pattern
    if not patterns:
        raise refused_at(file, 1, 1, "expected at least one 'pdl.pattern', got none")
    return sorted(patterns.values(), key=lambda pattern: -pattern.benefit)


def _pattern(op: pdl.PatternOp, number: int, ctx: Context) -> Pattern:
    for inner in op.body.block.ops:
        if not isinstance(inner, _STATEMENTS):
            raise RefusedError(f"'{inner.name}' is not supported in a pattern; write a rule in Python instead", inner)
    rewrite = op.body.block.last_op
    assert isinstance(rewrite, pdl.RewriteOp)
    name = None if rewrite.name_ is None else rewrite.name_.data
    root = None if rewrite.root is None else rewrite.root.owner
    if name != REWRITE or rewrite.external_args or rewrite.body.blocks or not isinstance(root, pdl.OperationOp):
        raise RefusedError(f"expected 'pdl.rewrite %root with \"{REWRITE}\"', got another rewrite", rewrite)
    nodes: dict[SSAValue, _Node] = {
        inner.op: _node(inner, ctx) for inner in op.body.block.ops if isinstance(inner, pdl.OperationOp)
    }
    if len(nodes) < 2:
        raise RefusedError("expected two or more of 'pdl.operation', got one; wrap-kernels makes kernels of one op", op)
    _check_reached(root, op)
    label = f"pattern#{number}" if op.sym_name is None else op.sym_name.data
    return Pattern(label, op.benefit.value.data, nodes[root.op], nodes)


def _node(op: pdl.OperationOp, ctx: Context) -> _Node:
    node = _Node.of(op)
    for values in (node.operands, node.results):
        if sum(isinstance(value.type, pdl.RangeType) for value in values) > 1:
            raise RefusedError("expected at most one range among operands and one among results, got several", op)
    prefix, _, rest = (node.name or "").partition(".")
    dialect = ctx.get_optional_dialect(prefix) if rest else None
    if dialect is not None and node.name not in (names := [known.name for known in dialect.operations]):
        close = get_close_matches(node.name or "", names, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise RefusedError(f"dialect '{prefix}' has no operation '{node.name}'{hint}", op)
    return node


def _check_reached(root: pdl.OperationOp, pattern: pdl.PatternOp) -> None:
    """Every op must be found from the root through operands: that way there is at most one match for a root."""
    reached = {root}
    pending = [root]
    while pending:
        for value in pending.pop().operand_values:
            maker = value.owner.parent_.owner if isinstance(value.owner, pdl.ResultOp) else None
            if isinstance(maker, pdl.OperationOp) and maker not in reached:
                reached.add(maker)
                pending.append(maker)
    for op in pattern.body.block.ops:
        if isinstance(op, pdl.OperationOp) and op not in reached:
            what = "this op" if op.opName is None else f"'{op.opName.data}'"
            raise RefusedError(f"{what} is not reached from the root through operands; name another root", op)


def _parse(text: str, file: str, ctx: Context) -> builtin.ModuleOp:
    ctx = ctx.clone()
    for dialect in (builtin.Builtin, pdl.PDL):
        if dialect.name not in ctx.registered_dialect_names:
            ctx.load_dialect(dialect)
    places = _Places(file, [0, *(at + 1 for at, character in enumerate(text) if character == "\n")])
    parser = _PlacingParser(ctx, text, file)
    parser.places = places
    try:
        return parser.parse_module()
    except ParseError as error:
        undefined = _UNDEFINED.match(error.msg)  # which the parser notices at the end of the text
        position = error.span.start if undefined is None else text.find(undefined[1])
        raise refused_at(file, *places.at(position), error.msg) from error
    except (Exception, RecursionError) as error:  # xDSL's parser and verifiers of attributes raise all sorts
        raise refused_at(file, *places.at(parser.pos), str(error) or type(error).__name__) from error


@dataclass(frozen=True)
class _Places:
    file: str
    starts: list[int]

    def at(self, position: int) -> tuple[int, int]:
        """Line and column."""
        line = bisect_right(self.starts, position)
        return line, position - self.starts[line - 1] + 1


class _PlacingParser(Parser):
    """Gives every op its place in the text as its location."""

    places: _Places

    def parse_module(self, allow_implicit_module: bool = True) -> builtin.ModuleOp:
        if self._current_token.kind is MLIRTokenKind.EOF:
            return builtin.ModuleOp([])
        return super().parse_module(allow_implicit_module)

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        op = super().parse_operation()
        line, column = self.places.at(start)
        op.location = builtin.FileLineColLoc(
            builtin.StringAttr(self.places.file), builtin.IntAttr(line), builtin.IntAttr(column)
        )
        return op
