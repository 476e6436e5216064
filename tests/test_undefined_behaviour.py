"""The C of every op of the table under the sanitizer: nothing that C leaves undefined happens on its inputs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from graph_op_table import Case, Row, arguments_of, check_all, program_text
from ir_testing import graph_ops, parse
from lowered_programs import as_list, needs_compiler

import fuse_opt
from fuse_opt.dialects.graph_op import StructuredOp
from fuse_opt.runtime import cpu
from fuse_opt.runtime.c_compiler import CCompiler, find_c_compiler
from fuse_opt.runtime.disk_cache import DiskCache

FAMILIES = sorted(path.stem for path in Path(__file__).parent.glob("rows_*.py"))
SANITIZE = ("-O0", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=float-divide-by-zero")
"""Division of floats by zero is defined: NaN or an infinity. Integers wrap by -fwrapv, without a report."""


MOST = 6
"""Cases of a row whose op is made of others: their C is that of the others, and compiling all of it takes minutes."""


def chosen(row: Row) -> list[Case]:
    """All cases of a row, or some of each kind."""
    cases = row.cases()
    (op,) = graph_ops(parse(program_text(cases[:1])))
    if isinstance(op, StructuredOp) or len(cases) <= MOST:
        return cases
    return [cases[k] for k in sorted(random.Random(row.op).sample(range(len(cases)), MOST))]


@pytest.fixture
def sanitizing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are compiled with the sanitizer, otherwise as always."""
    found = find_c_compiler()
    assert found is not None
    flags = tuple(flag for flag in found.flags if not flag.startswith("-O"))
    compiler = replace(found, flags=(*flags, *SANITIZE))

    def sanitizer(cache: DiskCache | None = None) -> CCompiler:
        return compiler

    monkeypatch.setattr(cpu, "find_c_compiler", sanitizer)
    yield


@needs_compiler
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("sanitizing")
def test_nothing_is_undefined(family: str, capfd: pytest.CaptureFixture[str]) -> None:
    rows: list[Row] = import_module(family).ROWS
    cases = [case for row in rows for case in chosen(row)]
    module = parse(program_text(cases))
    with np.errstate(all="ignore"):
        results = as_list(fuse_opt.compile(module, "cpu", "unfused")(*arguments_of(cases)))
    check_all(cases, results, [op.error_bound() for op in graph_ops(module)])
    assert "runtime error" not in capfd.readouterr().err


@needs_compiler
@pytest.mark.usefixtures("sanitizing")
def test_what_is_undefined_is_reported(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The sanitizer is there: a cast of NaN to an integer, left in the C text on purpose, is seen."""
    compile_shared = CCompiler.compile_shared

    def spoilt(self: CCompiler, source: str, cache: DiskCache) -> Path:
        spoilt_source = source + "\n__attribute__((constructor)) static void bad(void) {\n"
        return compile_shared(
            self, spoilt_source + "  volatile double x = 1e30; volatile int y = (int)x; (void)y;\n}\n", cache
        )

    monkeypatch.setattr(CCompiler, "compile_shared", spoilt)
    text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n  %0 = graph.exp %x : (tensor<3xf32>) -> tensor<3xf32>\n"
    fuse_opt.compile(text + "  func.return %0 : tensor<3xf32>\n}", "cpu")(np.zeros(3, np.float32))
    assert "runtime error" in capfd.readouterr().err
