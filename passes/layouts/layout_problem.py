"""The layouts of a function as a problem of choices: sites and groups of ops that take any order, and what lies between.

A variable is an op that an implementation has to run, with an alternative for each implementation and row of layouts that it
offers, or all pointwise ops that are connected: these take any order, but one for all. Everything else has its values as they
are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue

from fuse_opt.dialects.analysis.prepared import frozen_arguments
from fuse_opt.dialects.implementation.offers import Offer
from fuse_opt.dialects.implementation.site import LayoutRow, Site
from fuse_opt.dialects.implementation.switch import allowed_offers
from fuse_opt.dialects.interfaces.layouts import encoding
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.devices.device import Device
from fuse_opt.passes.layouts.choices import Alternative, Choices, Layout, Layouts, Variable
from fuse_opt.passes.layouts.connected import Connected
from fuse_opt.passes.layouts.followed import Alike, Kind, Values, operands_of
from fuse_opt.passes.layouts.quadratic_assignment import Assignment, solve
from fuse_opt.passes.layouts.reads import Read, Reads, as_it_is
from fuse_opt.passes.layouts.shared_conversions import better


@dataclass
class LayoutProblem:
    """The variables of a function, by their ops, and how many seconds a value takes to be converted."""

    function: FuncOp
    device: Device
    variables: list[Variable] = field(default_factory=list[Variable])

    def __post_init__(self) -> None:
        arguments = self.function.body.block.args
        self.frozen = {arguments[number] for number in frozen_arguments(self.function)}
        self.types, self.layouts = Values(), Layouts()
        self._found: dict[Hashable, Choices] = {}
        self._seconds: dict[int, float] = {}
        self.ops = list(iter(self.function.body.block.ops))  # its length would be counted first
        self.variable_of: list[int | None] = [None] * len(self.ops)
        """By place in the function."""
        self._opaque: dict[int, OpaqueOp] = {}
        """The ops that an implementation runs, by place."""
        self._alike: dict[int, Alike] = {}
        """Those that it may run in other orders."""
        self.has_encodings = self._find_sites()
        """Whether somebody has decided about layouts inside of the function."""
        if not self.has_encodings:
            self._add_sites()
        self.settled = self.has_encodings or self._row_major_is_best()
        """Whether nothing can gain from another layout, so that there is nothing to solve."""
        if not self.settled:
            connected = self._add_groups()
            finder = Reads(self.types, self.layouts, self._kind_seconds, self.frozen, arguments)
            lists = [variable.choices for variable in self.variables]
            self.reads = list(finder.found(connected.between, self.variable_of, lists))
            """In the order of ops."""

    @cached_property
    def of(self) -> dict[Operation, int]:
        """The variable of each op that has one."""
        return {op: number for number, variable in enumerate(self.variables) for op in variable.ops}

    def _find_sites(self) -> bool:
        """Finds ops that an implementation runs, and says whether a result of any op has an encoding."""
        takes_orders: dict[type[Operation], bool | None] = {}  # None of what no implementation has to run
        others: dict[int, SSAValue] = {}
        for place, op in enumerate(self.ops):
            kind = type(op)
            if kind not in takes_orders:
                takes_orders[kind] = op.TAKES_ORDERS if isinstance(op, OpaqueOp) else None
            takes = takes_orders[kind]
            if takes is not None:
                self._opaque[place] = cast("OpaqueOp", op)
            if takes:
                self._alike[place] = self.types.alike(op, operands_of(op))
            else:
                for value in op.results:
                    others[id(value.type)] = value  # as many have one type
        kinds = dict.fromkeys(kind for alike in dict.fromkeys(self._alike.values()) for kind in alike.results)
        return any(kind.layout is not None for kind in kinds) or any(encoding(v) is not None for v in others.values())

    def _add_sites(self) -> None:
        for place, alike in self._alike.items():
            found = self._choices(op := self._opaque[place], alike)
            if len(found.alternatives) > 1:
                self.variable_of[place] = len(self.variables)
                self.variables.append(Variable([op], found))

    def open_ops(self) -> list[OpaqueOp]:
        """The ops that an implementation runs, about which nothing is decided."""
        return [op for place, op in self._opaque.items() if self.variable_of[place] is None]

    def _row_major_is_best(self) -> bool:
        """Whether each site is cheapest as it is written, where all arguments are so, too: then no conversion is worth it."""
        if any(as_it_is(argument) is not None for argument in self.function.body.block.args):
            return False
        lists = dict.fromkeys(variable.choices for variable in self.variables)  # sites share them
        return all(min(each.alternatives, key=lambda one: one.seconds).is_plain for each in lists)

    def _choices(self, op: OpaqueOp, alike: Alike) -> Choices:
        """By implementation and row of layouts; the cheapest implementation of each row. Raises BackendFault."""
        never = tuple([value in self.frozen for value in op.operands]) if self.frozen else ()
        if (found := self._found.get(key := (id(alike), never))) is None:  # which `types` keeps
            is_static = all(kind.is_static for kind in (*alike.operands, *alike.results))
            found = self._found[key] = Choices(self._alternatives(op) if is_static else (), self.layouts)
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

    def _add_groups(self) -> Connected:
        """Connected ops that take any order; each group gets the layouts of its rank that sites know."""
        choices = dict.fromkeys(variable.choices for variable in self.variables)
        rows = [one.row for each in choices for one in each.alternatives if one.row is not None]
        known = dict.fromkeys(layout for row in rows for layout in (*row.operands, *row.results) if layout is not None)
        sites = {place: alike for place, alike in self._alike.items() if self.variable_of[place] is not None}
        connected = Connected(self.ops, sites, self.types, has_groups=bool(known))
        groups: dict[int, int] = {}
        fitting: dict[tuple[int, ...], Choices] = {}
        for place, alike in connected.alike.items():
            root = connected.root(place)
            if (number := groups.get(root)) is None:
                extents = alike.results[0].extents
                if extents not in fitting:
                    orders = [order for order in known if order.problem(extents) is None]
                    fitting[extents] = Choices([Alternative(None, order) for order in (None, *orders)], self.layouts)
                number = groups[root] = len(self.variables)
                self.variables.append(Variable([], fitting[extents]))
            self.variables[number].ops.append(self.ops[place])
            self.variable_of[place] = number
        return connected

    def misplaced(self, chosen: Sequence[int]) -> dict[int, list[tuple[int, Layout]]]:
        """By the place of an op, the operands that lie in another layout than it wants by a choice, each with that layout."""
        found: dict[int, list[tuple[int, Layout]]] = {}
        for place, number, _, maker, reader, link in self.reads:
            given = link.given[0 if maker is None else chosen[maker]]
            wanted = link.wanted[0 if reader is None else chosen[reader]]
            if given != wanted:
                found.setdefault(place, []).append((number, self.layouts.known[wanted]))
        return found

    def wanted(self, op: Operation, number: int, chosen: Sequence[int]) -> Layout | bool:
        """How an op's operand has to lie by a choice; True where that is all one to it."""
        value = op.operands[number]
        if (variable := self.of.get(op)) is not None:
            alternative = self.variables[variable].alternatives[chosen[variable]]
            if isinstance(op, StructuredOp) and number not in self.types.followed(op):
                return True
            return alternative.operand(number) if self.types.kind(value).has_order else None
        return as_it_is(value)

    def given(self, value: SSAValue, chosen: Sequence[int]) -> Layout:
        """How a value lies by a choice, before it is converted."""
        owner = value.owner
        if isinstance(owner, Operation) and (variable := self.of.get(owner)) is not None:
            number = value.index if isinstance(value, OpResult) else 0
            found = self.variables[variable].alternatives[chosen[variable]].result(number)
            return found if self.types.kind(value).has_order else None
        return as_it_is(value)

    def conversion_seconds(self, value: SSAValue) -> float:
        """What another layout of a value takes: a kernel of its own reads it and writes it, once across its neighbours."""
        return 0.0 if value in self.frozen else self._kind_seconds(self.types.kind(value))

    def _kind_seconds(self, kind: Kind) -> float:
        if not kind.is_static or not kind.has_order:
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
            if read.link.seconds:
                _connect(problem, read)
        chosen = solve(problem).chosen
        better([variable.choices.seconds for variable in self.variables], self.reads, chosen)
        return chosen


def _connect(problem: Assignment, read: Read) -> None:
    """Adds what it costs that an op wants an operand in another layout than what makes it gives."""
    maker, reader, matrix = read.maker, read.reader, read.link.matrix
    if maker is not None and reader is not None:
        problem.connect(maker, reader, matrix)
    elif maker is not None:
        problem.add(maker, read.link.turned[0])
    elif reader is not None:
        problem.add(reader, matrix[0])


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
