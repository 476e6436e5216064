"""What printed C computes: each row of the tables, loops, branches and reductions against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_op_cases import CASES, Case
from c_printing import (
    CALLEES,
    CONSTANTS,
    COUNT,
    NUMPY,
    Array,
    build,
    combine,
    needs_cc,
    needs_nvcc,
    nvcc,
    parallel,
    print_all,
    print_one,
    run,
)

from fuse_opt.lowering.c.language import CUDA, C
from fuse_opt.lowering.c.printer import print_translation_unit

pytestmark = needs_cc

ALL_OPS = CALLEES + "".join(case.function() for case in CASES.values())


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Of the cases that run, which are few of all."""
    items = (item for item in request.session.items if item.path == request.path)
    cases = [
        item.callspec.params.get("case")
        for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    text = CALLEES + "".join(case.function() for case in cases if isinstance(case, Case))
    return build(print_translation_unit(print_all(text), C), tmp_path_factory.mktemp("rows"))


@pytest.mark.sampled(60)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_row_computes_what_numpy_computes(case: Case, library: ctypes.CDLL):
    x, y = case.inputs()
    got: Array = np.zeros(COUNT, NUMPY[case.kinds[2]])
    run(library, case.name, x, y, got)
    with np.errstate(all="ignore"):
        expected: Array = np.asarray(case.expected(x, y)).astype(got.dtype)
    if case.kinds[2] == "bf16":  # bits, with any payload of NaN
        is_nan = (expected & 0x7FFF) > 0x7F80
        assert ((got[is_nan] & 0x7FFF) > 0x7F80).all()
        got, expected = got[~is_nan], expected[~is_nan]
    np.testing.assert_allclose(got, expected, rtol=case.rtol, atol=0, equal_nan=True)
    if got.dtype.kind == "f" and case.rtol == 0:
        numbers = expected == expected
        assert np.array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


@needs_nvcc
def test_every_row_compiles_as_cuda(tmp_path: Path):
    text = print_translation_unit(print_all(ALL_OPS, CUDA), CUDA)
    # nvcc makes no code for device functions that nothing calls.
    nvcc(text.replace("static __device__ void k_", 'extern "C" __global__ void k_'), tmp_path, assembled=False)


def reduce_function(op: str, kind: str, init: str) -> str:
    name = f"{op.replace('.', '_')}_{kind}"
    body = f"""
    %v = memref.load %x[%i] : memref<{COUNT}x{kind}>
    {combine("%v", op, kind)}"""
    return f"""
func.func @{name}(%x: memref<{COUNT}x{kind}>, %o: memref<1x{kind}>) {{
  {CONSTANTS}
  %init = arith.constant {init} : {kind}
  %acc = {parallel("%i", "%n", body, "%init", kind)}
  memref.store %acc, %o[%c0] : memref<1x{kind}>
  func.return
}}"""


REDUCTIONS: dict[tuple[str, str, str], Callable[[Any], Any]] = {
    ("arith.addf", "f32", "1.0"): lambda x: 1 + x.sum(dtype=np.float64),
    ("arith.mulf", "f64", "1.0"): np.prod,
    ("arith.addi", "i8", "1"): lambda x: 1 + x.sum(dtype=np.int8),
    ("arith.addi", "i64", "0"): np.sum,
    ("arith.muli", "i32", "1"): np.prod,
    ("arith.maximumf", "f32", "0xFF800000"): np.max,
    ("arith.minimumf", "f64", "0x7FF0000000000000"): np.min,
    ("arith.maxnumf", "f32", "0xFF800000"): np.nanmax,
    ("arith.maxsi", "i32", "-2147483648"): np.max,
    ("arith.minsi", "i16", "32767"): np.min,
    ("arith.maxui", "i32", "0"): lambda x: x.view(np.uint32).max().view(np.int32),
    ("arith.minui", "i8", "-1"): lambda x: x.view(np.uint8).min().view(np.int8),
    ("arith.xori", "i32", "5"): lambda x: 5 ^ np.bitwise_xor.reduce(x),
    ("arith.andi", "i1", "1"): np.all,
    ("arith.ori", "i1", "0"): np.any,
    ("arith.xori", "i1", "0"): lambda x: x.sum() % 2,
}


@pytest.fixture(scope="module")
def reductions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = "".join(reduce_function(*key) for key in REDUCTIONS)
    return build(print_translation_unit(print_all(text), C), tmp_path_factory.mktemp("reductions"))


@pytest.mark.parametrize("with_nan", [False, True], ids=["numbers", "nan"])
@pytest.mark.parametrize("key", REDUCTIONS, ids=lambda key: "-".join(key[:2]))
def test_reductions(key: tuple[str, str, str], with_nan: bool, reductions: ctypes.CDLL):
    op, kind, _ = key
    random = np.random.default_rng(3)
    dtype = NUMPY[kind]
    if kind[0] == "f":
        x = random.uniform(0.99, 1.01, COUNT).astype(dtype)
        x[777] = np.nan if with_nan else 1
    else:
        x = random.integers(0 if kind == "i1" else -100, 2 if kind == "i1" else 100, COUNT).astype(dtype)
    got = np.zeros(1, dtype)
    run(reductions, f"{op.replace('.', '_')}_{kind}", x, got)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got[0], np.asarray(REDUCTIONS[key](x)).astype(dtype), rtol=1e-5)


