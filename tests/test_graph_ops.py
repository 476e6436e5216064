"""Every graph op against its row of the table: on the reference, and in C."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_op_table import ROWS, TYPES, Array, Case, Row, type_text
from ir_testing import evaluate, parse

import fuse_opt
from fuse_opt.dialects.graph import GRAPH
from fuse_opt.tools.diagnostics import InputError
from fuse_opt.tools.verification import OpVerifyError

IDS = [f"{row.op.removeprefix('graph.')}-{number}" for number, row in enumerate(ROWS)]
C_ULPS = 4
"""What the functions of the C target may be off beyond the table's bounds, in units in the last place."""


def function_text(cases: list[Case]) -> str:
    """One function that computes all cases."""
    arguments: list[str] = []
    lines: list[str] = []
    for number, case in enumerate(cases):
        line = case.line
        for operand in reversed(range(len(case.inputs))):
            line = line.replace(f"%{operand}", f"%a{number}_{operand}")
        arguments += [f"%a{number}_{k}: {type_text(array)}" for k, array in enumerate(case.inputs)]
        lines.append(f"  %r{number} = {line}")
    types = ", ".join(type_text(case.expected) for case in cases)
    names = ", ".join(f"%r{number}" for number in range(len(cases)))
    body = "\n".join(lines)
    return f"func.func @main({', '.join(arguments)}) -> ({types}) {{\n{body}\n  func.return {names} : {types}\n}}"


def arguments_of(cases: list[Case]) -> list[Array]:
    return [array.copy() for case in cases for array in case.inputs]


def test_every_op_has_a_row() -> None:
    ops = {op.name for op in GRAPH.operations}
    assert ops == {row.op for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_reference(row: Row) -> None:
    cases = row.cases()
    assert cases
    module = parse(function_text(cases))
    for case, actual in zip(cases, evaluate(module, arguments_of(cases)), strict=True):
        case.check(actual)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_other_types_are_refused(row: Row) -> None:
    """An element type that the row does not name is refused by the verifier, which names the op."""
    cases = row.cases()
    for name in sorted(set(TYPES) - set(row.accepts)):
        case = cases[0]
        if not case.inputs:
            return
        given = [f"tensor<{''.join(f'{n}x' for n in array.shape)}{name}>" for array in case.inputs]
        wanted = type_text(case.expected).replace(row.accepts[0] + ">", name + ">")
        values = ", ".join(f"%{k}: {t}" for k, t in enumerate(given))
        operands = ", ".join(f"%{k}" for k in range(len(given)))
        line = f"{row.op} {operands} {{{case.attributes}}} : ({', '.join(given)}) -> {wanted}"
        with pytest.raises((OpVerifyError, InputError), match=row.op):
            parse(f"func.func @main({values}) {{\n  %r = {line}\n  func.return\n}}")


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_c(row: Row) -> None:
    cases = row.cases()
    program = fuse_opt.compile(function_text(cases), "cpu", "unfused")
    results: Any = program(*arguments_of(cases))
    for case, actual in zip(cases, results if len(cases) > 1 else [results], strict=True):
        loose = case.ulps or np.any(case.slack)
        replace(case, ulps=case.ulps + (C_ULPS if loose else 0)).check(actual)
