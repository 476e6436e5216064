"""Scopes of a loop nest under construction: every value is emitted once, in the outermost scope that knows its parts.

Hoisting and common subexpressions are thus not passes but how things are put down. A loop is added to its scope when it
is closed, so what its body hoists comes before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, MemRefType, NoneType, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from fuse_opt.dialects.types.dtypes import DType, Kind
from fuse_opt.dialects.types.extents import is_number, may_exceed, most, number_in
from fuse_opt.dialects.types.index_expr import Atom, Clamp, Dim, IndexExpr, Loaded, Quotient
from fuse_opt.dialects.types.size import Extent, Size
from fuse_opt.lowering.hints import NONPOSITIVE
from fuse_opt.lowering.kernel.scalar_to_arith import constant_op
from fuse_opt.lowering.made_ops import call_op, index_op, scalar_op

INDEX = IndexType()


@lru_cache(maxsize=1024)
def buffer_type(element: Attribute, count: int) -> MemRefType:
    """A flat buffer; types are costly to make, and a program has few."""
    return MemRefType(element, [count])


class Scope:
    """A level of a loop nest: its block, the dimensions that get a value there, and the values made so far."""

    QUOTIENT: ClassVar[type[arith.DivSIOp | arith.DivUIOp]] = arith.DivSIOp
    """Of what is not negative, where this is the outermost scope."""
    REMAINDER: ClassVar[type[arith.RemSIOp | arith.RemUIOp]] = arith.RemSIOp
    HINTS: ClassVar[frozenset[str]] = frozenset((NONPOSITIVE,))
    """Attributes of ops of which use is made, where this is the outermost scope."""

    def __init__(self, parent: Scope | None, block: Block, indices: dict[Dim, SSAValue] | None = None) -> None:
        self.parent = parent
        self.block = block
        self.indices = indices or {}
        self.values: dict[Hashable, SSAValue] = {}
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.root: Scope = self if parent is None else parent.root
        self.helpers: dict[str, tuple[tuple[Attribute, ...], Attribute]] = {} if parent is None else parent.helpers
        """Functions called so far, with their types; shared by the whole nest."""
        self.sizes: dict[Size, SSAValue] = {} if parent is None else parent.sizes
        """Sizes asked for so far, in the order of the function's arguments; shared by the whole nest."""
        self.limits: dict[Size, int] = {} if parent is None else parent.limits
        """Sizes that calls must not have larger than a number, as memory has no room for more; shared by the whole nest."""

    def add(self, op: Operation) -> SSAValue:
        """Puts the op at the end of the block; gives its first result."""
        self.block.add_op(op)
        return op.results[0]

    def constant(self, value: float, dtype: DType) -> SSAValue:
        return self.root.made(("constant", repr(value), dtype), lambda: constant_op(value, dtype))

    def index_constant(self, value: Extent) -> SSAValue:
        """A number, or a size: an argument of the kernel's function, behind its buffers."""
        if isinstance(value, Size):
            return self.root.size(value)
        return self.root.made(("index", value), lambda: index_op(value))

    def size(self, value: Size) -> SSAValue:
        """The argument that is the size; of the outermost scope, whose block is that of the function."""
        if (found := self.sizes.get(value)) is None:
            found = self.sizes[value] = self.block.insert_arg(INDEX, self._place_of_size())
            found.name_hint = _name_of(value)
        return found

    def _place_of_size(self) -> int:
        """Where the next one goes among the arguments."""
        return len(self.block.args) - 2

    def call(self, helper: str, arguments: Sequence[SSAValue], result: Attribute) -> SSAValue:
        self.helpers.setdefault(helper, (tuple(argument.type for argument in arguments), result))
        return self.add(call_op(helper, arguments, (result,)))

    def call_for_effect(self, helper: str, arguments: Sequence[SSAValue]) -> None:
        """A call of a helper that gives no value; its result type is `none`."""
        self.helpers.setdefault(helper, (tuple(argument.type for argument in arguments), NoneType()))
        self.block.add_op(call_op(helper, arguments, ()))

    def made(self, key: Hashable, build: Callable[[], Operation]) -> SSAValue:
        """The value known here by the key; built at the end of the block where there is none."""
        if (found := self.values.get(key)) is None:
            found = self.values[key] = self.add(build())
        return found

    def find(self, key: Hashable) -> tuple[SSAValue, Scope] | None:
        """The value known by the key here or further out, and where."""
        scope: Scope | None = self
        while scope is not None:
            if (found := scope.values.get(key)) is not None:
                return found, scope
            scope = scope.parent
        return None

    def home(self, dims: Iterable[Dim]) -> Scope:
        """The outermost scope in which all the dimensions have a value."""
        wanted = set(dims)
        scope = self
        while scope.parent is not None and not any(dim in wanted for dim in scope.indices):
            scope = scope.parent
        return scope

    def dim_value(self, dim: Dim) -> SSAValue:
        scope: Scope | None = self
        while scope is not None:
            if dim in scope.indices:
                return scope.indices[dim]
            scope = scope.parent
        raise KeyError(f"no loop counts dimension {dim.name} of {dim.extent}")

    def index(self, expression: IndexExpr) -> SSAValue:
        """The expression's value; parts that outer loops fix are computed there."""
        if not expression.terms:
            return self.index_constant(expression.constant)
        home = self.home(expression.dims())
        if (found := home.values.get(expression)) is not None:
            return found
        last, extents = (
            number_in(expression.constant),
            (expression.constant, *(factor for _, factor in expression.terms)),
        )
        if last and not all(map(is_number, extents)):
            # Compilers see that places are neighbours, and load them together, where they differ in what is added last.
            value = home.index(IndexExpr(expression.terms, expression.constant - last))
            value = home.values[expression] = home.add(scalar_op(arith.AddiOp, value, self.index_constant(last)))
            return value
        inner = tuple(term for term in expression.terms if home.home(_dims(term[0])) is home)
        outer = IndexExpr(tuple(term for term in expression.terms if term not in inner), expression.constant)
        value: SSAValue | None = home.index(outer) if outer.terms else None
        for atom, factor in inner:
            value = home._plus(value, home._atom(atom), factor)
        assert value is not None
        if not outer.terms and outer.constant != 0:
            value = home.add(scalar_op(arith.AddiOp, value, self.index_constant(outer.constant)))
        home.values[expression] = value
        return value

    def _plus(self, total: SSAValue | None, value: SSAValue, factor: int) -> SSAValue:
        if factor == -1 and total is not None:
            return self.add(scalar_op(arith.SubiOp, total, value))
        if factor != 1:
            value = self.add(scalar_op(arith.MuliOp, value, self.index_constant(factor)))
        return value if total is None else self.add(scalar_op(arith.AddiOp, total, value))

    def _atom(self, atom: Atom) -> SSAValue:
        if isinstance(atom, Dim):
            return self.dim_value(atom)
        if (found := self.values.get(atom)) is None:
            found = self.values[atom] = self._compute_atom(atom)
        return found

    def _compute_atom(self, atom: Atom) -> SSAValue:
        assert not isinstance(atom, Dim | Loaded), "a position that is data is used before it is made"
        if isinstance(atom, Clamp):
            value = self.index(atom.value)
            low, high = atom.value.bounds
            if may_exceed(atom.low, low):
                value = self.add(scalar_op(arith.MaxSIOp, value, self.index_constant(atom.low)))
            if may_exceed(high, atom.high):
                value = self.add(scalar_op(arith.MinSIOp, value, self.index_constant(atom.high)))
            return value
        numerator, divisor = self.index(atom.numerator), self.index_constant(atom.divisor)
        if not may_exceed(0, atom.numerator.bounds[0]):
            build = self.root.QUOTIENT if isinstance(atom, Quotient) else self.root.REMAINDER
            return self.add(scalar_op(build, numerator, divisor))
        quotient = self.made(
            Quotient(atom.numerator, atom.divisor), lambda: scalar_op(arith.FloorDivSIOp, numerator, divisor)
        )
        if isinstance(atom, Quotient):
            return quotient
        return self.add(scalar_op(arith.SubiOp, numerator, self.add(scalar_op(arith.MuliOp, quotient, divisor))))


