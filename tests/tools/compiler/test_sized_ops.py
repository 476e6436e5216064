"""Ops of the registry in one program for all sizes, at the sizes of their rows, against the rows' values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from graph_op_table import Array, Case, arguments_of, check_all, program_text, rows
from ir_testing import graph_ops, parse
from lowered_programs import needs_compiler
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects.interfaces.op import GraphOp
from fuse_opt.dialects.interfaces.shapes import tensor
from fuse_opt.dialects.interfaces.symbols import DIMS
from fuse_opt.lowering.program import Program
from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.runtime.cpu import sized_program as runtime
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

EVERY = 14
"""Of the rows one in so many."""


def with_sizes(cases: Sequence[Case]) -> ModuleOp:
    """One function of all cases, in which each extent above 1 of an argument is a symbol, one for each number of a case."""
    module = parse(program_text(cases))
    function = entry_function(module)
    marks: list[DictionaryAttr] = []
    owners = [number for number, case in enumerate(cases) for _ in case.inputs]
    for number, value in zip(owners, list(function.args), strict=True):
        extents = tensor(value).get_shape()
        names = [StringAttr(f"n{number}_{n}" if n > 1 else "") for n in extents]
        marks.append(DictionaryAttr({DIMS: ArrayAttr(names)} if names else {}))
        unknown = TensorType(tensor(value).element_type, [DYNAMIC_INDEX if n > 1 else n for n in extents])
        Rewriter.replace_value_with_new_type(value, unknown)
    for op in function.body.block.ops:
        for result, type_ in zip(op.results, op.infer_types() if isinstance(op, GraphOp) else (), strict=True):
            Rewriter.replace_value_with_new_type(result, type_)
    last = function.body.block.last_op
    assert last is not None
    types = [value.type for value in function.args], [value.type for value in last.operands]
    function.properties["function_type"] = FunctionType.from_lists(*types)
    function.arg_attrs = ArrayAttr(marks)
    return module


class Uncompiled:
    """In the place of a program for all sizes: it was made, and nothing is run."""

    def __init__(self, program: Program, at: object, named: object, usual: object) -> None:
        raise Made


class Made(Exception):
    pass


def takes_sizes(case: Case, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a program of the op alone is made for all sizes."""
    try:
        module = with_sizes([case])
    except VerifyException:
        return False  # no unknown extent can stand there
    with monkeypatch.context() as patched:
        patched.setattr(runtime, "SizedCpuProgram", Uncompiled)
        program = fuse_opt.compile(module)
        if not isinstance(program.native, SpecializedPrograms):
            return False
        assert program.native.sized is not None
        try:
            program.native.sized(tuple(array.shape for array in case.inputs))
        except Made:
            return True
    return False


@needs_compiler
def test_ops_in_one_program_for_all_sizes_give_what_their_rows_say(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = {row.op: row.cases()[0] for row in rows()[::EVERY]}
    cases = [case for case in sampled.values() if takes_sizes(case, monkeypatch)]
    assert len(cases) > 0.5 * len(sampled), [case.op for case in cases]
    module = with_sizes(cases)
    program = fuse_opt.compile(module)
    results = program(*arguments_of(cases))
    bounds = [op.error_bound() for op in graph_ops(parse(program_text(cases)))]
    check_all(cases, cast("tuple[Array, ...]", results), bounds)
    assert isinstance(program.native, SpecializedPrograms) and program.native.made == 0
