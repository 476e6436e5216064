"""Products in one program for all sizes, alone and in a transformer block: right at each, and never a byte beside arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from guard_pages import guarded, needs_guard_pages
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.tools.compiler.specialization import SpecializedPrograms

Array = np.ndarray[Any, Any]
Shapes = Callable[[int], Sequence[tuple[int, ...]]]
LENGTHS = (1, 2, 7, 15, 16, 17, 24, 25, 63, 64, 65, 97, 512, 673)

MLP = """func.func @main(%x: tensor<?x33xf32> {graph.dims = ["n", ""]}, %w: tensor<33x130xf32>, %b: tensor<130xf32>,
                     %v: tensor<130x40xf32>) -> tensor<?x40xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x33xf32>, tensor<33x130xf32>) -> tensor<?x130xf32>
  %1 = graph.add %0, %b : (tensor<?x130xf32>, tensor<130xf32>) -> tensor<?x130xf32>
  %2 = graph.gelu %1 : (tensor<?x130xf32>) -> tensor<?x130xf32>
  %3 = graph.matmul %2, %v : (tensor<?x130xf32>, tensor<130x40xf32>) -> tensor<?x40xf32>
  func.return %3 : tensor<?x40xf32>
}"""
FAR = """func.func @main(%x: tensor<?x420xf32> {graph.dims = ["n", ""]}, %w: tensor<420x72xf32>) -> tensor<?x72xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x420xf32>, tensor<420x72xf32>) -> tensor<?x72xf32>
  %1 = graph.relu %0 : (tensor<?x72xf32>) -> tensor<?x72xf32>
  func.return %1 : tensor<?x72xf32>
}"""
TURNED = """func.func @main(%x: tensor<40x?xf32> {graph.dims = ["", "n"]}, %w: tensor<21x40xf32>) -> tensor<?x21xf32> {
  %0 = graph.matmul %x, %w {transpose_lhs = true, transpose_rhs = true}
    : (tensor<40x?xf32>, tensor<21x40xf32>) -> tensor<?x21xf32>
  func.return %0 : tensor<?x21xf32>
}"""
BATCHES = """func.func @main(%x: tensor<?x3x?x16xf32> {graph.dims = ["b", "", "n", ""]}, %w: tensor<3x16x20xf32>,
                     %u: tensor<?x3x1x20xf32> {graph.dims = ["b", "", "", ""]}) -> tensor<?x?x3x20xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x3x?x16xf32>, tensor<3x16x20xf32>) -> tensor<?x3x?x20xf32>
  %1 = graph.multiply %0, %u : (tensor<?x3x?x20xf32>, tensor<?x3x1x20xf32>) -> tensor<?x3x?x20xf32>
  %2 = graph.permute_dims %1 {axes = array<i64: 0, 2, 1, 3>} : (tensor<?x3x?x20xf32>) -> tensor<?x?x3x20xf32>
  func.return %2 : tensor<?x?x3x20xf32>
}"""
NARROW = """func.func @main(%x: tensor<?x9xf16> {graph.dims = ["n", ""]}, %w: tensor<9x1xf16>) -> tensor<?x1xf16> {
  %0 = graph.negative %x : (tensor<?x9xf16>) -> tensor<?x9xf16>
  %1 = graph.matmul %0, %w : (tensor<?x9xf16>, tensor<9x1xf16>) -> tensor<?x1xf16>
  func.return %1 : tensor<?x1xf16>
}"""
BLOCK = """func.func @main(%x: XF {graph.dims = ["b", "s", ""]}, %g: tensor<24xf32>, %w: tensor<24x72xf32>,
                     %o: tensor<24x24xf32>, %u: tensor<24x48xf32>, %d: tensor<48x24xf32>) -> XF {
  %n = graph.layer_norm %x, %g : (XF, tensor<24xf32>) -> XF
  %p = graph.matmul %n, %w : (XF, tensor<24x72xf32>) -> tensor<?x?x72xf32>
  %0, %1, %2 = graph.split %p {axis = 2 : i64, parts = 3 : i64} : (tensor<?x?x72xf32>) -> (XF, XF, XF)
  %3 = graph.reshape %0 {shape = #graph.shape<b, s, 2, 12>} : (XF) -> XS
  %4 = graph.reshape %1 {shape = #graph.shape<b, s, 2, 12>} : (XF) -> XS
  %5 = graph.reshape %2 {shape = #graph.shape<b, s, 2, 12>} : (XF) -> XS
  %q = graph.permute_dims %3 {axes = array<i64: 0, 2, 1, 3>} : (XS) -> XH
  %k = graph.permute_dims %4 {axes = array<i64: 0, 2, 1, 3>} : (XS) -> XH
  %v = graph.permute_dims %5 {axes = array<i64: 0, 2, 1, 3>} : (XS) -> XH
  %a = graph.scaled_dot_product_attention %q, %k, %v {is_causal = true} : (XH, XH, XH) -> XH
  %6 = graph.permute_dims %a {axes = array<i64: 0, 2, 1, 3>} : (XH) -> XS
  %7 = graph.reshape %6 {shape = #graph.shape<b, s, 24>} : (XS) -> XF
  %8 = graph.matmul %7, %o : (XF, tensor<24x24xf32>) -> XF
  %r = graph.add %8, %x : (XF, XF) -> XF
  %m = graph.layer_norm %r, %g : (XF, tensor<24xf32>) -> XF
  %h = graph.matmul %m, %u : (XF, tensor<24x48xf32>) -> tensor<?x?x48xf32>
  %e = graph.gelu %h : (tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
  %y = graph.matmul %e, %d : (tensor<?x?x48xf32>, tensor<48x24xf32>) -> XF
  %z = graph.add %y, %r : (XF, XF) -> XF
  func.return %z : XF
}"""
COLUMNS = """func.func @main(%x: tensor<?x33xf32> {graph.dims = ["m", ""]}, %w: tensor<33x?xf32> {graph.dims = ["", "n"]},
                     %b: tensor<?xf32> {graph.dims = ["n"]}) -> tensor<?x?xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x33xf32>, tensor<33x?xf32>) -> tensor<?x?xf32>
  %1 = graph.add %0, %b : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  %2 = graph.gelu %1 : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %2 : tensor<?x?xf32>
}"""
COLUMNS_OF_FIVE = """func.func @main(%x: tensor<5x96xf32>, %w: tensor<?x96xf32> {graph.dims = ["n", ""]}) -> tensor<5x?xf32> {
  %0 = graph.matmul %x, %w {transpose_rhs = true} : (tensor<5x96xf32>, tensor<?x96xf32>) -> tensor<5x?xf32>
  func.return %0 : tensor<5x?xf32>
}"""
DEPTH = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "k"]}, %w: tensor<?x50xf32> {graph.dims = ["k", ""]})
    -> tensor<?x50xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x?xf32>, tensor<?x50xf32>) -> tensor<?x50xf32>
  func.return %0 : tensor<?x50xf32>
}"""
GRADIENT = """func.func @main(%x: tensor<?x40xf32> {graph.dims = ["k", ""]}, %g: tensor<?x70xf32> {graph.dims = ["k", ""]})
    -> tensor<40x70xf32> {
  %0 = graph.matmul %x, %g {transpose_lhs = true} : (tensor<?x40xf32>, tensor<?x70xf32>) -> tensor<40x70xf32>
  %1 = graph.negative %0 : (tensor<40x70xf32>) -> tensor<40x70xf32>
  func.return %1 : tensor<40x70xf32>
}"""
EVERY = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["k", "m"]}, %w: tensor<?x?xf32> {graph.dims = ["n", "k"]})
    -> tensor<?x?xf32> {
  %0 = graph.matmul %x, %w {transpose_lhs = true, transpose_rhs = true} : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %0 : tensor<?x?xf32>
}"""
CHAIN = """func.func @main(%x: tensor<?x2x?x16xf32> {graph.dims = ["b", "", "m", ""]},
                     %w: tensor<?x2x16x?xf32> {graph.dims = ["b", "", "", "n"]},
                     %v: tensor<?x2x?x9xf32> {graph.dims = ["b", "", "n", ""]}) -> tensor<?x2x?x9xf32> {
  %0 = graph.matmul %x, %w : (tensor<?x2x?x16xf32>, tensor<?x2x16x?xf32>) -> tensor<?x2x?x?xf32>
  %1 = graph.tanh %0 : (tensor<?x2x?x?xf32>) -> tensor<?x2x?x?xf32>
  %2 = graph.matmul %1, %v : (tensor<?x2x?x?xf32>, tensor<?x2x?x9xf32>) -> tensor<?x2x?x9xf32>
  func.return %2 : tensor<?x2x?x9xf32>
}"""
NARROW_COLUMNS = """func.func @main(%x: tensor<?x9xf16> {graph.dims = ["m", ""]}, %w: tensor<9x?xf16> {graph.dims = ["", "n"]})
    -> tensor<?x?xf16> {
  %0 = graph.matmul %x, %w : (tensor<?x9xf16>, tensor<9x?xf16>) -> tensor<?x?xf16>
  func.return %0 : tensor<?x?xf16>
}"""
ATTENTION = """func.func @main(%q: tensor<2x?x12xf32> {graph.dims = ["", "m", ""]},
                     %k: tensor<2x?x12xf32> {graph.dims = ["", "n", ""]},
                     %v: tensor<2x?x9xf32> {graph.dims = ["", "n", ""]},
                     %b: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> tensor<2x?x9xf32> {
  %0 = graph.scaled_dot_product_attention %q, %k, %v, %b {is_causal = CAUSAL}
    : (tensor<2x?x12xf32>, tensor<2x?x12xf32>, tensor<2x?x9xf32>, tensor<?x?xf32>) -> tensor<2x?x9xf32>
  func.return %0 : tensor<2x?x9xf32>
}"""
FEW = "attributes {graph.symbols = {k = {most = 256}}} {\n"
SHORT = {"XF": "tensor<?x?x24xf32>", "XS": "tensor<?x?x2x12xf32>", "XH": "tensor<?x2x?x12xf32>"}
CASES: dict[str, tuple[str, Shapes]] = {
    "mlp": (MLP, lambda n: [(n, 33), (33, 130), (130,), (130, 40)]),
    "far": (FAR, lambda n: [(n, 420), (420, 72)]),
    "turned": (TURNED, lambda n: [(40, n), (21, 40)]),
    "batches": (BATCHES, lambda n: [(n % 3 + 1, 3, n, 16), (3, 16, 20), (n % 3 + 1, 3, 1, 20)]),
    "transformer block": (
        BLOCK,
        lambda n: [(1 if n > 99 else n % 3 + 1, n, 24), (24,), (24, 72), (24, 24), (24, 48), (48, 24)],
    ),
    "attention": (
        ATTENTION.replace("CAUSAL", "false"),
        lambda n: [(2, n % 40 + 1, 12), (2, n, 12), (2, n, 9), (n % 40 + 1, n)],
    ),
    "causal attention": (
        ATTENTION.replace("CAUSAL", "true"),
        lambda n: [(2, n, 12), (2, n % 70 + 1, 12), (2, n % 70 + 1, 9), (n, n % 70 + 1)],
    ),
    "decode attention": (
        ATTENTION.replace('2x?x12xf32> {graph.dims = ["", "m", ""]}', "2x3x12xf32>")
        .replace("(tensor<2x?x12xf32>, ", "(tensor<2x3x12xf32>, ")
        .replace("tensor<?x?xf32>", "tensor<3x?xf32>")
        .replace('["m", "n"]', '["", "n"]')
        .replace("tensor<2x?x9xf32>\n", "tensor<2x3x9xf32>\n")
        .replace("-> tensor<2x?x9xf32>", "-> tensor<2x3x9xf32>")
        .replace("return %0 : tensor<2x?x9xf32>", "return %0 : tensor<2x3x9xf32>")
        .replace("CAUSAL", "false"),
        lambda n: [(2, 3, 12), (2, n, 12), (2, n, 9), (3, n)],
    ),
    "attention to one key": (
        ATTENTION.replace('2x?x12xf32> {graph.dims = ["", "n", ""]}', "2x1x12xf32>")
        .replace('2x?x9xf32> {graph.dims = ["", "n", ""]}', "2x1x9xf32>")
        .replace('?x?xf32> {graph.dims = ["m", "n"]}', '?x1xf32> {graph.dims = ["m", ""]}')
        .replace(
            "tensor<2x?x12xf32>, tensor<2x?x9xf32>, tensor<?x?xf32>",
            "tensor<2x1x12xf32>, tensor<2x1x9xf32>, tensor<?x1xf32>",
        )
        .replace("CAUSAL", "false"),
        lambda n: [(2, n, 12), (2, 1, 12), (2, 1, 9), (n, 1)],
    ),
    "columns": (COLUMNS, lambda n: [(n % 37 + 1, 33), (33, n), (n,)]),
    "columns of many rows": (COLUMNS, lambda n: [(n, 33), (33, n % 141 + 1), (n % 141 + 1,)]),
    "columns of five rows": (COLUMNS_OF_FIVE, lambda n: [(5, 96), (n, 96)]),
    "depth": (DEPTH, lambda n: [(n % 37 + 1, n), (n, 50)]),
    "gradient": (GRADIENT, lambda n: [(n, 40), (n, 70)]),
    "depth of one block": (DEPTH.replace("{\n", FEW, 1), lambda n: [(n % 37 + 1, n % 256 + 1), (n % 256 + 1, 50)]),
    "gradient of one block": (GRADIENT.replace("{\n", FEW, 1), lambda n: [(n % 256 + 1, 40), (n % 256 + 1, 70)]),
    "every extent": (EVERY, lambda n: [(n, n % 29 + 1), (n % 90 + 1, n)]),
    "chain": (CHAIN, lambda n: [(n % 3 + 1, 2, n % 30 + 1, 16), (n % 3 + 1, 2, 16, n), (n % 3 + 1, 2, n, 9)]),
    "narrow columns": (NARROW_COLUMNS, lambda n: [(n % 37 + 1, 9), (9, n)]),
    "narrow": (NARROW, lambda n: [(n, 9), (9, 1)]),
}


@pytest.mark.sampled(12)
@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("name", CASES)
def test_one_program_runs_at_every_size(name: str) -> None:
    text, shapes = CASES[name]
    for short, kind in SHORT.items():
        text = text.replace(short, kind)
    element = np.float16 if "narrow" in name else np.float32
    program, rng = fuse_opt.compile(text), np.random.default_rng(3)
    for number, length in enumerate(LENGTHS):
        given = [(rng.standard_normal(shape) * shape[0] ** -0.5).astype(element) for shape in shapes(length)]
        wanted = cast("Array", fuse_opt.evaluate(text, *given))
        with guarded() as allocate:
            arrays = [allocate(array, at_end=number % 2 == 0) for array in given]
            out = allocate(np.full_like(wanted, np.nan), at_end=number % 2 == 0)
            program(*arrays, out=out)
            np.testing.assert_allclose(out, wanted, 1e-5 if element is np.float32 else 4e-3, 2e-5)
    assert isinstance(program.native, SpecializedPrograms)
    assert program.native.made == 0
    if "attention" in text:
        assert "float scores[" in program.source and not program.stats.library_calls


FROZEN = """func.func @main(%x: tensor<?x200xT> {graph.dims = ["n", ""]}, %w: tensor<200x150xT> {graph.frozen},
                     %v: tensor<90x150xT> {graph.frozen}, %b: tensor<90xT>) -> tensor<?x90xT> {
  %0 = graph.matmul %x, %w : (tensor<?x200xT>, tensor<200x150xT>) -> tensor<?x150xT>
  %1 = graph.relu %0 : (tensor<?x150xT>) -> tensor<?x150xT>
  %2 = graph.matmul %1, %v {transpose_rhs = true} : (tensor<?x150xT>, tensor<90x150xT>) -> tensor<?x90xT>
  %3 = graph.add %2, %b : (tensor<?x90xT>, tensor<90xT>) -> tensor<?x90xT>
  func.return %3 : tensor<?x90xT>
}"""


@needs_compiler
@needs_guard_pages
@pytest.mark.parametrize("element", [np.float32, np.float64])
def test_frozen_weights_of_any_rows_are_read_in_panels(element: type[np.floating[Any]]) -> None:
    """Few rows and many, those of a tile and of what is left of one; panels are made once, and again for other weights."""
    text, rng = FROZEN.replace("xT", f"xf{8 * np.dtype(element).itemsize}"), np.random.default_rng(8)
    program = fuse_opt.compile(text)
    for again in range(2):
        w, v, b = (rng.standard_normal(shape).astype(element) for shape in ((200, 150), (90, 150), (90,)))
        program.freeze({1: w, 2: v})
        for number, n in enumerate((*LENGTHS, 1, 2, 5, 6, 7, 12, 13)):
            x = rng.standard_normal((n, 200)).astype(element)
            wanted = cast("Array", fuse_opt.evaluate(text, x, w, v, b))
            with guarded() as allocate:
                out = allocate(np.full_like(wanted, np.nan), at_end=number % 2 == 0)
                program(allocate(x, at_end=number % 2 == 0), b, out=out)
                np.testing.assert_allclose(out, wanted, 1e-4, 1e-3 if element is np.float32 else 1e-10)
        assert again == 0 or program.native.made == 0
    assert "w_packed" in program.source and "v_packed" in program.source
