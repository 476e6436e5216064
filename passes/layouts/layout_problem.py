"""The layouts of a function as a problem of choices: sites and groups of ops that take any order, and what lies between.

A variable is an op that an implementation has to run, with an alternative for each implementation and row of layouts that it
offers, or all pointwise ops that are connected: these take any order, but one for all. Everything else has its values as they
are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.analysis.storage import byte_size
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.site import LayoutRow, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.layouts import encoding, has_order
from fuse_opt.dialects.interfaces.op import FusionKind, OpaqueOp, StructuredOp
from fuse_opt.dialects.interfaces.shapes import is_static, shape
from fuse_opt.dialects.types.encodings import EncodingPart
from fuse_opt.dialects.types.index_expr import dimensions
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.layouts.quadratic_assignment import Assignment, solve

Layout = EncodingPart | None

ROUNDS = 4
"""Of changes of single variables."""
ACROSS = 2.0
"""What a pass over memory costs in which neighbours of one side lie apart, next to one in order (measured)."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Layouts of a variable's values: of a site by operand and result, of a group one for all."""

    row: LayoutRow | None
    order: Layout = None
    seconds: float = 0.0
    name: str = ""
    """The implementation that it is an alternative of."""

    def operand(self, number: int) -> Layout:
        return self.order if self.row is None else self.row.operands[number]

    def result(self, number: int) -> Layout:
        return self.order if self.row is None else self.row.results[number]


@dataclass
class Variable:
    """A site, or a group of ops."""

    ops: list[Operation]
    alternatives: list[Alternative] = field(default_factory=list[Alternative])