def _name_of(size: Size) -> str:
    """A name for an argument: `n` of a symbol, `size_64_n` of `64*n`."""
    plain = re.sub(r"\{[^}]*\}", "", str(size))
    words = re.findall(r"\w+", plain)
    return "_".join(words if len(words) == 1 and not plain[0].isdigit() else ["size", *words])


def _dims(atom: Atom) -> frozenset[Dim]:
    return frozenset((atom,)) if isinstance(atom, Dim) else IndexExpr(((atom, 1),)).dims()


def position_index(value: SSAValue, element: DType, extent: Extent, scope: Scope) -> SSAValue:
    """
    An integer that is data as a position on an axis of the extent, limited to what is there in its own type, or in i64, before
    it is an index: an index may be narrower.
    """
    last, unsigned = extent - 1, element.kind is Kind.UINT
    largest = (1 << (element.bits - (0 if unsigned else 1))) - 1
    if not unsigned:
        value = scope.add(arith.MaxSIOp(value, scope.constant(0, element)))
    if isinstance(last, Size):
        if unsigned or not most(last) <= largest:
            extend = arith.ExtUIOp if unsigned else arith.ExtSIOp
            value = scope.add(extend(value, i64)) if element.bits < 64 else value
        limit = scope.add(arith.IndexCastOp(scope.root.index_constant(last), value.type))
        smaller = arith.MinUIOp if unsigned and element.bits == 64 else arith.MinSIOp
        value = scope.add(smaller(value, limit))
    elif last < largest:
        limit = scope.constant(last, element)
        value = scope.add(arith.MinUIOp(value, limit) if unsigned else arith.MinSIOp(value, limit))
    if unsigned and element.bits < 64 and not isinstance(last, Size):
        value = scope.add(arith.ExtUIOp(value, i64))
    found = scope.add(arith.IndexCastOp(value, IndexType()))
    found.name_hint = "at"
    return found
