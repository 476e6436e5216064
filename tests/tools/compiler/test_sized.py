"""One program for all sizes of a range: one text and one object, right at each size, and never a byte beside its arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler
from sized_texts import SOFTMAXES

import fuse_opt
from fuse_opt.lowering import emit
from fuse_opt.passes.remarks import collect
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
Shapes = Callable[[int], Sequence[tuple[int, ...]]]
LENGTHS = (1, 2, 7, 16, 17, 64, 97)

ROWS = """func.func @main(%x: tensor<?x24xf32>, %b: tensor<24xf32>) -> tensor<?x24xf32> {
  %0 = graph.add %x, %b : (tensor<?x24xf32>, tensor<24xf32>) -> tensor<?x24xf32>
  %1 = graph.gelu %0 : (tensor<?x24xf32>) -> tensor<?x24xf32>
  func.return %1 : tensor<?x24xf32>
}"""
BROADCAST = """func.func @main(%x: tensor<?x3x?xf32> {graph.dims = ["b", "", "n"]}, %y: tensor<3x?xf32> {graph.dims = ["", "n"]},
                     %z: tensor<?x1x1xf32> {graph.dims = ["b", "", ""]}) -> tensor<?x3x?xf32> {
  %0 = graph.add %x, %y : (tensor<?x3x?xf32>, tensor<3x?xf32>) -> tensor<?x3x?xf32>
  %1 = graph.multiply %0, %z : (tensor<?x3x?xf32>, tensor<?x1x1xf32>) -> tensor<?x3x?xf32>
  func.return %1 : tensor<?x3x?xf32>
}"""
SOFTMAX = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]},
                     %b: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32> {
  %0 = graph.add %x, %b : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  %1 = graph.softmax %0 : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}"""
