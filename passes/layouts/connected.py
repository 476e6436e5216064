"""Which ops have all their values in one order, as they are connected and take any, and what lies between the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.passes.layouts.followed import Alike, Kind, Values, operands_of

Between = tuple[int, int, SSAValue, Kind, int | None]
"""An operand: its op's place, its number, what it is, and the place of what makes it, None where nothing has a say in that."""


class Connected:
    """The ops of a function that take any order, each with those that it is connected to, and the operands between others."""

    def __init__(
        self, ops: Sequence[Operation], sites: Mapping[int, Alike], types: Values, has_groups: bool = True
    ) -> None:
        """`sites` are ops about which something is decided alone, by place; without groups all others lie as they are written."""
        self.types = types
        self.alike: dict[int, Alike] = {}
        """By place of an op that takes any order, in the order of ops."""
        self.between: list[Between] = []
        """Where the order may differ from what its reader wants; in the order of ops."""
        self._above: dict[int, int] = {}
        self._made: dict[int, int] = {}
        """The place of an op, by identity of a result whose order is decided."""
        takes_any: dict[type[Operation], bool] = {}
        for place, op in enumerate(ops):
            operands = operands_of(op)
            if place in sites:
                self._ask(place, operands, sites[place])
                for value in op.results:
                    self._made[id(value)] = place
                continue
            if (takes := takes_any.get(type(op))) is None:
                takes = takes_any[type(op)] = has_groups and isinstance(op, StructuredOp)
            if takes and operands and (alike := types.alike(op, operands)).followed:
                self._follow(place, op, operands, alike)
            else:
                self._read(place, operands)

    def _ask(self, place: int, operands: Sequence[SSAValue], alike: Alike) -> None:
        """The op at a place wants operands in an order that is decided for it."""
        made, between = self._made, self.between
        for number, (value, kind) in enumerate(zip(operands, alike.operands, strict=True)):
            between.append((place, number, value, kind, made.get(id(value))))

    def _read(self, place: int, operands: Sequence[SSAValue]) -> None:
        """The op at a place wants operands as they are written."""
        for number, value in enumerate(operands):
            if (maker := self._made.get(id(value))) is not None:
                self.between.append((place, number, value, self.types.kind(value), maker))

    def _follow(self, place: int, op: Operation, operands: Sequence[SSAValue], alike: Alike) -> None:
        """The op at a place has its result as operands lie: it is connected to those of its kind that make them."""
        self.alike[place] = alike
        above, own = self._above, place
        above[place] = place
        for number in alike.followed:
            maker = self._made.get(id(operands[number]))
            if maker is None or maker not in above:
                self.between.append((place, number, operands[number], alike.operands[number], maker))
            else:
                top = above[maker]
                above[own] = own = top if above[top] == top else self.root(maker)
        for value in op.results:
            self._made[id(value)] = place

    def root(self, place: int) -> int:
        """The place of one op that stands for all that are connected to an op."""
        above = self._above
        while (found := above[place]) != place:
            above[place] = above[found]
            place = found
        return place
