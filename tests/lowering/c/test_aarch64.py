"""Generated C for aarch64: it compiles without a warning, and, where an emulator is installed, computes what it should."""

from __future__ import annotations

from pathlib import Path

import math_accuracy
import numpy as np
import pytest
import scheduled_kernels
from aarch64 import EmulatedProgram, Machine, compile_object, link, missing_compiler, missing_emulator
from c_op_cases import CASES as OP_CASES
from c_printing import CALLEES, print_all
from graph_op_table import Array, arguments_of, program_text
from ir_testing import CONTEXT, evaluate, graph_ops, optimized, parse, random_arguments
from op_samples import row_cases, row_order
from scheduled_kernels import assert_within_bounds, lowered

from fuse_opt.lowering.c.headers.functions import FAMILIES, c_helpers, functions_of, helper_names
from fuse_opt.lowering.c.language import C
from fuse_opt.lowering.c.printer import print_translation_unit
from fuse_opt.lowering.emit import build_program
from fuse_opt.tools.compiler.pipeline import make_passes

needs_clang = pytest.mark.skipif(bool(missing_compiler()), reason=missing_compiler() or "-")
needs_emulator = pytest.mark.skipif(
    bool(missing_compiler() or missing_emulator()), reason=missing_compiler() or missing_emulator() or "-"
)

EMULATED = ("column stages in parts", "split kinds", "tile", "moves", "lanes of rows", "pointwise")


@needs_clang
def test_every_function_compiles(tmp_path: Path) -> None:
    """Those of scalars, and all that kernels call besides."""
    names = sorted(functions_of(FAMILIES))
    assert set(names) <= helper_names()
    uses = "\n".join(f"void *use_{name}(void) {{ return (void *)&{name}; }}" for name in names)
    compile_object(c_helpers(names) + uses, tmp_path / "functions.o", "-O0")


@needs_clang
def test_every_row_of_the_printers_tables_compiles(tmp_path: Path) -> None:
    text = CALLEES + "".join(case.function() for case in OP_CASES.values())
    compile_object(print_translation_unit(print_all(text), C), tmp_path / "rows.o", "-O0")


@needs_clang
@pytest.mark.parametrize("name", ["column stages in parts", "split kinds", "small tile", "moves", "pointwise"])
def test_schedules_compile(name: str, tmp_path: Path) -> None:
    program = build_program(lowered(parse(scheduled_kernels.CASES[name]().text()), None))
    compile_object(program.source, tmp_path / "kernels.o", "-O0")


@needs_clang
def test_conditions_of_several_parts_compile(tmp_path: Path) -> None:
    """clang warns of `a & b ? c : d` without parentheses."""
    source = """
func.func @main(%x: tensor<3x5xf32>) -> tensor<6x9xf32> {
  %0 = graph.pad %x {pads = array<i64: 1, 2, 2, 2>} : (tensor<3x5xf32>) -> tensor<6x9xf32>
  func.return %0 : tensor<6x9xf32>
}"""
    program = build_program(optimized(source, "unfused"))
    assert ") & (" in program.source
    compile_object(program.source, tmp_path / "pad.o", "-O0")


@needs_emulator
def test_functions_keep_their_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function of one float on a few thousand inputs, special ones among them, against long double here."""
    source = tmp_path / "references.c"
    source.write_text(math_accuracy.references())
    math_accuracy.run(
        math_accuracy.CC or "cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "r.so"), "-lm"
    )
    native = math_accuracy.Library(tmp_path / "r.so")
    program = link(math_accuracy.C_MATH + math_accuracy.loops(), tmp_path)

    def call(self: math_accuracy.Library, symbol: str, out: Array, args: tuple[Array, ...]) -> Array:
        machine = Machine(program)
        addresses = [machine.place(array.tobytes(), array.itemsize) for array in (out, *args)]
        machine.call(symbol, out.size, *addresses)
        return np.frombuffer(machine.read(addresses[0], out.nbytes), out.dtype).reshape(out.shape)

    emulated = math_accuracy.Library(tmp_path / "r.so")
    monkeypatch.setattr(emulated, "_call", call.__get__(emulated))
    for name in math_accuracy.TRANSCENDENTAL:
        for suffix, dtype in (("f32", np.float32), ("f64", np.float64)):
            function = f"fo_{name}_{suffix}"
            if not function.startswith(math_accuracy.CALLS_LIBM):
                x = math_accuracy.samples(dtype, 3000, seed=len(name))
                math_accuracy.report(function, emulated(function, x), native.reference(name, x), x)


@needs_emulator
@pytest.mark.parametrize("name", EMULATED)
def test_schedules_compute_what_the_reference_does(name: str, tmp_path: Path) -> None:
    module = parse(scheduled_kernels.CASES[name]().text())
    arguments = random_arguments(module, 3)
    with np.errstate(all="ignore"):
        expected = evaluate(module, [a.copy() for a in arguments])
    assert_within_bounds(EmulatedProgram(build_program(lowered(module, 1)), tmp_path)(*arguments), expected, name)


@needs_emulator
@pytest.mark.parametrize("part", range(4))
def test_ops_compute_what_their_rows_say(part: int, tmp_path: Path) -> None:
    """The first case of every op's rows, each op in a kernel of its own."""
    cases = [row_cases(number)[0] for number in row_order()[part::4]]
    module = parse(program_text(cases))
    bounds = [op.error_bound() for op in graph_ops(module)]
    for pass_ in make_passes("unfused"):
        pass_.apply(CONTEXT, module)
    with np.errstate(all="ignore"):
        results = EmulatedProgram(build_program(module), tmp_path)(*arguments_of(cases))
    at = 0
    for case, bound in zip(cases, bounds, strict=True):
        case.check(results[at : at + len(case.wanted)], bound)
        at += len(case.wanted)