IN_PLACE = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"], graph.donated}) -> tensor<?x?xf32> {
  %1 = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}"""
LAYER_NORM = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]},
                     %s: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32> {
  %1 = graph.layer_norm %x, %s : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  func.return %1 : tensor<?x?xf32>
}"""
CONCAT = """func.func @main(%x: tensor<3x?xf32>, %y: tensor<3x?xf32>) -> tensor<3x?xf32> {
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<3x?xf32>, tensor<3x?xf32>) -> tensor<3x?xf32>
  %1 = graph.square %0 : (tensor<3x?xf32>) -> tensor<3x?xf32>
  func.return %1 : tensor<3x?xf32>
}"""
MOVED = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %0 = graph.flip %x {axes = array<i64: 1>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = graph.pad %0 {pads = array<i64: 0, 2, 0, 3>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %2 = graph.var %x {axes = array<i64: 1>, correction = 1 : i64} : (tensor<?x?xf32>) -> tensor<?xf32>
  func.return %1, %2 : tensor<?x?xf32>, tensor<?xf32>
}"""
LOSS = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]},
                     %t: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> tensor<f32> {
  %0 = graph.smooth_l1_loss %x, %t : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}"""
PARTS = """func.func @main(%x: tensor<?x?x6xf32> {graph.dims = ["m", "n", ""]}) -> (tensor<?x?x3x2xf32>, tensor<?x?x2xf32>)
    attributes {graph.symbols = {n = {least = 2 : i64}}} {
  %0 = graph.slice %x {starts = array<i64: 0, 1, 1>, stops = array<i64: 9223372036854775807, 9223372036854775807, 3>}
    : (tensor<?x?x6xf32>) -> tensor<?x?x2xf32>
  %1 = graph.reshape %x {shape = #graph.shape<m, n{least = 2}, 3, 2>} : (tensor<?x?x6xf32>) -> tensor<?x?x3x2xf32>
  %2 = graph.negative %1 : (tensor<?x?x3x2xf32>) -> tensor<?x?x3x2xf32>
  %3 = graph.negative %0 : (tensor<?x?x2xf32>) -> tensor<?x?x2xf32>
  func.return %2, %3 : tensor<?x?x3x2xf32>, tensor<?x?x2xf32>
}"""
CASES: dict[str, tuple[str, Shapes]] = {
    "rows": (ROWS, lambda n: [(n, 24), (24,)]),
    "broadcast": (BROADCAST, lambda n: [(n % 3 + 1, 3, n), (3, n), (n % 3 + 1, 1, 1)]),
    "softmax": (SOFTMAX, lambda n: [(n % 4 + 1, n), (n,)]),
    "layer norm": (LAYER_NORM, lambda n: [(n % 4 + 1, n), (n,)]),
    "concat": (CONCAT, lambda n: [(3, n), (3, n % 5 + 2)]),
    "in place": (IN_PLACE, lambda n: [(n % 4 + 1, n)]),
    "moved": (MOVED, lambda n: [(n % 4 + 1, n)]),
    "parts": (PARTS, lambda n: [(n % 4 + 1, n + 1, 6)]),
    "loss": (LOSS, lambda n: [(n % 4 + 1, n)] * 2),
    "kernels": (SOFTMAXES, lambda n: [(n % 4 + 1, n), (n, n % 4 + 1)]),
}


def drawn(shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def made_apart(program: fuse_opt.CompiledProgram) -> int:
    """How many programs were compiled for shapes of their own."""
    assert isinstance(program.native, SpecializedPrograms)
    return program.native.made


@pytest.mark.sampled(6)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_one_program_runs_at_every_size(name: str) -> None:
    text, shapes = CASES[name]
    program = fuse_opt.compile(text)
    sources: set[str] = set()
    for number, length in enumerate(LENGTHS):
        given = drawn(shapes(length))
        wanted = fuse_opt.evaluate(text, *given)
        with guarded() as allocate:
            arrays = [allocate(array, at_end=number % 2 == 0) for array in given]
            results = cast("tuple[Array, ...]", wanted if isinstance(wanted, tuple) else (wanted,))
            out = [allocate(np.full_like(one, np.nan), at_end=number % 2 == 0) for one in results]
            program(*arrays, out=out)
            for found, one in zip(out, results, strict=True):
                np.testing.assert_allclose(found, one, 2e-6, 2e-6)
        sources.add(program.source)
    assert made_apart(program) == 0 and len(sources) == 1


@needs_compiler
def test_what_the_range_leaves_out_is_compiled_by_itself() -> None:
    program = fuse_opt.compile(SOFTMAX)
    program(*drawn([(3, 5), (5,)]))
    assert program(*drawn([(0, 5), (5,)])).shape == (0, 5) and made_apart(program) == 1
    with pytest.raises(ValueError, match="extent 'n': argument 0, axis 1 has 5, argument 1, axis 0 has 4"):
        program(*drawn([(3, 5), (4,)]))


@needs_compiler
def test_what_is_undecided_is_compiled_for_each_set_of_shapes_with_a_remark() -> None:
    text = """func.func @main(%g: tensor<?x4x8xf16> {graph.dims = ["n", "", ""]},
                            %x: tensor<?x3x9xf16> {graph.dims = ["n", "", ""]}) -> tensor<4x3x2xf16> {
      %0 = graph.conv_backward_weight %g, %x {kernel_shape = array<i64: 2>}
        : (tensor<?x4x8xf16>, tensor<?x3x9xf16>) -> tensor<4x3x2xf16>
      func.return %0 : tensor<4x3x2xf16>
    }"""
    program = fuse_opt.compile(text)
    with collect() as remarks:
        for length in (2, 3):
            given = [array.astype(np.float16) for array in drawn([(length, 4, 8), (length, 3, 9)])]
            np.testing.assert_allclose(program(*given), fuse_opt.evaluate(text, *given), 1e-2, 1e-2)
    assert made_apart(program) == 2
    (found,) = [remark for remark in remarks if remark.pass_name == "compile"]
    assert (found.code, found.op_name) == ("specialised", "graph.conv_backward_weight")
    assert "'numpy.conv_backward_weight' takes extents" in found.message


@needs_compiler
@needs_guard_pages
def test_longer_rows_than_code_has_memory_for_have_a_program_of_their_own() -> None:
    program = fuse_opt.compile(SOFTMAX)
    sources: list[str] = []
    for length in (16384, 16385, 20011, 16383):
        given = drawn([(2, length), (length,)])
        with guarded() as allocate:
            arrays = [allocate(array, at_end=True) for array in given]
            out = allocate(np.full_like(given[0], np.nan), at_end=True)
            program(*arrays, out=out)
            np.testing.assert_allclose(out, fuse_opt.evaluate(SOFTMAX, *given), 2e-5, 1e-9)
        sources.append(program.source)
    assert made_apart(program) == 0
    assert sources[0] == sources[3] != sources[1] == sources[2]


@needs_compiler
def test_more_sizes_in_turn_than_are_kept_from_several_threads() -> None:
    program = fuse_opt.compile(ROWS)
    wrong: list[int] = []

    def call(lengths: Sequence[int]) -> None:
        for length in lengths:
            (x, b) = drawn([(length, 24), (24,)])
            if not np.array_equal(program(x, b), wanted[length]):
                wrong.append(length)

    lengths = range(1, SpecializedPrograms.KEPT + 12)
    wanted = {length: program(*drawn([(length, 24), (24,)])) for length in lengths}
    threads = [Thread(target=call, args=([*lengths[::step], *lengths[-3:]],)) for step in (1, -1, 2, -3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and made_apart(program) == 0
    program(*drawn([(5, 24), (24,)]))
    assert program.stats.arena_bytes == 0 and program.native.direct((1.0,), None) is NotImplemented


@needs_compiler
def test_a_fault_of_lowering_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*arguments: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(emit, "build_sized_program", fault)
    with pytest.raises(ValueError, match="a fault"):
        fuse_opt.compile(SOFTMAX)(*drawn([(3, 5), (5,)]))


@needs_compiler
def test_what_an_op_asks_of_numbers_is_asked_at_each_call() -> None:
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<2x3xf32> {
  %0 = graph.broadcast_to %x {shape = array<i64: 2, 3>} : (tensor<?xf32>) -> tensor<2x3xf32>
  func.return %0 : tensor<2x3xf32>
}"""
    program = fuse_opt.compile(text)
    for length in (3, 1):
        np.testing.assert_array_equal(program(*drawn([(length,)])), fuse_opt.evaluate(text, *drawn([(length,)])))
    with pytest.raises(Exception, match="do not broadcast"):
        program(*drawn([(4,)]))


@needs_compiler
def test_a_constant_of_unknown_extents_that_is_a_result_is_made_for_numbers() -> None:
    type_ = "tensor<?x4xf32, #graph.shape<n, 4>>"
    program = fuse_opt.compile(f"""func.func @main(%x: {type_}) -> ({type_}, {type_}) {{
      %c = graph.full {{value = 2.0 : f64, dtype = f32, shape = #graph.shape<n, 4>}} : () -> {type_}
      %y = graph.add %x, %x : ({type_}, {type_}) -> {type_}
      func.return %c, %y : {type_}, {type_}
    }}""")
    for n in (3, 7):
        x = np.ones((n, 4), np.float32)
        for result in program(x):
            np.testing.assert_array_equal(result, 2 * x)


@needs_compiler
def test_extents_whose_product_is_no_number_of_64_bits_are_refused() -> None:
    text = """func.func @main(%x: tensor<?x1x1xf64> {graph.dims = ["a", "", ""]}, %y: tensor<?x1xf64> {graph.dims = ["b", ""]},
                            %z: tensor<?xf64> {graph.dims = ["c"]}) -> tensor<?x?x?xf64> {
      %0 = graph.add %x, %y : (tensor<?x1x1xf64>, tensor<?x1xf64>) -> tensor<?x?x1xf64>
      %1 = graph.add %0, %z : (tensor<?x?x1xf64>, tensor<?xf64>) -> tensor<?x?x?xf64>
      func.return %1 : tensor<?x?x?xf64>
    }"""
    program = fuse_opt.compile(text)
    assert program(np.ones((3, 1, 1)), np.ones((4, 1)), np.ones(5)).shape == (3, 4, 5)
    a, b, c = np.ones((1 << 20, 1, 1)), np.ones((1 << 20, 1)), np.ones(1 << 20)
    for _ in range(2):  # by the checked call, and by compiled code as it is met again
        with pytest.raises(
            OverflowError, match=r"extents a = 1048576, b = 1048576, c = 1048576 give more than 2\*\*63 bytes"
        ):
            program(a, b, c)
    assert program(np.ones((3, 1, 1)), np.ones((4, 1)), np.ones(5)).shape == (3, 4, 5)
