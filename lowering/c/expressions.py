"""Scalar values of a function as C expressions: which are named, which are written where they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from xdsl.dialects import arith, func, math, memref, vector
from xdsl.dialects import gpu as upstream_gpu
from xdsl.dialects.builtin import (
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    UnrealizedConversionCastOp,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import DiagnosticException
from xdsl.utils.hints import isa

from fuse_opt.dialects import gpu
from fuse_opt.lowering.c.headers.functions import called_helpers, is_helper
from fuse_opt.lowering.c.language import CLanguage
from fuse_opt.lowering.c.literals import float_literal, integer_literal
from fuse_opt.lowering.c.names import NameScope
from fuse_opt.lowering.c.op_table import Level, Row
from fuse_opt.lowering.hints import NONPOSITIVE, ONCE

_DEEPEST = 8
_LONGEST = 72

_CASTS: frozenset[type[Operation]] = frozenset((
    arith.ExtFOp, arith.TruncFOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp, arith.SIToFPOp, arith.UIToFPOp,
    arith.FPToSIOp, arith.FPToUIOp, arith.IndexCastOp, arith.BitcastOp, UnrealizedConversionCastOp,
))  # fmt: skip
_DIMENSIONS = (
    upstream_gpu.ThreadIdOp
    | upstream_gpu.BlockIdOp
    | upstream_gpu.BlockDimOp
    | upstream_gpu.GridDimOp
    | upstream_gpu.GlobalIdOp
)
_KEYED: frozenset[type[Operation]] = frozenset((
    arith.CmpiOp, arith.CmpfOp, arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp, math.ExpOp, gpu.ShuffleOp,
    upstream_gpu.ThreadIdOp, upstream_gpu.BlockIdOp, upstream_gpu.BlockDimOp, upstream_gpu.GridDimOp, upstream_gpu.GlobalIdOp,
))  # fmt: skip
"""Ops whose key in a language's rows is more than their name."""


class CPrintError(DiagnosticException):
    """An op or type that a C-family language has no spelling for; `op` says where."""

    def __init__(self, op: Operation, language: CLanguage, problem: str) -> None:
        self.op = op
        function = op
        while (parent := function.parent_op()) is not None and not isinstance(function, func.FuncOp | gpu.FuncOp):
            function = parent
        place = ""
        if isinstance(function, func.FuncOp | gpu.FuncOp):
            place = f" in function '{function.sym_name.data}'"
        super().__init__(f"'{op.name}' op{place} cannot be printed as {language.name}: {problem}")


@dataclass(frozen=True, slots=True)
class Expr:
    """C text of a value, and what its users need to know to splice it in."""

    text: str
    level: Level = Level.ATOM
    depth: int = 0
    literal: bool = False
    mutable: bool = False
    """Reads a variable that a loop reassigns."""


@dataclass(slots=True)
class Facts:
    """What one walk over a function finds out before any text is made."""

    written: set[SSAValue] = field(default_factory=set[SSAValue])
    dead: set[Operation] = field(default_factory=set[Operation])
    callees: list[str] = field(default_factory=list[str])
    bounds: set[SSAValue] = field(default_factory=set[SSAValue])
    """Constants of the function's block that an extremum is taken with; see `bound_of`."""
    nested_parallel: set[Operation] = field(default_factory=set[Operation])
    """`scf.parallel` ops around others: OpenMP forbids one simd loop within another."""


@cache
def type_name(attribute: Attribute) -> str:
    """The spelling in the IR of a scalar type: `i32`, `ui8`, `index`, `bf16`."""
    return str(attribute)


def row_key(op: Operation) -> str:
    """The op's name in a language's rows: with its predicate, dimension or mode."""
    if type(op) not in _KEYED:
        return op.name
    match op:
        case arith.CmpiOp():
            return f"{op.name} {arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]}"
        case arith.CmpfOp():
            return f"{op.name} {arith.CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]}"
        case arith.ShLIOp() | arith.ShRSIOp() | arith.ShRUIOp():
            return f"{op.name} constant" if _shifts_by_constant(op.rhs) else op.name
        case gpu.ShuffleOp():
            return f"{op.name} {op.mode.data.value}"
        case math.ExpOp() if NONPOSITIVE in op.attributes:
            return f"{op.name} nonpositive"
        case _ if isinstance(op, _DIMENSIONS):
            return f"{op.name} {op.dimension.data.value}"
        case _:
            return op.name