def run_one(text: str, folder: Path, *arguments: Array | int) -> str:
    function = print_one(text)
    run(build(print_translation_unit([function], C), folder), function.name, *arguments)
    return function.text


def test_carried_values_are_assigned_at_once(tmp_path: Path):
    out = np.zeros(2, np.int64)
    run_one(
        """
func.func @fib(%o: memref<2xi64>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %x, %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero, %b = %one) -> (i64, i64) {
    %s = arith.addi %a, %b : i64
    scf.yield %b, %s : i64, i64
  }
  memref.store %x, %o[%c0] : memref<2xi64>
  memref.store %y, %o[%c1] : memref<2xi64>
  func.return
}""",
        tmp_path,
        out,
        50,
    )
    assert out.tolist() == [12586269025, 20365011074]


def test_values_swapped_by_a_loop(tmp_path: Path):
    out = np.zeros(2, np.float32)
    run_one(
        """
func.func @swap(%o: memref<2xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = arith.constant 1.0 : f32
  %q = arith.constant 2.0 : f32
  %x, %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %p, %b = %q) -> (f32, f32) {
    scf.yield %b, %a : f32, f32
  }
  memref.store %x, %o[%c0] : memref<2xf32>
  memref.store %y, %o[%c1] : memref<2xf32>
  func.return
}""",
        tmp_path,
        out,
        7,
    )
    assert out.tolist() == [2, 1]


def test_branches_with_results_in_nested_loops(tmp_path: Path):
    """First positions of each row's maximum, over rows whose values are all below, with a step that is not 1."""
    x = np.random.default_rng(0).integers(-5, 5, (6, 40)).astype(np.int32)
    out = np.zeros(6, np.int64)
    run_one(
        """
func.func @argmax(%x: memref<240xi32>, %o: memref<6xi64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  %c40 = arith.constant 40 : index
  %least = arith.constant -2147483648 : i32
  scf.for %row = %c0 to %c6 step %c1 {
    %base = arith.muli %row, %c40 : index
    %m, %at, %unused = scf.for %i = %c0 to %c40 step %c2
      iter_args(%best = %least, %where = %c0, %last = %c0) -> (i32, index, index) {
      %k = arith.addi %base, %i : index
      %v = memref.load %x[%k] : memref<240xi32>
      %better = arith.cmpi sgt, %v, %best : i32
      %m2, %w2 = scf.if %better -> (i32, index) {
        scf.yield %v, %i : i32, index
      } else {
        scf.yield %best, %where : i32, index
      }
      scf.yield %m2, %w2, %i : i32, index, index
    }
    %r = arith.index_cast %at : index to i64
    %even = arith.remsi %row, %c2 : index
    %is = arith.cmpi eq, %even, %c0 : index
    scf.if %is {
      memref.store %r, %o[%row] : memref<6xi64>
    } else {
      %neg = arith.constant -1 : i64
      %s = arith.muli %r, %neg : i64
      memref.store %s, %o[%row] : memref<6xi64>
    }
  }
  func.return
}""",
        tmp_path,
        x,
        out,
    )
    expected = 2 * x[:, ::2].argmax(axis=1) * np.where(np.arange(6) % 2, -1, 1)
    assert out.tolist() == expected.tolist()


def test_index_arithmetic_keeps_its_meaning_without_its_names(tmp_path: Path):
    out = np.zeros(6, np.int64)
    text = run_one(
        """
func.func @nested(%o: memref<6xi64>, %a: index, %b: index, %c: index) {
  %c0 = arith.constant 0 : index
  %big = arith.constant 4000000000 : index
  %c100k = arith.constant 100000 : index
  %m3 = arith.constant -3 : index
  %0 = arith.subi %b, %c : index
  %1 = arith.subi %a, %0 : index
  %2 = arith.muli %1, %m3 : index
  %3 = arith.subi %2, %m3 : index
  %4 = arith.divsi %3, %c : index
  %5 = arith.muli %b, %4 : index
  %6 = arith.muli %c100k, %c100k : index
  %7 = arith.addi %6, %big : index
  %8 = arith.remsi %7, %5 : index
  %9 = arith.index_cast %8 : index to i64
  memref.store %9, %o[%c0] : memref<6xi64>
  func.return
}""",
        tmp_path,
        out,
        1000,
        7,
        5,
    )
    quotient = ((1000 - (7 - 5)) * 3 - 3) // 5  # of the negated number, so that it rounds as C does
    assert out[0] == (100000 * 100000 + 4000000000) % (7 * quotient)
    assert text.count(";") == 2, text


