"""Kernels whose extents are sizes: one text, right at many values, in every scheme; and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import memory_graphs as graphs
import numpy as np
import pytest
from cuda_on_cpu import ORDERS, needs_cxx
from cuda_sized import SizedOnCpu
from draws import draws
from ir_testing import Array, evaluate, parse
from narrow_floats import decode, encode
from sized_programs import IMAGES, SizedSubject, sized_program

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for
from fuse_opt.dialects.interfaces.symbols import argument_extents
from fuse_opt.dialects.types.extents import evaluate as evaluate_extent
from fuse_opt.dialects.types.size import SizeRefusal, symbol
from fuse_opt.lowering.emit.sized_program import LongRows
from fuse_opt.lowering.program import GridLaunch, Program, Segment
from fuse_opt.lowering.program.float_formats import NARROW
from fuse_opt.runtime.cuda.sized_program import without_empty_launches

LENGTHS = (1, 2, 3, 4, 7, 31, 32, 33, 127, 130, 517)


def one_op(line: str, x: str, r: str) -> str:
    line = f"graph.{line} : (tensor<{x}>) -> tensor<{r}>"
    return f"func.func @f(%x: tensor<{x}>) -> tensor<{r}> {{ %r = {line} func.return %r : tensor<{r}> }}"


LAYER_NORM = """func.func @f(%x: tensor<?x96xf32> {graph.donated}, %s: tensor<96xf32>, %b: tensor<96xf32>) -> tensor<?x96xf32> {
  %r = graph.layer_norm %x, %s, %b {axis = -1 : i64} : (tensor<?x96xf32>, tensor<96xf32>, tensor<96xf32>) -> tensor<?x96xf32>
  func.return %r : tensor<?x96xf32>
}"""
ADDED = """func.func @f(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %y: tensor<?x?xf32> {graph.dims = ["n", "m"]},
                   %b: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32> {
  %t = graph.permute_dims %y {axes = array<i64: 1, 0>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = graph.add %x, %t : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = graph.add %a, %b : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  func.return %r : tensor<?x?xf32>
}"""
JOINED = """func.func @f(%x: tensor<?x24xf32>, %y: tensor<?x24xf32>) -> tensor<?x24xf32> {
  %c = graph.concat %x, %y {axis = 0 : i64} : (tensor<?x24xf32>, tensor<?x24xf32>) -> tensor<?x24xf32>
  %r = graph.square %c : (tensor<?x24xf32>) -> tensor<?x24xf32>
  func.return %r : tensor<?x24xf32>
}"""
PRODUCT = """func.func @f(%x: tensor<?x48xf32>, %w: tensor<48x20xf32>, %b: tensor<20xf32>) -> tensor<?x20xf32> {
  %m = graph.matmul %x, %w : (tensor<?x48xf32>, tensor<48x20xf32>) -> tensor<?x20xf32>
  %a = graph.add %m, %b : (tensor<?x20xf32>, tensor<20xf32>) -> tensor<?x20xf32>
  %r = graph.softmax %a {axis = -1 : i64} : (tensor<?x20xf32>) -> tensor<?x20xf32>
  func.return %r : tensor<?x20xf32>
}"""
SEVERAL = """func.func @f(%x: tensor<?x12xf32>, %y: tensor<?xf32>) -> (tensor<?x12xf32>, tensor<?xf32>) {
  %a = graph.softmax %x {axis = -1 : i64} : (tensor<?x12xf32>) -> tensor<?x12xf32>
  %b = graph.tanh %y : (tensor<?xf32>) -> tensor<?xf32>
  func.return %a, %b : tensor<?x12xf32>, tensor<?xf32>
}"""

ROWS, COLUMNS, LAST = "softmax %x {axis = -1 : i64}", "{axes = array<i64: 0>}", "{axes = array<i64: 1>}"
EVERY_OTHER = LENGTHS[::2]
Shapes = Sequence[Sequence[tuple[int, ...]]]
PROGRAMS: dict[str, tuple[str, str, Shapes]] = {
    "pointwise": (one_op("exp %x", "?xf32", "?xf32"), "pointwise", [[(n,)] for n in (*LENGTHS, 5000)]),
    "pointwise of rows": (one_op("tanh %x", "?x5xbf16", "?x5xbf16"), "pointwise", [[(n, 5)] for n in LENGTHS]),
    "short rows": (one_op(ROWS, "?x64xf32", "?x64xf32"), "row, warp", [[(n, 64)] for n in LENGTHS]),
    "long rows": (one_op(ROWS, "?x1000xf32", "?x1000xf32"), "row, block", [[(n, 1000)] for n in LENGTHS[:7]]),
    "rows of odd length": (one_op(ROWS, "?x77xf16", "?x77xf16"), "row", [[(n, 77)] for n in LENGTHS[:9]]),
    "columns that are sizes": (one_op(ROWS, "19x?xf32", "19x?xf32"), "row, stream", [[(19, n)] for n in LENGTHS]),
    "both are sizes": (
        one_op(ROWS, "?x?xf32", "?x?xf32"), "row, stream", [[(m, n)] for m in (1, 6, 40) for n in EVERY_OTHER]
    ),
    "rows in place": (LAYER_NORM, "row", [[(n, 96), (96,), (96,)] for n in LENGTHS]),
    "sum of all": (one_op("sum %x", "?xf32", "f32"), "split", [[(n,)] for n in (*LENGTHS, 70000)]),
    "sum over columns": (
        one_op(f"sum %x {COLUMNS}", "?x96xf32", "96xf32"), "split", [[(n, 96)] for n in (*LENGTHS, 3333)]
    ),
    "variance of columns": (
        one_op(f"var %x {COLUMNS}", "?x96xf32", "96xf32"), "", [[(n, 96)] for n in (*LENGTHS, 3333)]
    ),
    "variance of rows": (one_op(f"var %x {LAST}", "33x?xf32", "33xf32"), "row", [[(33, n)] for n in LENGTHS]),
    "maxima of any columns": (
        one_op(f"max %x {COLUMNS}", "?x?xf32", "?xf32"), "column", [[(m, n)] for m in EVERY_OTHER for n in (1, 31, 40)]
    ),
    "a transpose": (ADDED, "tile", [[(m, n), (n, m), (n,)] for m in (1, 5, 40) for n in EVERY_OTHER]),
    "batches of a transpose": (
        one_op("permute_dims %x {axes = array<i64: 0, 2, 1>}", "?x?x20xf32", "?x20x?xf32"), "",
        [[(b, n, 20)] for b in (1, 3) for n in EVERY_OTHER],
    ),
    "joined": (JOINED, "pointwise", [[(m, 24), (n, 24)] for m in LENGTHS[::3] for n in EVERY_OTHER]),
    "a product": (PRODUCT, "row", [[(n, 48), (48, 20), (20,)] for n in LENGTHS[:8]]),
    "side by side": (SEVERAL, "", [[(m, 12), (n,)] for m in (1, 9, 130) for n in LENGTHS[::3]]),
}  # fmt: skip
"""A program, the scheme that is chosen for a kernel of it, and shapes of arguments."""


def _drawn(shapes: Sequence[tuple[int, ...]], element: str) -> list[Array]:
    rng = np.random.default_rng(len(shapes) + sum(map(sum, shapes)))
    arrays = (np.asarray(rng.standard_normal(shape)) for shape in shapes)
    return [
        np.asarray(encode(a, element)) if element in NARROW else a.astype(f"f{int(element[1:]) // 8}") for a in arrays
    ]


def _assert_close(found: Sequence[Array], wanted: Sequence[Array], about: object) -> None:
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in wanted], about
    for a, b in zip(found, wanted, strict=True):
        near = 2e-2 if a.dtype.itemsize < 4 else 2e-5
        np.testing.assert_allclose(decode(a).astype("f8"), decode(b).astype("f8"), near, near, err_msg=str(about))


@pytest.mark.sampled(10)
@needs_cxx
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_text_is_right_at_many_sizes(name: str) -> None:
    text, scheme, cases = PROGRAMS[name]
    program, module = SizedOnCpu(text), parse(text)
    assert any(each.startswith(scheme) for each in program.schedules()), program.schedules()
    element = "bf16" if "bf16" in text else "f16" if "xf16" in text else "f32"
    for number, shapes in enumerate(cases):
        arrays = _drawn(shapes, element)
        found = program(arrays, [*ORDERS.values()][number % len(ORDERS)])
        _assert_close(found, evaluate(module, arrays), shapes)


@needs_cxx
def test_attention_takes_any_numbers_of_queries_and_keys() -> None:
    batch, tokens = symbol("batch", most=256), symbol("tokens", most=512)
    with sizes_asked_for():
        text = str(graphs.transformer(1, batch, tokens, 32, 4))
    program, module = SizedOnCpu(text), parse(text)
    assert any(each.startswith("attention") for each in program.schedules())
    assert program.sized.program.stats.host_ops == 0, "products are the device's"
    for values in ({"batch": 1, "tokens": 1}, {"batch": 3, "tokens": 33}, {"batch": 1, "tokens": 100}):
        extents = argument_extents(program.function)
        arrays = _drawn([tuple(evaluate_extent(n, values) for n in each) for each in extents], "f32")
        _assert_close(program([0.3 * a for a in arrays]), evaluate(module, [0.3 * a for a in arrays]), values)


@needs_cxx
def test_random_programs_over_symbols() -> None:
    """Convolutions that a library runs for numbers are specialised, and so are a few programs of undecided sizes."""
    refused: list[int] = []
    for_libraries: list[int] = []
    seeds = draws(30)
    for seed in seeds:
        text = str(sized_program(seed)).replace(" {graph.frozen}", "").replace("graph.frozen, ", "")
        subject = SizedSubject.of(text, 2 * seed + 1)  # without NaN
        try:
            program = SizedOnCpu(text)
        except SizeRefusal as refusal:
            (for_libraries if "'graph.conv': of sizes it runs on the host" in str(refusal) else refused).append(seed)
            continue
        for arguments, results in zip(subject.arguments, subject.results, strict=True):
            _assert_close(program(arguments), results, seed)
    assert 10 * len(refused) <= len(seeds), refused
    assert IMAGES * len(for_libraries) < len(seeds), "some programs of images run"


def test_numbers_of_32_bits_are_for_small_buffers() -> None:
    """Positions are of 64 bits in the text for larger ones, which is another one."""
    text, name = one_op("exp %x", "?xf32", "?xf32"), "x.0"
    small, large = SizedOnCpu(text), SizedOnCpu(text, long_rows=True)
    assert "long" not in small.source.partition('extern "C"')[2] and "long size" in large.source
    assert small.sized.at({name: 2**30 - 1}).steps and large.sized.at({name: 2**30}).steps
    with pytest.raises(LongRows, match="expected 1073741823 at most"):
        small.sized.at({name: 2**30})


def _only_launch(program: Program) -> GridLaunch:
    (step,) = program.steps
    assert isinstance(step, Segment)
    (launch,) = step.launches
    assert isinstance(launch, GridLaunch)
    return launch


def test_known_extents_stay_numbers() -> None:
    launch = _only_launch(SizedOnCpu(one_op("exp %x", "4096x64xf32", "4096x64xf32")).sized.program)
    assert (launch.sizes, launch.tasks) == ((), 512)


def test_grids_and_sizes_follow_from_extents() -> None:
    program = SizedOnCpu(one_op("exp %x", "?x64xf32", "?x64xf32")).sized
    whole = _only_launch(program.program)
    for rows in (1, 100, 12345):
        launch = _only_launch(program.at({"x.0": rows}))
        other = launch.unaligned
        assert other is not None and other.sizes[-1] == launch.sizes[-1] == 64 * rows
        for each, of in ((launch, whole), (other, whole.unaligned)):
            assert of is not None and each.tasks == evaluate_extent(of.tasks, {"x.0": rows})
            assert each.grid == (each.tasks, 1, 1) and each.block == of.block
            full = each.sizes[0]
            assert full in (each.tasks, each.tasks - 1), "blocks that have all of their elements"


@needs_cxx
def test_a_call_has_one_of_the_launches_for_lengths_of_rows() -> None:
    program = SizedOnCpu(one_op(ROWS, "19x?xf32", "19x?xf32"))
    (name,) = program.values([np.zeros((19, 5), np.float32)])
    for columns, place in ((1, 0), (64, 0), (65, 1), (512, 1), (513, 2), (10**6, 2)):
        found = program.sized.at({name: columns})
        (step,) = found.steps
        assert isinstance(step, Segment)
        assert [bool(launch.tasks) for launch in step.launches] == [number == place for number in range(3)]
        (left,) = without_empty_launches(found).steps
        assert isinstance(left, Segment) and left.launches == (step.launches[place],)


def test_what_the_host_runs_is_refused() -> None:
    """Where extents are numbers, a library of the device may run it."""
    x, w, r = "?x8x9x9xf32", "8x8x3x3xf32", "?x8x7x7xf32"
    text = f"""func.func @f(%x: tensor<{x}>, %w: tensor<{w}>) -> tensor<{r}> {{
      %r = graph.conv %x, %w : (tensor<{x}>, tensor<{w}>) -> tensor<{r}>
      func.return %r : tensor<{r}> }}"""
    with pytest.raises(SizeRefusal, match="'graph.conv': of sizes it runs on the host"):
        SizedOnCpu(text)