def _shifts_by_constant(amount: SSAValue) -> bool:
    owner = amount.owner
    if not isinstance(owner, arith.ConstantOp) or not isa(owner.value, IntegerAttr):
        return False
    kind = amount.type
    return 0 <= owner.value.value.data < (kind.bitwidth if isinstance(kind, IntegerType) else 32)


def row_type(op: Operation) -> str:
    """The type under which the op's row is found."""
    if type(op) is arith.CmpiOp or type(op) is arith.CmpfOp:
        return type_name(op.lhs.type)
    if type(op) in _CASTS and len(op.operands) == 1:
        return f"{type_name(op.operands[0].type)}>{type_name(op.results[0].type)}"
    return type_name(op.results[0].type)


def bound_of(op: arith.MaximumfOp | arith.MinimumfOp) -> tuple[SSAValue, SSAValue] | None:
    """The other operand, and the constant, of an extremum with a constant that one comparison makes: NaN is no bound, and
    of two zeros it is the first that counts."""
    for value, bound in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        owner = bound.owner
        if isinstance(owner, arith.ConstantOp) and isa(owner.value, FloatAttr):
            number = owner.value.value.data
            if number == number and (bound is op.rhs or number != 0) and value is not bound:
                return value, bound
    return None


class ExpressionPrinter:
    """Values to expressions, and the statements that name them."""

    def __init__(self, language: CLanguage, scope: NameScope, facts: Facts, indent: int = 1) -> None:
        self.language = language
        self.scope = scope
        self.facts = facts
        self.indent = indent
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self.includes: set[str] = set()
        self._values: dict[SSAValue, Expr] = {}
        self._bounds: dict[SSAValue, str] = {}
        self._known_words: dict[tuple[Attribute, Attribute], Mapping[str, object]] = {}

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def refuse(self, op: Operation, problem: str) -> CPrintError:
        return CPrintError(op, self.language, problem)

    def bind(self, value: SSAValue, text: str, *, mutable: bool = False) -> None:
        """From now on the value is written as this name."""
        self._values[value] = Expr(text, mutable=mutable)

    def fresh_name(self, value: SSAValue, fallback: str = "v") -> str:
        return self.scope.fresh(value.name_hint, fallback)

    def is_used(self, value: SSAValue) -> bool:
        return any(use.operation not in self.facts.dead for use in value.uses)

    def c_type(self, attribute: Attribute, op: Operation, *, stored: bool = False) -> str:
        """The C type of a scalar, or of it as a buffer's element."""
        name = type_name(attribute)
        if (spelling := (self.language.stored_type(name) if stored else self.language.types.get(name))) is None:
            raise self.refuse(op, f"no row '{name}' in the table of types; cast it to a type that has one")
        if name in self.language.includes:
            self.includes.add(self.language.includes[name])
        return spelling

    def value(self, value: SSAValue) -> Expr:
        return self._values[value]

    def text(self, value: SSAValue, level: Level = Level.TERNARY) -> str:
        """The value's expression for a place that needs this level."""
        expr = self._values[value]
        return expr.text if expr.level >= level else f"({expr.text})"

    def declare(self, value: SSAValue, op: Operation, initial: str | None = None, fallback: str = "v") -> str:
        """A new variable for the value; gives its name."""
        name = self.fresh_name(value, fallback)
        tail = "" if initial is None else f" = {initial}"
        self.emit(f"{self.c_type(value.type, op)} {name}{tail};")
        self.bind(value, name)
        return name

    def print_constant(self, op: arith.ConstantOp) -> None:
        """Constants are literals wherever they are used."""
        name = type_name(op.result.type)
        self.c_type(op.result.type, op)
        if isa(op.value, IntegerAttr):
            text = integer_literal(op.value.value.data, self._bits(op.result.type), name, self.language)
        elif isa(op.value, FloatAttr):
            text = float_literal(op.value.value.data, name, self.language)
        else:
            raise self.refuse(op, f"no literal for {op.result.type}; only scalar constants have one")
        self._values[op.result] = Expr(text, Level.UNARY if text[0] == "-" else Level.ATOM, literal=True)
        if op.result in self.facts.bounds and self.language.opaque:
            bound = self._bounds[op.result] = self.scope.fresh("bound", "bound")
            helper = self.language.opaque.format(text, t=name)
            self.helpers.update(called_helpers(helper))
            self.emit(f"const {self.c_type(op.result.type, op)} {bound} = {helper};")

    def print_row(self, op: Operation) -> None:
        """An op with one result by its row in the language's table: an expression, named unless cheap and used once."""
        row = self.find_row(op)
        result = op.results[0]
        text = self.spell(row, op, op.operands)
        operands = [self._values[operand] for operand in op.operands]
        depth = 1 + max((operand.depth for operand in operands), default=0)
        if row.inline and depth <= _DEEPEST and len(text) <= _LONGEST and self._used_once_nearby(op):
            mutable = any(operand.mutable for operand in operands)
            self._values[result] = Expr(text, row.level, depth, mutable=mutable)
        else:
            self.declare(result, op, text)

    def print_extremum(self, op: arith.MaximumfOp | arith.MinimumfOp) -> None:
        """With a bound that has a name: one comparison, which for NaN gives the other operand."""
        found = bound_of(op)
        if found is None or found[1] not in self._bounds or self._values[found[0]].literal:
            self.print_row(op)
            return
        value, bound = found
        row = self.language.rows[f"{op.name} bound"][type_name(op.result.type)]
        self._name_operand(value, op)
        self.declare(op.result, op, row.text.format(self.text(value, row.operands[0]), self._bounds[bound]))

    def find_row(self, op: Operation) -> Row:
        if (row := self.language.row(row_key(op), row_type(op))) is None:
            raise self.refuse(op, f"no row '{row_key(op)}' for '{row_type(op)}' in its table of ops")
        return row

    def _used_once_nearby(self, op: Operation) -> bool:
        result = op.results[0]
        use = result.get_user_of_unique_use()
        return use is not None and use.parent is op.parent

    def spell(self, row: Row, op: Operation, operands: Sequence[SSAValue]) -> str:
        """The row's text over these operands."""
        for position in row.repeated:
            self._name_operand(operands[position], op)
        texts = [self.text(operand, level) for operand, level in zip(operands, row.operands, strict=False)]
        if len(operands) > 1 and all(self._values[operand].literal for operand in operands):
            # Else C would compute on plain ints.
            texts[0] = f"({self.c_type(operands[0].type, op)}){self.text(operands[0], Level.UNARY)}"
            texts[0] = f"({texts[0]})" if row.operands[0] > Level.UNARY else texts[0]
        result_type = op.results[0].type
        text = row.text.format(*texts, **self._words(result_type, operands[0].type if operands else result_type, op))
        if "fo_" in row.text:
            self.helpers.update(called_helpers(text))
        return text

    def _words(self, result: Attribute, first: Attribute, op: Operation) -> Mapping[str, object]:
        """What the texts of rows say of the types of a result and of the first operand."""
        known = self._known_words.get((result, first))
        if known is None:
            known = self._known_words[result, first] = {
                "T": self.c_type(result, op),
                "U": self.language.unsigned.get(type_name(result), ""),
                "t": self._suffix(result),
                "S": self.c_type(first, op),
                "V": self.language.unsigned.get(type_name(first), ""),
                "s": self._suffix(first),
                "f": "f" if type_name(result) == "f32" else "",
                "mask": self._bits(result) - 1,
            }
        return known

    def _suffix(self, attribute: Attribute) -> str:
        return f"i{self.language.index_bits}" if isinstance(attribute, IndexType) else type_name(attribute)

    def _bits(self, attribute: Attribute) -> int:
        return attribute.bitwidth if isinstance(attribute, IntegerType) else self.language.index_bits

    def _name_operand(self, value: SSAValue, op: Operation) -> None:
        """Gives the value a variable if its expression is more than a name or literal: it is about to be repeated."""
        expr = self._values[value]
        if expr.depth:
            self.declare(value, op, expr.text)

    def element_type(self, value: SSAValue, op: Operation) -> str:
        """The C type of a buffer's elements."""
        if not isa(value.type, MemRefType):
            raise self.refuse(op, f"no row for an argument of type {value.type}")
        return self.c_type(value.type.element_type, op, stored=True)

    def address(self, buffer: SSAValue, indices: Sequence[SSAValue], op: Operation) -> str:
        """`buffer[index]`; a buffer without dimensions has one element."""
        if not isa(buffer.type, MemRefType) or len(indices) > 1 or buffer.type.layout.name != "none":
            raise self.refuse(op, f"no row for {buffer.type}; flatten it to one dimension with the identity layout")
        return f"{self.text(buffer, Level.ATOM)}[{self.text(indices[0]) if indices else '0'}]"

    def print_load(self, op: memref.LoadOp) -> None:
        address = self.address(op.memref, op.indices, op)
        once = self._once(op)
        self.declare(op.res, op, address if once is None else once[0].format(f"&{address}"))

    def print_store(self, op: memref.StoreOp) -> None:
        address, value = self.address(op.memref, op.indices, op), self.text(op.value)
        once = self._once(op)
        self.emit(f"{address} = {value};" if once is None else f"{once[1].format(f'&{address}', value)};")

    def print_vector_load(self, op: vector.LoadOp) -> None:
        kind, address = self._vector_type(op.result.type, op), self._vector_address(op.base, op.indices, op)
        name = self.fresh_name(op.result, "vector")
        once = self._once(op)
        load = f"*(const {kind} *)({address})" if once is None else once[0].format(f"(const {kind} *)({address})")
        self.emit(f"{kind} {name} = {load};")
        self.bind(op.result, name)

    def print_vector_store(self, op: vector.StoreOp) -> None:
        kind, address = self._vector_type(op.vector.type, op), self._vector_address(op.base, op.indices, op)
        value, once = self.text(op.vector), self._once(op)
        store = f"*({kind} *)({address}) = {value}" if once is None else once[1].format(f"({kind} *)({address})", value)
        self.emit(f"{store};")

    def _once(self, op: Operation) -> tuple[str, str] | None:
        """How what is not wanted again is loaded and stored, where that is true of the op."""
        if ONCE not in op.attributes or self.language.once is None:
            return None
        self.helpers.update(("fo_load_once", "fo_store_once"))
        return self.language.once

    def _vector_type(self, kind: Attribute, op: Operation) -> str:
        if self.language.vector is None or not isa(kind, VectorType) or kind.get_num_dims() != 1:
            raise self.refuse(op, f"no row for {kind}; vectors have one dimension")
        self.helpers.add("fo_vector")
        return self.language.vector.format(self.c_type(kind.element_type, op, stored=True), kind.get_shape()[0])

    def _vector_address(self, buffer: SSAValue, indices: Sequence[SSAValue], op: Operation) -> str:
        """`buffer + index`."""
        element = self.address(buffer, indices, op)
        index = self.text(indices[0], Level.MUL) if indices else "0"
        return self.text(buffer) if index == "0" else f"{element.partition('[')[0]} + {index}"

    def print_call(self, op: func.CallOp, callee: str) -> None:
        arguments = ", ".join(self.text(argument) for argument in op.arguments)
        if callee.startswith("fo_"):
            if not is_helper(callee):
                raise self.refuse(op, f"no function '{callee}' in lowering/c/headers")
            self.helpers.add(callee)
        if len(op.res) > 1:
            raise self.refuse(op, "C functions have one result; pass a memref for each further one")
        if not op.res or not self.is_used(op.res[0]):
            self.emit(f"{callee}({arguments});")
        else:
            self.declare(op.res[0], op, f"{callee}({arguments})")
