"""Samples of every op: the cases of its rows in the table, parsed when they are first drawn; a new record needs no entry.

A sample says of which types an op's operands may be and with which attributes. `resized` gives it other extents.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from graph_op_table import NAMES, Array, Case, Row, program_text, rows
from ir_testing import graph_ops, parse
from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import AnyTensor, tensor
from fuse_opt.dialects.scalar import ScalarTypeError

MOST_ELEMENTS = 512
"""Of the operands and results of a sample, together."""


@dataclass(frozen=True)
class Sample:
    """An op that verifies: what it is made of, and the operands of the case."""

    op_type: type[GraphOp]
    operand_types: tuple[AnyTensor, ...]
    properties: Mapping[str, Attribute]
    inputs: tuple[Array, ...]

    def build(self, operand_types: Sequence[AnyTensor] | None = None) -> GraphOp:
        """The op on values of these types (its own by default); raises as `build_op` does."""
        values = TestOp(result_types=self.operand_types if operand_types is None else operand_types).results
        return self.op_type.build_op(*values, **self.properties)


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(rows())


@cache
def row_cases(number: int) -> tuple[Case, ...]:
    """The small cases of a row."""
    cases = _rows()[number].cases()
    sizes = [sum(array.size for array in (*case.inputs, *case.wanted)) for case in cases]
    return tuple(case for case, size in zip(cases, sizes, strict=True) if size <= max(MOST_ELEMENTS, min(sizes)))


@cache
def element_types(number: int) -> dict[str, tuple[int, ...]]:
    """The small cases of a row by the element type of their first operand, empty where there is none."""
    found: dict[str, list[int]] = {}
    for position, case in enumerate(row_cases(number)):
        found.setdefault(NAMES[case.inputs[0].dtype] if case.inputs else "", []).append(position)
    return {name: tuple(positions) for name, positions in found.items()}


@cache
def sample(number: int, position: int) -> Sample:
    """A case of a row."""
    case = row_cases(number)[position]
    (op,) = graph_ops(parse(program_text([case])))
    return Sample(type(op), tuple(map(tensor, op.operands)), dict(op.properties), case.inputs)


@cache
def positions(number: int) -> frozenset[int]:
    """The operands of a row's op that are positions in another one: integers also where the first operand is none.

    Their values must be those of a case; others may be anything.
    """
    cases = row_cases(number)
    return _of_patterns(cases[0].op) | frozenset(
        k
        for case in cases
        for k, array in enumerate(case.inputs)
        if array.dtype.kind in "iu" and array.dtype != case.inputs[0].dtype
    )


def _of_patterns(name: str) -> frozenset[int]:
    """The operands of an op that say where a sparse value has entries, or decide how many it has, or are only indices."""
    record = next(op for op in GRAPH.operations if op.name == name)
    assert issubclass(record, GraphOp)
    definition = record.get_irdl_definition()
    names = [operand for operand, _ in definition.operands]
    if not any(operand.endswith("indptr") for operand in names):
        return frozenset({0} if "capacity" in definition.properties or names[:1] == ["indices"] else ())
    return frozenset(k for k, operand in enumerate(names) if operand.endswith(("indptr", "indices")))


@cache
def row_order() -> tuple[int, ...]:
    """The numbers of the rows, families mixed."""
    order = list(range(len(_rows())))
    random.Random(0).shuffle(order)
    return tuple(order)


def random_sample(rng: random.Random, number: int, element: str = "") -> Sample:
    """A sample of a row; on that element type where the row has it."""
    chosen = element_types(number).get(element) or range(len(row_cases(number)))
    return sample(number, rng.choice(chosen))


def resized(sample: Sample, rng: random.Random, extents: Sequence[int]) -> tuple[AnyTensor, ...]:
    """Operand types with other extents: mostly equal ones stay equal, `?` appears alone; they may not verify."""
    known = sorted({n for type_ in sample.operand_types for n in type_.get_shape()})
    others = {n: rng.choice(extents) if rng.random() < 0.6 else n for n in known}
    unknown = 0.3 if DYNAMIC_INDEX in extents else 0.0
    result: list[AnyTensor] = []
    for type_ in sample.operand_types:
        shape = [DYNAMIC_INDEX if rng.random() < unknown else others[n] for n in type_.get_shape()]
        result.append(TensorType(type_.element_type, shape))
    return tuple(result)


def single_ops(rng: random.Random, turns: Iterable[int]) -> Iterator[GraphOp]:
    """An op of a row for each turn, on operands of its own: a sample, or one of other extents that verifies."""
    for turn in turns:
        found = random_sample(rng, row_order()[turn % len(row_order())])
        types = found.operand_types
        if rng.random() < 0.7:
            types = resized(found, rng, [DYNAMIC_INDEX, 0, 1, 2, 3, 5, 8])
        try:
            op = found.build(types)
            op.verify_()
        except (VerifyException, ScalarTypeError):
            op = found.build()
        yield op
