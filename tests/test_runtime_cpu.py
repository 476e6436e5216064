"""Whole programs on the CPU: memory, results, arguments, threads, and what lowering refuses."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from lowered_programs import assert_close, check, needs_compiler, softmax_program

from fuse_opt.lowering.emit import build_program, emit_c
from fuse_opt.lowering.program import Segment
from fuse_opt.lowering.program_memory import LoweringError
from fuse_opt.runtime.cpu import CpuProgram

Array = npt.NDArray[Any]

CHAIN = """func.func @main(%x: tensor<16x8xf32> {graph.donated}, %w: tensor<8x8xf32>)
    -> (tensor<16x8xf32>, tensor<4x32xf32>, tensor<16x8xi32>)
    attributes {fused.arena = {size = 1024 : i64, alignment = 64 : i64, lower_bound = 512 : i64, method = "hand"}} {
  %k = graph.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %a = fused.kernel(%p = %x : tensor<16x8xf32>, %q = %k : tensor<8xf32>) -> (tensor<16x8xf32>)
      attributes {slots = array<i64: 512>, segment = 0 : i64} {
    %r = graph.add %p, %q : (tensor<16x8xf32>, tensor<8xf32>) -> tensor<16x8xf32>
    fused.yield %r : tensor<16x8xf32>
  }
  %b = fused.kernel(%p = %a : tensor<16x8xf32>) -> (tensor<16x8xf32>)
      attributes {slots = array<i64: 512>, segment = 0 : i64, inplace = array<i64: 0, 0>} {
    %r = graph.tanh %p : (tensor<16x8xf32>) -> tensor<16x8xf32>
    fused.yield %r : tensor<16x8xf32>
  }
  %c = fused.kernel(%p = %b : tensor<16x8xf32>, %q = %w : tensor<8x8xf32>) -> (tensor<16x8xf32>)
      attributes {slots = array<i64: 0>} {
    %r = graph.matmul %p, %q : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
    fused.yield %r : tensor<16x8xf32>
  }
  %f = graph.reshape %c {shape = array<i64: 4, 32>} : (tensor<16x8xf32>) -> tensor<4x32xf32>
  %g = fused.kernel(%p = %f : tensor<4x32xf32>) -> (tensor<4x32xf32>)
      attributes {slots = array<i64: -1>, segment = 1 : i64} {
    %r = graph.exp %p : (tensor<4x32xf32>) -> tensor<4x32xf32>
    fused.yield %r : tensor<4x32xf32>
  }
  %h, %hi = fused.kernel(%p = %x : tensor<16x8xf32>, %q = %c : tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<16x8xi32>)
      attributes {slots = array<i64: -1, -1>, segment = 1 : i64, inplace = array<i64: 0, 0>} {
    %r = graph.multiply %p, %q : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
    %i = graph.astype %r {dtype = i32} : (tensor<16x8xf32>) -> tensor<16x8xi32>
    fused.yield %r, %i : tensor<16x8xf32>, tensor<16x8xi32>
  }
  func.return %h, %g, %hi : tensor<16x8xf32>, tensor<4x32xf32>, tensor<16x8xi32>
}"""


@needs_compiler
def test_planned_program_in_place_with_segments_and_a_library_call():
    module = parse(CHAIN)
    x, w = random_arguments(module, 3)
    expected = evaluate(module, [x.copy(), w])
    program = build_program(module)
    stats = program.stats
    assert (stats.launches, stats.library_calls, stats.segments) == (4, 1, 3)
    assert (stats.arena_bytes, stats.lower_bound_bytes) == (1024, 512)
    assert [len(step.launches) for step in program.steps if isinstance(step, Segment)] == [2, 2]
    given = x.copy()
    results = CpuProgram(program)(given, w)
    assert_close(results, expected)
    assert results[0] is given, "the donated argument holds the result"


@needs_compiler
def test_decisions_may_be_missing():
    bare = re.sub(r"\s*attributes \{slots[^}]*\}", "", CHAIN)
    module = parse(re.sub(r"\s*attributes \{fused.arena[^}]*\}\}", "", bare))
    x, w = random_arguments(module, 3)
    expected = evaluate(module, [x, w])
    program = build_program(module)
    assert program.stats.segments == 5 and program.stats.arena_bytes == 3 * 512
    before = x.copy()
    assert_close(CpuProgram(program)(x, w), expected)
    np.testing.assert_array_equal(x, before)


@needs_compiler
@pytest.mark.parametrize(("shape", "kept", "axis"), [("8x33xf32", "8x1xf32", "1"), ("5x7x9xf32", "5x1x9xf32", "1")])
def test_rows_in_place(shape: str, kept: str, axis: str):
    module = parse(softmax_program(shape, kept, axis, donated=True))
    (x,) = random_arguments(module, 5)
    expected = evaluate(module, [x.copy()])
    assert_close([CpuProgram(build_program(module))(x)], expected)
    assert_close([x], expected)


@needs_compiler
def test_in_place_into_another_type():
    text = """func.func @main(%x: tensor<70xf32> {graph.donated}) -> tensor<70xi32> {
      %r = fused.kernel(%a = %x : tensor<70xf32>) -> (tensor<70xi32>) attributes {inplace = array<i64: 0, 0>} {
        %i = graph.astype %a {dtype = i32} : (tensor<70xf32>) -> tensor<70xi32>
        fused.yield %i : tensor<70xi32>
      }
      func.return %r : tensor<70xi32>
    }"""
    module = parse(text)
    x = np.linspace(-50, 50, 70, dtype=np.float32)
    expected = evaluate(module, [x.copy()])
    found = CpuProgram(build_program(module))(x)
    assert_close([found], expected)
    assert np.shares_memory(found, x)


RESULTS = """func.func @main(%x: tensor<2x3xf32>, %y: tensor<6xf32> {graph.donated}) -> (
    tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>, tensor<6xf32>, tensor<3xi64>, tensor<2xf32>, tensor<0x4xf32>) {
  %c = graph.constant dense<[7, -8, 9]> : tensor<3xi64>
  %s = graph.constant dense<0.5> : tensor<2xf32>
  %a = fused.kernel(%p = %x : tensor<2x3xf32>) -> (tensor<2x3xf32>) {
    %r = graph.abs %p : (tensor<2x3xf32>) -> tensor<2x3xf32>
    fused.yield %r : tensor<2x3xf32>
  }
  %e = fused.kernel() -> (tensor<0x4xf32>) {
    %z = graph.constant dense<0.0> : tensor<0x4xf32>
    fused.yield %z : tensor<0x4xf32>
  }
  %b = graph.reshape %a {shape = array<i64: 3, 2>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  func.return %a, %b, %x, %y, %c, %s, %e : tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>, tensor<6xf32>,
    tensor<3xi64>, tensor<2xf32>, tensor<0x4xf32>
}"""


@needs_compiler
def test_results_that_are_no_kernels_own():
    module = parse(RESULTS)
    x, y = random_arguments(module, 2)
    expected = evaluate(module, [x, y])
    results = CpuProgram(build_program(module))(x, y)
    assert_close(results, expected)
    memory = [x, *results]
    assert results[3] is y
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(memory, 2))


@needs_compiler
def test_kernel_that_is_no_single_pass_runs_on_the_reference():
    text = """func.func @main(%x: tensor<4x5xf32>) -> (tensor<4xf32>, tensor<5xf32>) {
      %a, %b = fused.kernel(%p = %x : tensor<4x5xf32>) -> (tensor<4xf32>, tensor<5xf32>) {
        %e = graph.exp %p : (tensor<4x5xf32>) -> tensor<4x5xf32>
        %r = graph.sum %e {axes = array<i64: 1>} : (tensor<4x5xf32>) -> tensor<4xf32>
        %s = graph.sum %e {axes = array<i64: 0>} : (tensor<4x5xf32>) -> tensor<5xf32>
        fused.yield %r, %s : tensor<4xf32>, tensor<5xf32>
      }
      func.return %a, %b : tensor<4xf32>, tensor<5xf32>
    }"""
    program = check(text)
    assert (program.stats.kernels, program.stats.library_calls) == (0, 1)


@needs_compiler
def test_equal_kernels_are_emitted_once():
    ops = "".join(
        f"""%v{n + 1} = fused.kernel(%a{n} = %v{n} : tensor<9xf32>) -> (tensor<9xf32>) {{
          %t{n} = graph.tanh %a{n} : (tensor<9xf32>) -> tensor<9xf32>
          fused.yield %t{n} : tensor<9xf32>
        }}\n"""
        for n in range(5)
    )
    program = check(
        f"func.func @main(%v0: tensor<9xf32>) -> tensor<9xf32> {{\n{ops}func.return %v5 : tensor<9xf32>\n}}"
    )
    assert (program.stats.kernels, program.stats.launches) == (1, 5)


BIG = """func.func @main(%x: tensor<300x400xf32>, %y: tensor<400xf32>) -> (tensor<300x400xf32>, tensor<300xf32>) {
  %a = fused.kernel(%p = %x : tensor<300x400xf32>, %q = %y : tensor<400xf32>) -> (tensor<300x400xf32>) {
    %r = graph.multiply %p, %q : (tensor<300x400xf32>, tensor<400xf32>) -> tensor<300x400xf32>
    %s = graph.sigmoid %r : (tensor<300x400xf32>) -> tensor<300x400xf32>
    fused.yield %s : tensor<300x400xf32>
  }
  %b = fused.kernel(%p = %a : tensor<300x400xf32>) -> (tensor<300xf32>) {
    %r = graph.sum %p {axes = array<i64: 1>} : (tensor<300x400xf32>) -> tensor<300xf32>
    fused.yield %r : tensor<300xf32>
  }
  %c = fused.kernel(%p = %a : tensor<300x400xf32>, %q = %x : tensor<300x400xf32>) -> (tensor<300x400xf32>) {
    %r = graph.add %p, %q : (tensor<300x400xf32>, tensor<300x400xf32>) -> tensor<300x400xf32>
    fused.yield %r : tensor<300x400xf32>
  }
  func.return %c, %b : tensor<300x400xf32>, tensor<300xf32>
}"""


@needs_compiler
def test_several_threads_call_one_program():
    module = parse(BIG)
    program = CpuProgram(build_program(module))
    inputs = [random_arguments(module, seed) for seed in range(4)]
    expected = [evaluate(module, arguments) for arguments in inputs]

    def call(number: int) -> list[Array]:
        return list(program(*inputs[number % 4]))

    with ThreadPoolExecutor(8) as pool:
        for number, results in enumerate(pool.map(call, range(64))):
            assert_close(results, expected[number % 4])


@needs_compiler
def test_results_stay_when_the_program_runs_again():
    module = parse(BIG)
    program = CpuProgram(build_program(module))
    first, second = random_arguments(module, 1), random_arguments(module, 2)
    kept = program(*first)
    copies = [a.copy() for a in kept]
    for _ in range(3):
        program(*second)
    for a, b in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_compiler
def test_out_may_be_arguments_or_strided():
    module = parse(BIG)
    program = CpuProgram(build_program(module))
    x, y = random_arguments(module, 1)
    expected = evaluate(module, [x, y])
    out = [np.empty((300, 400), np.float32), np.empty(300, np.float32)]
    results = program(x, y, out=out)
    assert results[0] is out[0] and results[1] is out[1]
    assert_close(results, expected)
    strided = np.empty((400, 300), np.float32).T
    assert_close(program(x, y, out=[strided, out[1]]), expected)
    assert_close(program(x, y, out=[x, out[1]]), expected)
    with pytest.raises(ValueError, match=r"out\[0\]: expected float32 \[300, 400\], got float32 \[400, 300\]"):
        program(x, y, out=[strided.T, out[1]])


@needs_compiler
def test_arguments_are_checked_and_copied_where_needed():
    module = parse(BIG)
    program = CpuProgram(build_program(module))
    x, y = random_arguments(module, 1)
    expected = evaluate(module, [x, y])
    assert_close(program(np.asfortranarray(x), np.repeat(y, 2)[::2]), expected)
    y.flags.writeable = False
    assert_close(program(x, y), expected)
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        program(x)
    with pytest.raises(TypeError, match=r"argument 1 \('y'\): expected float32 \[400\], got float64 \[400\]"):
        program(x, y.astype(np.float64))
    with pytest.raises(ValueError, match=r"argument 0 \('x'\): expected float32 \[300, 400\]"):
        program(x.T, y)


@needs_compiler
def test_donated_arguments_must_be_reusable():
    module = parse(softmax_program("8x33xf32", "8x1xf32", "1", donated=True))
    program = CpuProgram(build_program(module))
    with pytest.raises(ValueError, match=r"argument 0 \('x'\) is donated"):
        program(np.ones((33, 8), np.float32).T)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "%r = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>",
            "'graph.exp' is not in a kernel; run wrap-kernels first",
        ),
        (
            "%r = graph.softmax %x {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>",
            "'graph.softmax' is composite; run decompose and wrap-kernels first",
        ),
        (
            """%r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {inplace = array<i64: 0, 0>} {
              %t = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
              fused.yield %t : tensor<4xf32>
            }""",
            "%x is memory of an argument that is not given up",
        ),
        (
            """%r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {implementation = "mkl.exp"} {
              %t = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
              fused.yield %t : tensor<4xf32>
            }""",
            "'fused.kernel' implementation \"mkl.exp\" cannot run it",
        ),
    ],
)
def test_missing_requirements_are_named(text: str, message: str):
    module = parse(
        f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{text}\nfunc.return %r : tensor<4xf32>\n}}"
    )
    before = text_of(module)
    with pytest.raises(LoweringError, match=re.escape(message)) as caught:
        build_program(module)
    assert caught.value.op is not None
    assert text_of(module) == before


def test_lowering_is_idempotent_and_deterministic():
    module = parse(CHAIN)
    source = emit_c(module)
    assert emit_c(parse(CHAIN)) == source
    apply(module, ["convert-fused-to-loops"])
    once = text_of(module)
    assert text_of(apply(module, ["convert-fused-to-loops"])) == once
    assert emit_c(module) == source
    assert emit_c(parse(once)) == source


def test_program_says_what_it_moves():
    program = build_program(parse(BIG))
    elements = 300 * 400 * 4
    assert program.stats.bytes_read == 2 * elements + 1600 + 2 * elements
    assert program.stats.bytes_written == 2 * elements + 1200
    assert program.stats.arena_bytes == elements
