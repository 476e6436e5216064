"""Keys of kernels: the same whatever values are called and ops are ordered, others where anything that is computed differs."""

from __future__ import annotations

import pytest
from ir_testing import parse

from fuse_opt.dialects.analysis.kernel_key import KernelKey, kernel_key
from fuse_opt.dialects.fused import KernelOp

TEXT = """
func.func @main(%x: tensor<8x4xf32>, %y: tensor<4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
  %0, %1 = fused.kernel(%a = %x : tensor<8x4xf32>, %b = %y : tensor<4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
    %e = graph.exp %a : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %n = graph.negative %b : (tensor<4xf32>) -> tensor<4xf32>
    %m = graph.multiply %e, %n : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
    %s = graph.sum %m {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
    fused.yield %m, %s : tensor<8x4xf32>, tensor<8xf32>
  }
  func.return %0, %1 : tensor<8x4xf32>, tensor<8xf32>
}"""
EXP = "    %e = graph.exp %a : (tensor<8x4xf32>) -> tensor<8x4xf32>\n"
NEGATE = "    %n = graph.negative %b : (tensor<4xf32>) -> tensor<4xf32>\n"
ARGUMENTS = "%a = %x : tensor<8x4xf32>, %b = %y : tensor<4xf32>"


def key(text: str, *overwritten: int, **words: str) -> KernelKey:
    (kernel,) = [op for op in parse(text).walk() if isinstance(op, KernelOp)]
    return kernel_key(kernel, overwritten, words)


@pytest.mark.parametrize(
    "same",
    [
        TEXT.replace("%e", "%other").replace("%m", "%e").replace("@main", "@f"),
        TEXT.replace(EXP + NEGATE, NEGATE + EXP),
        TEXT.replace(ARGUMENTS, ", ".join(reversed(ARGUMENTS.split(", ")))),
        TEXT.replace("tensor<8xf32>) {", 'tensor<8xf32>) attributes {schedule = {kind = "row"}} {', 1)
        .replace("fused.yield", "%dead = graph.exp %b : (tensor<4xf32>) -> tensor<4xf32>\n    fused.yield")
        .replace(EXP, EXP.replace(" : (", " {keep_live} : (")),
    ],
)
def test_equal(same: str) -> None:
    assert same != TEXT
    assert key(same) == key(TEXT)


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace("graph.exp", "graph.tanh"),
        TEXT.replace("f32", "f64"),
        TEXT.replace("array<i64: 1>", "array<i64: 0>").replace("tensor<8xf32>", "tensor<4xf32>"),
        TEXT.replace("%e, %n", "%a, %n"),
        TEXT.replace("fused.yield %m, %s", "fused.yield %e, %s"),
    ],
)
def test_different(other: str) -> None:
    assert key(other).key != key(TEXT).key
    assert key(other).family != key(TEXT).family


def test_extents_places_and_words() -> None:
    larger = key(TEXT.replace("8x4", "9x4").replace("<8xf32>", "<9xf32>"))
    assert larger.key != key(TEXT).key
    assert larger.family == key(TEXT).family
    swapped = TEXT.replace(ARGUMENTS, ", ".join(reversed(ARGUMENTS.split(", "))))
    assert len({key(TEXT).key, key(TEXT, 0).key, key(TEXT, 1).key, key(TEXT, math="fast").key}) == 4
    assert key(TEXT, 0) == key(swapped, 1)
