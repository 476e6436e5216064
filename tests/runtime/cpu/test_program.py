"""Whole programs on the CPU: memory, results, arguments, threads, and what lowering refuses."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ir_testing import apply, evaluate, parse, random_arguments, text_of
from lowered_programs import assert_close, check, needs_compiler, softmax_program
from xdsl.dialects.builtin import ModuleOp

from fuse_opt.lowering.emit import build_program, emit_c
from fuse_opt.lowering.errors import LoweringError
from fuse_opt.lowering.program import LibraryCall, Segment
from fuse_opt.runtime.backends.blas.matmul import load_tasks
from fuse_opt.runtime.cpu import beside
from fuse_opt.runtime.cpu import program as cpu
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host.program_call import load_caller

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
            "'graph.exp': 'mkl.exp' is not an implementation of it; remove the property",
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


def many_small_ops(count: int, elements: int) -> str:
    kind = f"tensor<{elements}xf32>"
    ops = "".join(
        f"%v{n + 1} = graph.{('tanh', 'sin', 'sigmoid', 'cos')[n % 4]} %v{n} : ({kind}) -> {kind}\n"
        for n in range(count)
    )
    return f"func.func @main(%v0: {kind}) -> {kind} {{\n{ops}func.return %v{count} : {kind}\n}}"


def optimized(text: str, passes: str) -> ModuleOp:
    return apply(parse(text), passes.split(","))


@needs_compiler
def test_limits_of_segments_are_regions_of_the_run():
    """The same launches and bits whatever the limit; neighbours of one partition need no barrier."""
    module = optimized(many_small_ops(300, 8192), "wrap-kernels,schedule-kernels,plan-memory")
    x = np.linspace(-3, 3, 8192, dtype=np.float32)
    found: dict[int, tuple[int, ...]] = {}
    values: list[Array] = []
    for limit in (0, 1, 5, 15):
        program = CpuProgram(build_program(apply(module, [f"bulk-launches{{max-launches={limit}}}"])))
        stats = program.stats
        assert (stats.kernels, stats.launches, stats.foreign_calls) == (4, 300, 1)
        found[limit] = stats.segments, stats.parallel_regions, stats.barriers
        values.append(program(x))
    assert found == {0: (1, 1, 0), 1: (300, 300, 0), 5: (60, 60, 0), 15: (20, 20, 0)}
    assert len({value.tobytes() for value in values}) == 1


@needs_compiler
def test_work_that_is_worth_no_thread_meets_none():
    program = CpuProgram(build_program(optimized(many_small_ops(3, 64), "wrap-kernels,bulk-launches")))
    assert (program.stats.foreign_calls, program.stats.parallel_regions, program.stats.barriers) == (1, 0, 0)


def phases_of(text: str) -> list[list[tuple[int, int, bool]]]:
    """By phase, the bundles, launches and kind of each loop; of all segments."""
    segments = [step for step in build_program(parse(text)).steps if isinstance(step, Segment)]
    phases = [phase for segment in segments for phase in segment.phases]
    return [[(len(loop.bundles), sum(map(len, loop.bundles)), loop.whole) for loop in phase] for phase in phases]


def two_launches(first: str, second: str, middle: str, result: str) -> str:
    return f"""func.func @main(%x: tensor<512x256xf32>, %y: tensor<512x256xf32>) -> ({middle}, {result}) {{
      %a = fused.kernel(%p = %x : tensor<512x256xf32>) -> ({middle}) attributes {{segment = 0 : i64}} {{
        {first}
        fused.yield %r : {middle}
      }}
      %b = fused.kernel(%p = %a : {middle}, %q = %y : tensor<512x256xf32>) -> ({result}) attributes {{segment = 0 : i64}} {{
        {second}
        fused.yield %r : {result}
      }}
      func.return %a, %b : {middle}, {result}
    }}"""


M, R, H = "tensor<512x256xf32>", "tensor<512x1xf32>", "tensor<1x256xf32>"
SUM_ROWS = f"%r = graph.sum %p {{axes = array<i64: 1>, keepdims = true}} : ({M}) -> {R}"
SUM_COLUMNS = f"%r = graph.sum %p {{axes = array<i64: 0>, keepdims = true}} : ({M}) -> {H}"
EXP = f"%r = graph.exp %p : ({M}) -> {M}"
FLIPPED = f"%r = graph.flip %p {{axes = array<i64: 0>}} : ({M}) -> {M}"
TRANSPOSED = f"""%t = graph.permute_dims %p {{axes = array<i64: 1, 0>}} : ({M}) -> tensor<256x512xf32>
        %r = graph.reshape %t {{shape = array<i64: 512, 256>}} : (tensor<256x512xf32>) -> {M}"""


ONE_LOOP = [[(1, 2, False)]]
TWO_PHASES = [[(1, 1, False)], [(1, 1, False)]]


@needs_compiler
@pytest.mark.parametrize(
    ("first", "second", "middle", "result", "expected"),
    [
        (EXP, f"%r = graph.tanh %p : ({M}) -> {M}", M, M, ONE_LOOP),
        (SUM_ROWS, f"%r = graph.subtract %q, %p : ({M}, {R}) -> {M}", R, M, ONE_LOOP),
        (SUM_ROWS, f"%r = graph.exp %p : ({R}) -> {R}", R, R, [[(1, 1, False)], [(1, 1, True)]]),
        (SUM_COLUMNS, f"%r = graph.subtract %q, %p : ({M}, {H}) -> {M}", H, M, TWO_PHASES),
        (EXP, TRANSPOSED, M, M, TWO_PHASES),
        (EXP, FLIPPED, M, M, TWO_PHASES),
        (EXP, f"%r = graph.tanh %q : ({M}) -> {M}", M, M, [[(1, 1, False)] * 2]),
    ],
    ids=["elements", "rows", "fewer tasks", "all rows", "transposed", "flipped", "independent"],
)
def test_barriers_are_where_a_task_needs_another(
    first: str, second: str, middle: str, result: str, expected: list[list[tuple[int, int, bool]]]
):
    """A loop of two launches has no barrier between them, and two loops of a phase have none either."""
    text = two_launches(first, second, middle, result)
    assert phases_of(text) == expected
    program = check(text)
    assert CpuProgram(program).stats.barriers == len(expected) - 1


@needs_compiler
def test_result_may_be_given_as_it_is_and_layout_of_objects_is_known():
    """The compiled way into a program takes what fits; everything else comes the checked way, with the same result."""
    program = CpuProgram(build_program(optimized(many_small_ops(2, 40), "wrap-kernels,bulk-launches")))
    x = np.linspace(-1, 1, 40, dtype=np.float32)
    expected = np.sin(np.tanh(x))
    out = np.zeros_like(x)
    caller = load_caller()
    assert caller.call is not None, "CPython's and NumPy's objects are as program_call.c declares them"
    for given in (out, [out], (out,)):
        out[:] = 0
        assert program(x, out=given) is out
        np.testing.assert_allclose(out, expected, rtol=1e-6)
    strided = np.zeros(80, np.float32)[::2]
    for argument in (x, x[::-1][::-1], np.repeat(x, 2)[::2], x.tolist(), x.view(type("Sub", (np.ndarray,), {}))):
        array = np.asarray(argument, np.float32) if isinstance(argument, list) else argument
        np.testing.assert_allclose(program(array), expected, rtol=1e-6)
        np.testing.assert_allclose(program(array, out=strided), expected, rtol=1e-6)
    assert program(x, out=x) is x
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    wrongs: list[Any] = [np.zeros(41, np.float32), np.zeros(40), [np.zeros(40, np.float32)] * 2, 7]
    for wrong in wrongs:
        with pytest.raises((ValueError, TypeError)):
            program(x, out=wrong)


@needs_compiler
def test_without_knowing_the_layout_of_objects(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "load_caller", lambda: replace(load_caller(), call=None))
    module = parse(BIG)
    program = CpuProgram(build_program(module))
    arguments = random_arguments(module, 1)
    assert_close(program(*arguments), evaluate(module, arguments))
    out = [np.empty((300, 400), np.float32), np.empty(300, np.float32)]
    assert program(*arguments, out=out)[1] is out[1]


FORKED = """
import os, sys
import numpy as np
from fuse_opt.runtime.host import thread_pool
import fuse_opt
text = open(sys.argv[1]).read()
program = fuse_opt.compile(text, pipeline="wrap-kernels,select-implementation{prefer=blas}")
rng = np.random.default_rng(0)
x, w = rng.random((256, 128), np.float32), rng.random((128, 256), np.float32)
expected = program(x, w)
for _ in range(5):
    child = os.fork()
    if child == 0:
        same = all((program(x, w) == expected).all() for _ in range(3))
        os._exit(0 if same and len(os.listdir("/proc/self/task")) == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (program(x, w) == expected).all()
print(program.stats.foreign_calls, program.stats.parallel_regions)
"""
PRODUCT = """func.func @main(%x: tensor<256x128xf32>, %w: tensor<128x256xf32>) -> tensor<256x256xf32> {
  %0 = graph.tanh %x : (tensor<256x128xf32>) -> tensor<256x128xf32>
  %1 = graph.matmul %0, %w : (tensor<256x128xf32>, tensor<128x256xf32>) -> tensor<256x256xf32>
  %2 = graph.exp %1 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %2 : tensor<256x256xf32>
}"""


@needs_compiler
@pytest.mark.skipif(load_tasks() is None, reason="no BLAS that the pool can call")
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_a_program_with_a_product_is_one_call_and_runs_in_children_of_fork(tmp_path: Path):
    file = tmp_path / "product.mlir"
    file.write_text(PRODUCT)
    environment = {**os.environ, "FUSE_OPT_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FORKED, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.stdout == "1 1\n", done.stderr


@needs_compiler
def test_library_calls_are_loops_of_the_region():
    """Independent products share a phase, a product waits for what it reads; with NumPy there is Python between."""
    kind = "tensor<96x96xf64>"
    text = f"""func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{
      %0 = graph.matmul %x, %y : ({kind}, {kind}) -> {kind}
      %1 = graph.matmul %y, %x {{transpose_rhs = true}} : ({kind}, {kind}) -> {kind}
      %2 = graph.matmul %0, %1 : ({kind}, {kind}) -> {kind}
      func.return %2 : {kind}
    }}"""
    for backend, calls in (("blas", (1, 1)), ("numpy", (0, 0))):
        if backend == "blas" and load_tasks() is None:
            continue
        pipeline = f"wrap-kernels,select-implementation{{prefer={backend}}},schedule-kernels,plan-memory,bulk-launches"
        module = optimized(text, pipeline)
        arguments = random_arguments(module, 1)
        program = CpuProgram(build_program(module))
        assert (program.stats.foreign_calls, program.stats.parallel_regions) == calls
        assert_close([program(*arguments)], evaluate(module, arguments))


@needs_compiler
@pytest.mark.parametrize("fails", [False, True])
def test_calls_of_libraries_are_compiled_beside_the_program(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread, of whose errors nobody hears: they are met again, or not."""
    asked: list[bool] = []

    def asked_for(call: LibraryCall, table: int) -> None:
        asked.append(threading.current_thread() is threading.main_thread())
        if fails:
            raise RuntimeError("not now")

    monkeypatch.setattr(beside, "native_call", asked_for)
    program = check(CHAIN)
    assert asked == [False] * sum(isinstance(step, LibraryCall) for step in program.steps) != []
