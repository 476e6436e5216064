"""Calls of programs: memory of results and runs that is used again, and the compiled way in."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ir_testing import parse
from lowered_programs import needs_compiler

from fuse_opt.lowering.emit import build_program
from fuse_opt.runtime.cpu.program import CpuProgram
from fuse_opt.runtime.host import thread_pool

Array = npt.NDArray[Any]


def negation(elements: int) -> CpuProgram:
    """Two results: -x and |x|."""
    kind = f"tensor<{elements}xf32>"
    text = f"""func.func @main(%x: {kind}) -> ({kind}, {kind}) {{
      %a, %b = fused.kernel(%p = %x : {kind}) -> ({kind}, {kind}) {{
        %n = graph.negative %p : ({kind}) -> {kind}
        %m = graph.abs %p : ({kind}) -> {kind}
        fused.yield %n, %m : {kind}, {kind}
      }}
      func.return %a, %b : {kind}, {kind}
    }}"""
    return CpuProgram(build_program(parse(text)))


SMALL, POOLED, LARGE = 100, 50_000, 5 << 20
sizes = pytest.mark.parametrize("elements", [SMALL, POOLED, LARGE], ids=["small", "pooled", "large"])


def addresses(arrays: Any) -> list[int]:
    return [array.ctypes.data for array in arrays]


@needs_compiler
@sizes
def test_dropped_results_give_their_memory_to_later_ones(elements: int):
    program = negation(elements)
    assert program.direct is not None
    x = np.arange(elements, dtype=np.float32)
    for _ in range(3):
        del (results := list(program(x)))[:]
    seen: set[int] = set()
    for _ in range(20):
        results = program(x)
        seen.update(addresses(results))
        assert len(set(addresses(results))) == 2
    assert len(seen) <= 4, "a result and the one before it"


KEEPERS: dict[str, Callable[[Array], Any]] = {
    "array": lambda array: array,
    "part": lambda array: array[1:5],
    "base": lambda array: array.base,
    "another type": lambda array: array.view(np.int32).reshape(2, -1).T,
    "memoryview": lambda array: array.data,
    "iterator": lambda array: array.flat,
}


@needs_compiler
@pytest.mark.parametrize("elements", [SMALL, POOLED])
@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_memory_that_can_be_seen_is_not_used_again(elements: int, keep: Callable[[Array], Any]):
    program = negation(elements)
    x = np.arange(elements, dtype=np.float32)
    for _ in range(6):
        program(x)
    kept = [keep(result) for result in program(x) if keep(result) is not None]
    before = [np.array(each).tobytes() for each in kept]
    for number in range(40):
        program(x + number + 1)
    assert [np.array(each).tobytes() for each in kept] == before


@needs_compiler
@sizes
def test_results_that_pile_up_are_all_there(elements: int):
    program = negation(elements)
    x = np.arange(elements, dtype=np.float32)
    count = 40 if elements < LARGE else 6
    kept = [program(x + number) for number in range(count)]
    assert len({address for results in kept for address in addresses(results)}) == 2 * count
    for number, (negative, absolute) in enumerate(kept):
        assert negative[1] == -1 - number and absolute[1] == 1 + number and absolute[-1] == x[-1] + number
    del negative, absolute, kept  # pyright: ignore[reportPossiblyUnboundVariable]
    seen = {address for _ in range(60) for address in addresses(program(x))}
    assert len(seen) < 20


@needs_compiler
def test_results_end_when_they_are_dropped():
    """Their memory lives on; the arrays do not, nor what was done to them."""
    program = negation(POOLED)
    x = np.ones(POOLED, np.float32)
    for _ in range(12):
        negative, _ = program(x)
        gone = weakref.ref(negative)
        negative.flags.writeable = False
        del negative, _
        assert gone() is None
    assert program(x)[0].flags.writeable


@needs_compiler
def test_memory_goes_with_the_program_and_stays_with_its_results():
    program = negation(LARGE)
    x = np.ones(LARGE, np.float32)
    negative, _ = program(x)
    gone = weakref.ref(program)
    gc.disable()
    try:
        del program
        assert gone() is None, "no cycle keeps a program's memory"
    finally:
        gc.enable()
    assert (negative == -1).all()


@needs_compiler
def test_the_compiled_way_in_keeps_what_it_needs():
    program = negation(SMALL)
    direct, x = program.direct, np.ones(SMALL, np.float32)
    assert direct is not None and direct((x,), None) is NotImplemented, "the first call makes memory for runs"
    program(x)
    del program
    gc.collect()
    for _ in range(10):
        negative, absolute = direct((x,), None)
        assert (negative == -1).all() and (absolute == 1).all()
    out = [np.empty(SMALL, np.float32) for _ in range(2)]
    for refused in (
        lambda: direct((x, x), None),
        lambda: direct((x[::-1],), None),
        lambda: direct((x.astype(np.float64),), None),
        lambda: direct(([1.0],), None),
        lambda: direct([x], None),  # pyright: ignore[reportArgumentType]
        lambda: direct((x,), out[:1]),
        lambda: direct((x,), [out[0], None]),
        lambda: direct((x,), [out[0], out[0]]),
        lambda: direct((x,), (x, out[1])),
        lambda: direct((x,), 7),
    ):
        assert refused() is NotImplemented
        assert direct((x,), out)[1] is out[1]
    assert (x == 1).all() and (out[0] == -1).all()


@needs_compiler
def test_memory_that_was_apart_is_looked_at_again():
    """The same arrays in other places, by calls of both kinds in turn."""
    program = negation(SMALL)
    memory = np.zeros(4 * SMALL, np.float32)
    x, y, z = (memory[k * SMALL : (k + 1) * SMALL] for k in range(3))
    overlapping = memory[SMALL // 2 : SMALL // 2 + SMALL]
    x[:] = np.arange(SMALL)
    expected = np.arange(SMALL, dtype=np.float32)
    for _ in range(3):
        for out in ([y, z], [z, y]):
            assert program(x, out=out)[0] is out[0]
            np.testing.assert_array_equal(out[0], -expected)
            np.testing.assert_array_equal(out[1], expected)
        np.testing.assert_array_equal(program(x, out=[overlapping, z])[0], -expected)
        x[:] = expected


@needs_compiler
def test_threads_and_changes_of_their_number():
    """Frames are taken and dropped while others run."""
    program = negation(POOLED)
    threads = thread_pool.num_threads()
    x = np.arange(POOLED, dtype=np.float32)

    def call(number: int) -> bool:
        good = True
        for turn in range(30):
            if number == 0:
                thread_pool.set_num_threads(1 + turn % 4)
            negative, absolute = program(x + number)
            good &= bool(negative[7] == -7 - number and absolute[-1] == x[-1] + number)
            if number % 3 == 1:  # the checked way
                good &= bool(program((x + number)[::-1])[0][-1] == -number)
        return good

    try:
        with ThreadPoolExecutor(20) as callers:
            assert all(callers.map(call, range(20)))
    finally:
        thread_pool.set_num_threads(threads)


CONVOLUTION = """func.func @main(%x: tensor<2x8x20x20xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<2x8x18x18xf32> {
  %r = fused.kernel(%a = %x : tensor<2x8x20x20xf32>, %b = %w : tensor<8x8x3x3xf32>) -> (tensor<2x8x18x18xf32>) {
    %c = graph.conv %a, %b : (tensor<2x8x20x20xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x18x18xf32>
    fused.yield %c : tensor<2x8x18x18xf32>
  }
  func.return %r : tensor<2x8x18x18xf32>
}"""


@needs_compiler
def test_no_memory_in_a_run_is_an_error_once():
    program = CpuProgram(build_program(parse(CONVOLUTION)))
    if program.direct is None:
        pytest.skip("no BLAS that the pool can call")
    x, w = np.ones((2, 8, 20, 20), np.float32), np.ones((8, 8, 3, 3), np.float32)
    assert (program(x, w) == 72).all()
    frame = program._calls.take()  # pyright: ignore[reportPrivateUsage]
    program._calls.give_back(frame)  # pyright: ignore[reportPrivateUsage]
    (failure,) = frame.failures
    for call in (lambda: program(x, w), lambda: program(x[::1], w[:, :, ::-1, ::-1])):
        ctypes.c_int64.from_address(failure.address).value = 1
        with pytest.raises(MemoryError, match="no memory to unfold its windows: expected some"):
            call()
        assert (call() == 72).all()