BOUNDS = {"p": "1.0", "m": "-0.0", "z": "0.0", "h": "0x7F800000", "q": "0x7FC00000"}
"""Constants of f32 by name; the last is NaN."""


def extremum_of_constant(op: str, constant: str, first: bool) -> str:
    """Of each element and a constant, in either order, stored in the next line of the result."""
    operands = f"%{constant}, %v" if first else f"%v, %{constant}"
    return f"""
    %{op}{constant}{int(first)} = arith.{op}imumf {operands} : f32
    memref.store %{op}{constant}{int(first)}, %o[%{{}}] : memref<{{}}xf32>"""


def test_extrema_with_constants_know_nan_and_zeros(tmp_path: Path):
    """As those of two values do: NaN wins, and of two zeros the first."""
    values = np.array([-np.inf, -2, -0.0, 0.0, 0.5, 1, 3, np.inf, np.nan, -1e-45], np.float32)
    kinds = [(op, name, first) for op in ("max", "min") for name in BOUNDS for first in (False, True)]
    count, total = len(values), len(values) * len(kinds)
    constants = "\n".join(f"%{name} = arith.constant {text} : f32" for name, text in BOUNDS.items())
    body = f"%v = memref.load %x[%i] : memref<{count}xf32>"
    for number, kind in enumerate(kinds):
        body += f"\n%start{number} = arith.constant {number * count} : index\n"
        body += f"%at{number} = arith.addi %i, %start{number} : index"
        body += extremum_of_constant(*kind).format(f"at{number}", total)
    loop = parallel("%i", "%n", f"{body}\nscf.reduce")
    text = f"""
func.func @extrema(%x: memref<{count}xf32>, %o: memref<{total}xf32>) {{
  {CONSTANTS.replace(str(COUNT), str(count))}
  {constants}
  {loop}
  func.return
}}"""
    got = np.zeros((len(kinds), count), np.float32)
    printed = run_one(text, tmp_path, values, got)
    assert printed.count("fo_opaque_f32(") == 4, "NaN is no bound"
    numbers = {"p": 1.0, "m": -0.0, "z": 0.0, "h": np.inf, "q": np.nan}
    for line, (op, name, first) in zip(got, kinds, strict=True):
        constant = np.full(count, numbers[name], np.float32)
        a, b = (constant, values) if first else (values, constant)
        better = b > a if op == "max" else b < a
        expected = np.where(np.isnan(b), b, np.where(better, b, a))
        assert np.array_equal(line, expected, equal_nan=True), (op, name, first)
        known = ~np.isnan(expected)
        assert np.array_equal(np.signbit(line[known]), np.signbit(expected[known])), (op, name, first)


CONSTANT_VALUES: dict[str, list[Any]] = {
    "f32": [0.1, 1e-45, 3.4028235e38, 1.17549435e-38, -0.0, np.inf, -np.inf, np.nan, 16777216.0, 0.7071067811865476],
    "f64": [0.1, 5e-324, 1.7976931348623157e308, -0.0, np.inf, -np.inf, np.nan, 2.0**70, -1e22, 1 / 3],
    "f16": [0.1, 6e-8, 65504.0, -0.0, np.inf, np.nan, 1e-3, -2.5],
    "i8": [-128, 127, 0, -1],
    "i32": [-(2**31), 2**31 - 1, -5],
    "i64": [-(2**63), 2**63 - 1, 2**31, -(2**31)],
}


@pytest.mark.parametrize("kind", CONSTANT_VALUES)
def test_constants_read_back_bit_for_bit(kind: str, tmp_path: Path):
    from fuse_opt.lowering.c.literals import float_literal, integer_literal

    expected = np.array(CONSTANT_VALUES[kind], NUMPY[kind])
    if kind[0] == "f":
        literals = [float_literal(value, kind, C) for value in CONSTANT_VALUES[kind]]
    else:
        literals = [integer_literal(value, int(kind[1:]), kind, C) for value in CONSTANT_VALUES[kind]]
    spelling = C.types[kind]
    source = f"{spelling} values[] = {{{', '.join(literals)}}};\nvoid unused(void) {{}}\n"
    library = build(source, tmp_path)
    data = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "values")), expected.nbytes)
    got = np.frombuffer(data, expected.dtype)
    assert np.array_equal(got, expected, equal_nan=kind[0] == "f")
    numbers = expected == expected
    assert got[numbers].tobytes() == expected[numbers].tobytes()