@dataclass
class LayoutProblem:
    """The variables of a function, by their ops, and how many seconds a value takes to be converted."""

    function: FuncOp
    device: Device
    variables: list[Variable] = field(default_factory=list[Variable])
    of: dict[Operation, int] = field(default_factory=dict[Operation, int])

    def __post_init__(self) -> None:
        arguments = self.function.body.block.args
        self.frozen = {arguments[number] for number in frozen_arguments(self.function)}
        self._rows: dict[Hashable, list[Alternative]] = {}
        self._add_sites()
        self._add_groups()

    def _add_sites(self) -> None:
        for op in self.function.body.block.ops:
            if (
                not isinstance(op, OpaqueOp)
                or not op.TAKES_ORDERS
                or not all(map(is_static, (*op.operands, *op.results)))
            ):
                continue
            if len(found := self._alternatives(op)) > 1:
                self.of[op] = len(self.variables)
                self.variables.append(Variable([op], found))

    def _alternatives(self, op: OpaqueOp) -> list[Alternative]:
        """By implementation and row of layouts; the cheapest implementation of each row. Raises BackendFault."""
        never = tuple(value in self.frozen for value in op.operands)
        types: tuple[Attribute, ...] = tuple(value.type for value in (*op.operands, *op.results))
        key = (type(op), types, frozenset(op.properties.items()), never)
        if key not in self._rows:
            site = Site.of(op, self.device, self.frozen)
            best: dict[LayoutRow, Alternative] = {}
            for offer in allowed_offers(op):
                if not offer.composite and offer.numerics == "strict":
                    for row, seconds in _rows_of(offer, site):
                        known = best.get(row)
                        if known is None or seconds < known.seconds:
                            best[row] = Alternative(row, None, seconds, offer.name)
            self._rows[key] = list(best.values())
        return self._rows[key]

    def _add_groups(self) -> None:
        """Connected ops that take any order; each gets the layouts of its rank that sites know."""
        known = dict.fromkeys(
            layout
            for variable in self.variables
            for one in variable.alternatives
            if one.row is not None
            for layout in (*one.row.operands, *one.row.results)
        )
        if set(known) <= {None}:
            return
        roots: dict[Operation, Operation] = {}

        def root(op: Operation) -> Operation:
            while roots[op] is not op:
                roots[op] = roots[roots[op]]
                op = roots[op]
            return op

        for op in self.function.body.block.ops:
            if isinstance(op, StructuredOp) and (followed := followed_operands(op)):
                roots[op] = op
                for number in followed:
                    owner = op.operands[number].owner
                    if owner in roots:
                        roots[root(op)] = root(owner)  # pyright: ignore[reportArgumentType]
        groups: dict[Operation, Variable] = {}
        for op in roots:
            found = root(op)
            if found not in groups:
                extents = shape(op.results[0])
                fitting = [e for e in known if e is not None and e.problem(extents) is None]
                groups[found] = Variable([], [Alternative(None, e) for e in (None, *fitting)])
                self.variables.append(groups[found])
            groups[found].ops.append(op)
        for number, variable in enumerate(self.variables):
            self.of.update(dict.fromkeys(variable.ops, number))

    def wanted(self, op: Operation, number: int, chosen: Sequence[int]) -> Layout | bool:
        """How an op's operand has to lie by a choice; True where that is all one to it."""
        value = op.operands[number]
        if (variable := self.of.get(op)) is not None:
            alternative = self.variables[variable].alternatives[chosen[variable]]
            if isinstance(op, StructuredOp) and number not in followed_operands(op):
                return True
            return alternative.operand(number) if has_order(shape(value)) else None
        return _as_it_is(value)

    def given(self, value: SSAValue, chosen: Sequence[int]) -> Layout:
        """How a value lies by a choice, before it is converted."""
        owner = value.owner
        if isinstance(owner, Operation) and (variable := self.of.get(owner)) is not None:
            number = list(owner.results).index(value)  # pyright: ignore[reportArgumentType]
            found = self.variables[variable].alternatives[chosen[variable]].result(number)
            return found if has_order(shape(value)) else None
        return _as_it_is(value)

    def conversion_seconds(self, value: SSAValue) -> float:
        """What another layout of a value takes: a kernel of its own reads it and writes it, once across its neighbours."""
        if not is_static(value) or not has_order(shape(value)) or value in self.frozen:
            return 0.0
        return self.device.launch + self.device.move_seconds(2 * ACROSS * (byte_size(value) or 0))

    def solved(self) -> list[int]:
        """
        The alternative of each variable at the least sum of costs of sites and conversions. Of a value that several read in one
        layout the solver counts a conversion for each; then variables change one by one, where that costs less as it is.
        """
        problem = Assignment()
        for variable in self.variables:
            problem.node([alternative.seconds for alternative in variable.alternatives])
        for op in self.function.body.block.ops:
            for number, value in enumerate(op.operands):
                self._connect(problem, op, number, value)
        chosen = solve(problem).chosen
        shared = [value for value in self.values() if len({use.operation for use in value.uses}) > 1]
        if any(self.value_seconds(value, chosen) for value in shared):
            self._better(chosen)
        return chosen

    def values(self) -> list[SSAValue]:
        """Those that sites or groups make or read, and that an order means something to."""
        given = (value for op in self.of for value in (*op.results, *op.operands))
        return [value for value in dict.fromkeys(given) if has_order(shape(value))]

    def value_seconds(self, value: SSAValue, chosen: Sequence[int]) -> float:
        """What conversions of a value cost by a choice: one for each layout in which others read it."""
        given = self.given(value, chosen)
        wanted = {self.wanted(use.operation, use.index, chosen) for use in value.uses}
        return self.conversion_seconds(value) * len(
            [layout for layout in wanted if layout is not True and layout != given]
        )

    def _better(self, chosen: list[int]) -> None:
        """Changes one variable at a time, by what conversions cost that several readers share; at most a few rounds."""
        around = [
            [
                v
                for v in dict.fromkeys(v for op in variable.ops for v in (*op.results, *op.operands))
                if has_order(shape(v))
            ]
            for variable in self.variables
        ]
        for _ in range(ROUNDS):
            before = list(chosen)
            for number, variable in enumerate(self.variables):
                kept, costs = chosen[number], list[float]()
                for candidate, alternative in enumerate(variable.alternatives):
                    chosen[number] = candidate
                    seconds = sum(self.value_seconds(value, chosen) for value in around[number])
                    costs.append(alternative.seconds + seconds)
                chosen[number] = costs.index(min(costs)) if min(costs) < costs[kept] else kept
            if chosen == before:
                return

    def _connect(self, problem: Assignment, op: Operation, number: int, value: SSAValue) -> None:
        """Adds what it costs that an op wants an operand in another layout than what makes it gives."""
        reader, owner = self.of.get(op), value.owner
        maker = self.of.get(owner) if isinstance(owner, Operation) else None
        if (reader is None and maker is None) or not has_order(shape(value)):
            return
        if isinstance(op, StructuredOp) and reader is not None and number not in followed_operands(op):
            return
        seconds = self.conversion_seconds(value)
        place = list(owner.results).index(value) if maker is not None and isinstance(owner, Operation) else 0  # pyright: ignore[reportArgumentType]
        given = [_as_it_is(value)] if maker is None else [a.result(place) for a in self.variables[maker].alternatives]
        wanted = (
            [_as_it_is(value)] if reader is None else [a.operand(number) for a in self.variables[reader].alternatives]
        )
        matrix = [[0.0 if a == b else seconds for b in wanted] for a in given]
        if maker is not None and reader is not None:
            problem.connect(maker, reader, matrix)
        elif maker is not None:
            problem.costs[maker] = [a + row[0] for a, row in zip(problem.costs[maker], matrix, strict=True)]
        elif reader is not None:
            problem.costs[reader] = [a + b for a, b in zip(problem.costs[reader], matrix[0], strict=True)]


