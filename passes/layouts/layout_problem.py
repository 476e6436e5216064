"""The layouts of a function as a problem of choices: sites and groups of ops that take any order, and what lies between.

A variable is an op that an implementation has to run, with an alternative for each implementation and row of layouts that it
offers, or all pointwise ops that are connected: these take any order, but one for all. Everything else has its values as they
are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.site import LayoutRow, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.layouts.choices import Alternative, Choices, Layout, Layouts, Variable
from fuse_opt.passes.layouts.followed import Kind, Values
from fuse_opt.passes.layouts.quadratic_assignment import Assignment, Matrix, solve
from fuse_opt.passes.layouts.shared_conversions import Role, Roles, better


@dataclass(frozen=True, slots=True)
class Read:
    """An operand that lies as a choice says: who makes it and who wants it, where these are variables."""

    op: Operation
    number: int
    value: SSAValue
    seconds: float
    """Of a conversion."""
    maker: int | None
    reader: int | None
    given: Sequence[int]
    """By alternative of its maker, how it lies; alone where nobody decides about that. One object for alike makers."""
    wanted: Sequence[int]
    """The same of its reader, how that wants it."""


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
        self.types, self.layouts = Values(), Layouts()
        self._rows: dict[Hashable, Choices] = {}
        self._seconds: dict[int, float] = {}
        self._matrices: dict[Hashable, Matrix] = {}
        self._alone: dict[int, tuple[int]] = {}
        self._add_sites()
        self.settled = self._row_major_is_best()
        """Whether nothing can gain from another layout, so that there is nothing to solve."""
        if not self.settled:
            self._add_groups()
            self.reads = list(self._found_reads())
            """In the order of ops."""

    def _add_sites(self) -> None:
        for op in self.function.body.block.ops:
            if not isinstance(op, OpaqueOp) or not op.TAKES_ORDERS:
                continue
            found = self._choices(op)
            if len(found.alternatives) > 1:
                self.of[op] = len(self.variables)
                self.variables.append(Variable([op], found))

    def _row_major_is_best(self) -> bool:
        """Whether each site is cheapest as it is written, where all arguments are so, too: then no conversion is worth it."""
        if any(_as_it_is(argument) is not None for argument in self.function.body.block.args):
            return False
        lists = dict.fromkeys(variable.choices for variable in self.variables)  # sites share them
        return all(min(each.alternatives, key=lambda one: one.seconds).is_plain for each in lists)

    def _choices(self, op: OpaqueOp) -> Choices:
        """By implementation and row of layouts; the cheapest implementation of each row. Raises BackendFault."""
        never = tuple([value in self.frozen for value in op.operands]) if self.frozen else ()
        key = (self.types.key(op), never)
        if (found := self._rows.get(key)) is None:
            is_static = all(self.types.kind(value).is_static for value in (*op.operands, *op.results))
            found = self._rows[key] = Choices(self._alternatives(op) if is_static else (), self.layouts)
        return found

    def _alternatives(self, op: OpaqueOp) -> list[Alternative]:
        site = Site.of(op, self.device, self.frozen)
        best: dict[LayoutRow, Alternative] = {}
        for offer in allowed_offers(op):
            if not offer.composite and offer.numerics == "strict":
                for row, seconds in _rows_of(offer, site):
                    known = best.get(row)
                    if known is None or seconds < known.seconds:
                        best[row] = Alternative(row, None, seconds, offer.name)
        return list(best.values())

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
        groups: dict[Operation, Variable] = {}
        fitting: dict[tuple[int, ...], Choices] = {}
        for op, root in self._roots().items():
            if (group := groups.get(root)) is None:
                extents = self.types.kind(op.results[0]).extents
                if extents not in fitting:
                    orders = [e for e in known if e is not None and e.problem(extents) is None]
                    alternatives = [Alternative(None, e) for e in (None, *orders)]
                    fitting[extents] = Choices(alternatives, self.layouts)
                group = groups[root] = Variable([], fitting[extents])
                self.variables.append(group)
            group.ops.append(op)
        for number, variable in enumerate(self.variables):
            for op in variable.ops:
                self.of[op] = number

    def _roots(self) -> dict[Operation, Operation]:
        """The ops that take any order, each with one that stands for all that are connected to it."""
        above: dict[Operation, Operation] = {}

        def root(op: Operation) -> Operation:
            while (found := above[op]) is not op:
                above[op] = above[found]
                op = above[op]
            return op

        for op in self.function.body.block.ops:
            if isinstance(op, StructuredOp) and (followed := self.types.followed(op)):
                above[op] = op
                for number in followed:
                    owner = op.operands[number].owner
                    if isinstance(owner, Operation) and owner in above:
                        above[root(op)] = root(owner)
        return {op: root(op) for op in above}

    def _found_reads(self) -> Iterable[Read]:
        made: dict[int, tuple[int, int]] = {}  # by identity
        for op in self.function.body.block.ops:
            reader, operands = self.of.get(op), tuple(op.operands)
            choices = None if reader is None else self.variables[reader].choices
            for number in range(len(operands)) if choices is None else self.types.ordered(op):
                value = operands[number]
                kind, (maker, place) = self.types.kind(value), made.get(id(value), _NOBODY)
                own = 0 if maker is not None else self.layouts.number(_as_it_is(value))
                if not kind.has_order:
                    if own and reader is not None:
                        yield Read(op, number, value, 0.0, None, None, (own,), (0,))
                elif maker is not None or reader is not None:
                    alone = self._alone.setdefault(own, (own,))
                    given = alone if maker is None else self.variables[maker].choices.result(place)
                    wanted = alone if choices is None else choices.operand(number)
                    yield Read(op, number, value, self._kind_seconds(kind, value), maker, reader, given, wanted)
            if reader is not None:
                for place, value in enumerate(op.results):
                    made[id(value)] = reader, place

    def misplaced(self, chosen: Sequence[int]) -> dict[Operation, list[tuple[int, Layout]]]:
        """By op, the operands that lie in another layout than it wants by a choice, each with that layout."""
        found: dict[Operation, list[tuple[int, Layout]]] = {}
        for read in self.reads:
            given = read.given[0 if read.maker is None else chosen[read.maker]]
            wanted = read.wanted[0 if read.reader is None else chosen[read.reader]]
            if given != wanted:
                found.setdefault(read.op, []).append((read.number, self.layouts.known[wanted]))
        return found

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
        return self._kind_seconds(self.types.kind(value), value)

    def _kind_seconds(self, kind: Kind, value: SSAValue) -> float:
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
            problem.node(variable.choices.seconds)
        for read in self.reads:
            if read.seconds:
                self._connect(problem, read)
        chosen = solve(problem).chosen
        better([variable.choices.seconds for variable in self.variables], self._roles(), chosen)
        return chosen

    def _roles(self) -> list[list[Role]]:
        """What each variable has to do with values whose conversion costs anything."""
        roles = Roles(len(self.variables))
        for read in self.reads:
            if read.seconds:
                value = roles.value(id(read.value), read.seconds, read.given[0])
                if read.maker is not None and not value.readers:
                    roles.made(read.maker, value, read.given)
                roles.read(value, read.reader, read.wanted)
        return roles.lists()

    def _connect(self, problem: Assignment, read: Read) -> None:
        """Adds what it costs that an op wants an operand in another layout than what makes it gives."""
        maker, reader, matrix = read.maker, read.reader, self._matrix(read)
        if maker is not None and reader is not None:
            problem.connect(maker, reader, matrix)
        elif maker is not None:
            problem.costs[maker] = [a + row[0] for a, row in zip(problem.costs[maker], matrix, strict=True)]
        elif reader is not None:
            problem.costs[reader] = [a + b for a, b in zip(problem.costs[reader], matrix[0], strict=True)]

    def _matrix(self, read: Read) -> Matrix:
        """What a value costs between each alternative of what makes it and each of what reads it."""
        given, wanted = read.given, read.wanted
        key = read.seconds, id(given), id(wanted)  # which live as long as this problem
        if (known := self._matrices.get(key)) is not None:
            return known
        found = self._matrices[key] = [[0.0 if a == b else read.seconds for b in wanted] for a in given]
        return found


_NOBODY: tuple[int | None, int] = (None, 0)


def _as_it_is(value: SSAValue) -> Layout:
    """The layout of a value that nobody has decided about: of an argument as the caller has it."""
    return encoding(value) if isinstance(value, BlockArgument) else None


def _rows_of(offer: Offer, site: Site) -> Iterable[tuple[LayoutRow, float]]:
    """
    The rows in which an implementation runs a site, with what that costs; none where that is not known. What is behind it is
    asked, too, about orders in which perhaps nothing else runs it.
    """
    for row in offer.layout_rows(site):
        here = site.laid_out(row)
        if offer.refusal(here) is not None or (seconds := offer.seconds(here)) is None:
            continue
        if here.is_row_major or offer.machine_refusal(here) is None:
            yield row, seconds


def has_encodings(function: FuncOp) -> bool:
    """Whether somebody has decided about layouts inside of the function."""
    return any(encoding(value) is not None for op in function.body.block.ops for value in op.results)
