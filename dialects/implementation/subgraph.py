"""A part of a graph as plain data: what a backend is given of the ops that it is to run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from fuse_opt.dialects.implementation.site import Tensor, tensor_of
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.properties import PlainValue, plain_properties


@dataclass(frozen=True, slots=True)
class Node:
    """An op: `inputs` and `outputs` are numbers of values of its subgraph."""

    name: str
    """The op's, such as graph.matmul."""
    config: Mapping[str, PlainValue]
    """The op's properties by name."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Ops in an order in which they can run; values are numbered, those that it is given first."""

    values: tuple[Tensor, ...]
    """The shape and element type of each value."""
    arguments: int
    """How many values it is given."""
    nodes: tuple[Node, ...]
    results: tuple[int, ...]
    """The values that it returns."""

    @property
    def inside(self) -> tuple[int, ...]:
        """The values that nodes make and it does not return, in order."""
        returned = set(self.results)
        return tuple(number for node in self.nodes for number in node.outputs if number not in returned)

    @classmethod
    def of(cls, ops: Sequence[GraphOp], arguments: Sequence[SSAValue], results: Sequence[SSAValue]) -> Subgraph:
        """
        That of ops which read nothing but each other's results and the arguments. Raises TypeError for ops with properties
        that are no plain values.
        """
        numbers = {value: number for number, value in enumerate(arguments)}
        values = [*arguments]
        nodes: list[Node] = []
        for op in ops:
            inputs = tuple(numbers[value] for value in op.operands)
            for value in op.results:
                numbers[value] = len(values)
                values.append(value)
            nodes.append(Node(op.name, plain_properties(op), inputs, tuple(numbers[value] for value in op.results)))
        return cls(tuple(map(tensor_of, values)), len(arguments), tuple(nodes), tuple(numbers[v] for v in results))