def _as_it_is(value: SSAValue) -> Layout:
    """The layout of a value that nobody has decided about: of an argument as the caller has it."""
    return None if isinstance(value.owner, Operation) else encoding(value)


def _rows_of(offer: Offer, site: Site) -> Iterable[tuple[LayoutRow, float]]:
    """The rows in which an implementation runs a site, with what that costs; none where that is not known."""
    for row in offer.layout_rows(site):
        here = site.laid_out(row)
        if offer.refusal(here) is None and (seconds := offer.seconds(here)) is not None:
            yield row, seconds


_FOLLOWED: dict[tuple[object, ...], tuple[int, ...]] = {}
_REMEMBERED = 4096


def followed_operands(op: StructuredOp) -> tuple[int, ...]:
    """
    The operands that lie as the result does, whose axes are the result's one by one: of pointwise ops those of its shape, of
    windows and of what keeps reduced axes all of its rank. None where the op looks at axes in another way.
    """
    if not op.operands or len(op.results) != 1 or op.stored_value() is not None:
        return ()
    types: tuple[Attribute, ...] = tuple(value.type for value in (*op.operands, *op.results))
    key = (type(op), types, frozenset(op.properties.items()))
    if key not in _FOLLOWED:
        if len(_FOLLOWED) >= _REMEMBERED:
            _FOLLOWED.clear()
        _FOLLOWED[key] = _followed(op)
    return _FOLLOWED[key]


def _followed(op: StructuredOp) -> tuple[int, ...]:
    (result,) = op.results
    if not all(map(is_static, (*op.operands, result))) or not has_order(shape(result)):
        return ()
    extents = shape(result)
    if op.fusion_kind() <= FusionKind.BROADCAST:
        return tuple(number for number, value in enumerate(op.operands) if shape(value) == extents)
    index, inner = dimensions("i", extents), dimensions("c", op.reduced_extents())
    reduced = frozenset(dim for expression in inner for dim in expression.dims())
    found: list[int] = []
    for number, value in enumerate(op.operands):
        source = op.operand_index(number, index, inner)
        if len(source) != len(extents):
            return ()
        if not all(i.dims() <= own.dims() | reduced for i, own in zip(source, index, strict=True)):
            return ()
        if has_order(shape(value)):
            found.append(number)
    return tuple(found)


def has_encodings(function: FuncOp) -> bool:
    """Whether somebody has decided about layouts inside of the function."""
    return any(encoding(value) is not None for op in function.body.block.ops for value in op.results)
