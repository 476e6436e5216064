"""Every graph op against its row of the table: on the reference, and in C."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from graph_op_table import TYPES, Array, Case, Row, arguments_of, check_all, program_text, rows, type_text
from ir_testing import evaluate, function, graph_ops, parse
from xdsl.dialects.builtin import ModuleOp

import fuse_opt
from fuse_opt.dialects.graph import GRAPH
from fuse_opt.tools.diagnostics import InputError
from fuse_opt.tools.verification import OpVerifyError

ROWS = rows()
IDS = [f"{row.op.removeprefix('graph.')}-{number}" for number, row in enumerate(ROWS)]


def compute_and_check(cases: list[Case], compute: Callable[[ModuleOp, list[Array]], Sequence[Array]]) -> None:
    module = parse(program_text(cases))
    bounds = [op.error_bound() for op in graph_ops(module)]
    check_all(cases, compute(module, arguments_of(cases)), bounds)


def test_every_op_has_a_row() -> None:
    ops = {op.name for op in GRAPH.operations}
    assert ops == {row.op for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_reference(row: Row) -> None:
    cases = row.cases()
    assert cases
    compute_and_check(cases, evaluate)


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


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_c(row: Row) -> None:
    def compute(module: ModuleOp, arguments: list[Array]) -> Sequence[Array]:
        results: Any = fuse_opt.compile(module, "cpu", "unfused")(*arguments)
        return list(results) if len(function(module).function_type.outputs) != 1 else [results]

    compute_and_check(row.cases(), compute)
