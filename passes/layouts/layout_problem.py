"""The layouts of a function as a problem of choices: sites and groups of ops that take any order, and what lies between.

A variable is an op that an implementation has to run, with an alternative for each implementation and row of layouts that it
offers, or all pointwise ops that are connected: these take any order, but one for all. Everything else has its values as they
are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.site import LayoutRow, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.dialects.types.encodings import EncodingPart
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.layouts.followed import Values
from fuse_opt.passes.layouts.quadratic_assignment import Assignment, Matrix, solve
from fuse_opt.passes.layouts.shared_conversions import Role, Roles, better

Layout = EncodingPart | None


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
        self.types = Values()
        self._rows: dict[Hashable, list[Alternative]] = {}
        self._seconds: dict[int, float] = {}
        self._matrices: dict[Hashable, Matrix] = {}
        self._add_sites()
        self.settled = self._row_major_is_best()
        """Whether nothing can gain from another layout, so that there is nothing to solve."""
        if not self.settled:
            self._add_groups()

    def _add_sites(self) -> None:
        for op in self.function.body.block.ops:
            if (
                not isinstance(op, OpaqueOp)
                or not op.TAKES_ORDERS
                or not all(self.types.kind(value).is_static for value in (*op.operands, *op.results))
            ):
                continue
            if len(found := self._alternatives(op)) > 1:
                self.of[op] = len(self.variables)
                self.variables.append(Variable([op], found))

    def _row_major_is_best(self) -> bool:
        """Whether each site is cheapest as it is written, where all arguments are so, too: then no conversion is worth it."""
        if any(_as_it_is(argument) is not None for argument in self.function.body.block.args):
            return False
        lists = {id(variable.alternatives): variable.alternatives for variable in self.variables}  # sites share them
        return all(map(_is_plain, (min(found, key=lambda one: one.seconds) for found in lists.values())))

    def _alternatives(self, op: OpaqueOp) -> list[Alternative]:
        """By implementation and row of layouts; the cheapest implementation of each row. Raises BackendFault."""
        never = tuple(value in self.frozen for value in op.operands)
        key = (self.types.key(op), never)
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
            if isinstance(op, StructuredOp) and (followed := self.types.followed(op)):
                roots[op] = op
                for number in followed:
                    owner = op.operands[number].owner
                    if owner in roots:
                        roots[root(op)] = root(owner)  # pyright: ignore[reportArgumentType]
        groups: dict[Operation, Variable] = {}
        fitting: dict[tuple[int, ...], list[Alternative]] = {}
        for op in roots:
            found = root(op)
            if found not in groups:
                extents = self.types.kind(op.results[0]).extents
                if extents not in fitting:
                    orders = [e for e in known if e is not None and e.problem(extents) is None]
                    fitting[extents] = [Alternative(None, e) for e in (None, *orders)]
                groups[found] = Variable([], fitting[extents])
                self.variables.append(groups[found])
            groups[found].ops.append(op)
        for number, variable in enumerate(self.variables):
            self.of.update(dict.fromkeys(variable.ops, number))

    def wanted(self, op: Operation, number: int, chosen: Sequence[int]) -> Layout | bool:
        """How an op's operand has to lie by a choice; True where that is all one to it."""
        value = op.operands[number]
        if (variable := self.of.get(op)) is not None:
            alternative = self.variables[variable].alternatives[chosen[variable]]
            if isinstance(op, StructuredOp) and number not in self.types.followed(op):
                return True
            return alternative.operand(number) if self.types.kind(value).has_order else None
        return _as_it_is(value)

    def given(self, value: SSAValue, chosen: Sequence[int]) -> Layout:
        """How a value lies by a choice, before it is converted."""
        owner = value.owner
        if isinstance(owner, Operation) and (variable := self.of.get(owner)) is not None:
            number = value.index if isinstance(value, OpResult) else 0
            found = self.variables[variable].alternatives[chosen[variable]].result(number)
            return found if self.types.kind(value).has_order else None
        return _as_it_is(value)

    def conversion_seconds(self, value: SSAValue) -> float:
        """What another layout of a value takes: a kernel of its own reads it and writes it, once across its neighbours."""
        kind = self.types.kind(value)
        if not kind.is_static or not kind.has_order or (self.frozen and value in self.frozen):
            return 0.0
        if (found := self._seconds.get(kind.nbytes)) is None:
            moved = self.device.move_seconds(2 * self.device.across * kind.nbytes)
            found = self._seconds[kind.nbytes] = self.device.launch + moved
        return found

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
        own = [[alternative.seconds for alternative in variable.alternatives] for variable in self.variables]
        better(own, self._roles(), chosen)
        return chosen

    def _roles(self) -> list[list[Role]]:
        """What each variable has to do with values whose conversion costs anything."""
        roles = Roles(len(self.variables))
        for op in self.function.body.block.ops:
            variable = self.of.get(op)
            if variable is None:
                for value in op.operands:
                    if seconds := self.conversion_seconds(value):
                        roles.read(value, seconds, _as_it_is(value))
                continue
            alternatives = self.variables[variable].alternatives
            followed = self.types.followed(op) if isinstance(op, StructuredOp) else range(len(op.operands))
            for number in followed:
                value = op.operands[number]
                if seconds := self.conversion_seconds(value):
                    wanted = roles.layouts(alternatives, number, Alternative.operand)
                    roles.add(variable, roles.value(value, seconds, _as_it_is(value)), wanted, True)
            for place, value in enumerate(op.results):
                if seconds := self.conversion_seconds(value):
                    given = roles.layouts(alternatives, place, Alternative.result)
                    roles.add(variable, roles.value(value, seconds, None), given, False)
        return roles.lists()

    def _connect(self, problem: Assignment, op: Operation, number: int, value: SSAValue) -> None:
        """Adds what it costs that an op wants an operand in another layout than what makes it gives."""
        reader, owner = self.of.get(op), value.owner
        maker = self.of.get(owner) if isinstance(owner, Operation) else None
        if (reader is None and maker is None) or not self.types.kind(value).has_order:
            return
        if isinstance(op, StructuredOp) and reader is not None and number not in self.types.followed(op):
            return
        place = value.index if isinstance(value, OpResult) else 0
        matrix = self._matrix(maker, place, reader, number, value)
        if maker is not None and reader is not None:
            problem.connect(maker, reader, matrix)
        elif maker is not None:
            problem.costs[maker] = [a + row[0] for a, row in zip(problem.costs[maker], matrix, strict=True)]
        elif reader is not None:
            problem.costs[reader] = [a + b for a, b in zip(problem.costs[reader], matrix[0], strict=True)]

    def _matrix(self, maker: int | None, place: int, reader: int | None, number: int, value: SSAValue) -> Matrix:
        """What a value costs between each alternative of what makes it and each of what reads it; None: it is as it is."""
        seconds, own = self.conversion_seconds(value), _as_it_is(value)
        makers = None if maker is None else self.variables[maker].alternatives
        readers = None if reader is None else self.variables[reader].alternatives
        key = (
            id(makers),
            place,
            id(readers),
            number,
            seconds,
            own,
        )  # lists of alternatives live as long as this problem
        if (known := self._matrices.get(key)) is not None:
            return known
        given = [own] if makers is None else [alternative.result(place) for alternative in makers]
        wanted = [own] if readers is None else [alternative.operand(number) for alternative in readers]
        found = self._matrices[key] = [[0.0 if a == b else seconds for b in wanted] for a in given]
        return found


def _is_plain(alternative: Alternative) -> bool:
    row = alternative.row
    return row is not None and not any(layout is not None for layout in (*row.operands, *row.results))


def _as_it_is(value: SSAValue) -> Layout:
    """The layout of a value that nobody has decided about: of an argument as the caller has it."""
    return None if isinstance(value.owner, Operation) else encoding(value)


def _rows_of(offer: Offer, site: Site) -> Iterable[tuple[LayoutRow, float]]:
    """The rows in which an implementation runs a site, with what that costs; none where that is not known."""
    for row in offer.layout_rows(site):
        here = site.laid_out(row)
        if offer.refusal(here) is None and (seconds := offer.seconds(here)) is not None:
            yield row, seconds


def has_encodings(function: FuncOp) -> bool:
    """Whether somebody has decided about layouts inside of the function."""
    return any(encoding(value) is not None for op in function.body.block.ops for value in op.results)
