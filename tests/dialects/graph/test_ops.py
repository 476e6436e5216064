"""Every graph op against its row of the table: on the reference, and in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from draws import MULTIPLIER
from graph_op_table import NAMES, TYPES, Array, Case, Row, arguments_of, check_all, program_text, rows, type_text
from ir_testing import evaluate, graph_ops, parse
from lowered_programs import as_list, needs_compiler
from sanitizer import ARITHMETIC, sanitize
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.dialects.graph import GRAPH
from fuse_opt.dialects.interfaces.composite_op import CompositeOp
from fuse_opt.dialects.interfaces.opaque_op import OpaqueOp
from fuse_opt.dialects.interfaces.structured_op import StructuredOp
from fuse_opt.lowering.reference.kernels.registry import find_implementation
from fuse_opt.tools.source.diagnostics import InputError
from fuse_opt.tools.source.verification import OpVerifyError

ROWS = rows()
IDS = [f"{row.op.removeprefix('graph.')}-{number}" for number, row in enumerate(ROWS)]
LIBRARY = {op.name for op in GRAPH.operations if issubclass(op, OpaqueOp)}
"""Ops for which no code is generated."""


Compute = Callable[[ModuleOp, list[Array]], Sequence[Array]]
Record = Callable[[str, object], None]


def compute_and_check(by_op: Sequence[tuple[str, list[Case]]], compute: Compute, backend: str, record: Record) -> None:
    """All cases as one program."""
    for op, of_op in by_op:
        assert of_op, op
        elements = sum(array.size for case in of_op for array in case.wanted)
        record("graph ops", (op, backend, len(of_op), elements))
    cases = [case for _, of_op in by_op for case in of_op]
    module = parse(program_text(cases))
    bounds = [op.error_bound() for op in graph_ops(module)]
    check_all(cases, compute(module, arguments_of(cases)), bounds)


def test_every_op_has_a_row() -> None:
    ops = {op.name for op in GRAPH.operations}
    assert ops == {row.op for row in ROWS}


def test_every_record_has_a_backend() -> None:
    """A structured op runs anywhere by its words, a composite by its decomposition; an opaque op needs an implementation."""
    for op in GRAPH.operations:
        kinds = [kind for kind in (StructuredOp, CompositeOp, OpaqueOp) if issubclass(op, kind)]
        assert len(kinds) == 1, f"{op.name} is {kinds or 'none'} of the bases"
        assert kinds != [OpaqueOp] or find_implementation(op.name) is not None, f"nothing runs {op.name}"


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_reference(row: Row, record_property: Record) -> None:
    compute_and_check([(row.op, share(row.cases(), 6))], evaluate, "reference", record_property)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_other_types_are_refused(row: Row) -> None:
    """An element type that the row does not name is refused by the verifier, which names the op."""
    cases = row.cases()
    for name in sorted(set(TYPES) - set(row.accepts)):
        case = cases[0]
        if not case.inputs:
            return
        given = [f"tensor<{''.join(f'{n}x' for n in array.shape)}{name}>" for array in case.inputs]
        wanted = ", ".join(map(type_text, case.wanted)).replace(row.accepts[0] + ">", name + ">")
        values = ", ".join(f"%{k}: {t}" for k, t in enumerate(given))
        operands = ", ".join(f"%{k}" for k in range(len(given)))
        line = f"{row.op} {operands} {{{case.attributes}}} : ({', '.join(given)}) -> ({wanted})"
        with pytest.raises((OpVerifyError, InputError), match=row.op):
            parse(f"func.func @main({values}) {{\n  %r:{len(case.wanted)} = {line}\n  func.return\n}}")


TOGETHER = 16
"""Rows of one compilation: a compiler takes longer to begin than for the kernels of most rows."""


def groups(rows: Sequence[Row]) -> list[Any]:
    """The rows, so many together of different families."""
    count = -(-len(rows) // TOGETHER)
    found = [rows[number::count] for number in range(count)]
    return [pytest.param(group, id="+".join(row.op.removeprefix("graph.") for row in group)) for group in found]


@needs_compiler
@pytest.mark.parametrize("rows", groups(ROWS))
def test_c(
    rows: list[Row], record_property: Record, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A share of the cases as C under the sanitizer, all types: right, and nothing happens that C leaves undefined."""
    sanitize(monkeypatch, ARITHMETIC)
    compute_and_check([(row.op, share(row.cases(), 40, 5)) for row in rows], compiled, "C", record_property)
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.optimised
@pytest.mark.sampled(6)
@needs_compiler
@pytest.mark.parametrize("rows", groups([row for row in ROWS if row.op not in LIBRARY]))
def test_optimized_c(rows: list[Row], record_property: Record) -> None:
    """A share of the cases as C with the flags that users get: what is right unoptimised stays right in vectors."""
    compute_and_check([(row.op, share(row.cases(), 80, 8)) for row in rows], compiled, "optimized C", record_property)


def share(cases: list[Case], step: int, of_types: int = 1) -> list[Case]:
    """One case in so many of all, and the first one of one in so many combinations of element types."""
    step, of_types = (max(1, round(n / MULTIPLIER)) for n in (step, of_types))
    types = [tuple(NAMES[array.dtype] for array in (*case.inputs, *case.wanted)) for case in cases]
    firsts = [k for k in range(len(cases)) if types.index(types[k]) == k][::of_types]
    return [cases[k] for k in sorted({*firsts, *range(0, len(cases), step)})]


def compiled(module: ModuleOp, arguments: list[Array]) -> Sequence[Array]:
    with np.errstate(all="ignore"):
        return as_list(fuse_opt.compile(module, "cpu", "unfused")(*arguments))
