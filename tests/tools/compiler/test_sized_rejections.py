"""What sizes refuse, a row for each kind: by the name of the symbol, the axis or the place, and never by a wrong result."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from lowered_programs import needs_compiler

import fuse_opt
from fuse_opt.dialects.interfaces.shapes import sizes_asked_for

CALLED = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}, %y: tensor<?x?xf32> {graph.dims = ["k", "n"]})
    -> tensor<?x?xf32> attributes {graph.symbols = {n = {least = 4, most = 64, multiple = 4}}, graph.equal = [["m", "k"]]} {
  %0 = graph.add %x, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %0 : tensor<?x?xf32>
}"""
STATED = """func.func @main(%x: tensor<?x4xf32> {graph.dims = ["n", ""]}) -> tensor<?x4xf32> attributes {graph.symbols = FACTS} {
  %0 = graph.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %0 : tensor<?x4xf32>
}"""
TYPED = """func.func @main(%x: tensor<?x4xf32, #graph.shape<n, 4>>) -> tensor<?x4xf32, #graph.shape<SIZES>> {
  %0 = graph.exp %x : (tensor<?x4xf32, #graph.shape<n, 4>>) -> tensor<?x4xf32, #graph.shape<SIZES>>
  func.return %0 : tensor<?x4xf32, #graph.shape<SIZES>>
}"""
BROUGHT = """func.func @main(%x: tensor<?xf32, #graph.shape<2*n>>) {
  func.return
}"""
PLANNED = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]}) -> tensor<?x?xf32> {
  %0 = graph.sort %x {axis = 1 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = graph.cumulative_sum %x {axis = 1 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %2 = graph.cumulative_sum %0 {axis = 0 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %3 = graph.multiply %1, %2 : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %4 = graph.sort %3 {axis = 1 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %4 : tensor<?x?xf32>
}"""
IN_PLACE = """func.func @main(%x: tensor<?xf32> {graph.dims = ["n"], graph.donated}, %y: tensor<?x1xf32> {graph.dims = ["m", ""]})
    -> tensor<?x?xf32> {
  %0 = graph.add %x, %y {must_inplace} : (tensor<?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  func.return %0 : tensor<?x?xf32>
}"""
LARGE = """func.func @main(%x: tensor<?x1x1xf64> {graph.dims = ["a", "", ""]}, %y: tensor<?x1xf64> {graph.dims = ["b", ""]},
                        %z: tensor<?xf64> {graph.dims = ["c"]}) -> tensor<?x?x?xf64> {
  %0 = graph.add %x, %y : (tensor<?x1x1xf64>, tensor<?x1xf64>) -> tensor<?x?x1xf64>
  %1 = graph.add %0, %z : (tensor<?x?x1xf64>, tensor<?xf64>) -> tensor<?x?x?xf64>
  func.return %1 : tensor<?x?x?xf64>
}"""
GROWN = """func.func @main(%past: tensor<?x3xf32> {graph.donated}, %new: tensor<1x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>) {
  %0 = graph.concat %past, %new {axis = 0 : i64} : (tensor<?x3xf32>, tensor<1x3xf32>) -> tensor<?x3xf32>
  %1 = graph.exp %past : (tensor<?x3xf32>) -> tensor<?x3xf32>
  func.return %0, %1 : tensor<?x3xf32>, tensor<?x3xf32>
}"""
ROWS = """func.func @main(%x: tensor<?x?xf32, #graph.shape<m, n>>) -> tensor<?xf32, #graph.shape<m>> {
  %r = fused.kernel(%a = %x : tensor<?x?xf32, #graph.shape<m, n>>) -> (tensor<?xf32, #graph.shape<m>>)
      attributes {schedule = {kind = "row", ENTRY}} {
    %0 = graph.sum %a {axes = array<i64: 1>} : (tensor<?x?xf32, #graph.shape<m, n>>) -> tensor<?xf32, #graph.shape<m>>
    fused.yield %0 : tensor<?xf32, #graph.shape<m>>
  }
  func.return %r : tensor<?xf32, #graph.shape<m>>
}"""


def _called(*shapes: tuple[int, int]) -> Callable[[], object]:
    return lambda: fuse_opt.compile(CALLED)(*(np.ones(shape, np.float32) for shape in shapes))


def _passed(text: str, passes: str = "canonicalize") -> Callable[[], object]:
    def run() -> str:
        with sizes_asked_for():
            return str(fuse_opt.optimize(text, passes))

    return run


def _large() -> object:
    shapes = (1 << 20, 1, 1), (1 << 20, 1), (1 << 20,)
    return fuse_opt.compile(LARGE)(*(np.ones(shape) for shape in shapes))


def _planned(pattern: str, replacement: str, again: str = "canonicalize") -> Callable[[], object]:
    """A plan of places for any sizes with a part of its text changed."""

    def run() -> object:
        text = _passed(PLANNED, "infer-shapes{symbols=true},decompose,wrap-kernels,schedule-kernels,plan-memory")()
        changed = re.sub(pattern, replacement, str(text), count=1)
        assert changed != text, text
        return _passed(changed, again)()

    return run


_ORDER = r"orders = \[array<i64: (\d+), (\d+)"
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a size out of a range": (_called((3, 68), (3, 68)), "'n'.* 68; expected 4 to 64"),
    "sizes that graph.equal says are one": (_called((3, 8), (2, 8)), "'m' and 'k'.* 3, .* 2; they must be equal"),
    "no multiple": (_called((3, 6), (3, 6)), "'n'.* 6; expected a multiple of 4"),
    "least above most": (_passed(STATED.replace("FACTS", "{n = {least = 3, most = 2}}")), "'n': no number from 3 to 2"),
    "a negative least": (_passed(STATED.replace("FACTS", "{n = {least = -3}}")), "'n': expected a least value of 0 or more"),
    "a name that nobody binds": (_passed(STATED.replace("FACTS", "{k = {most = 3}}")), "no argument has an extent 'k'"),
    "a symbol that is no axis by itself": (_passed(BROUGHT), "symbol 'n' is no extent of an argument by itself"),
    "sizes of other axes than the type's": (_passed(TYPED.replace("SIZES", "n")), "expected sizes of 2 axes, got 1"),
    "sizes beside the type's numbers": (_passed(TYPED.replace("SIZES", "n, 5")), "'4' as the extent of axis 1.*got '5'"),
    "an order with a cycle": (_planned(_ORDER, r"orders = [array<i64: \2, \1, \1, \2"), "order"),
    "values in use that no order puts apart": (_planned(r"orders = \[array<i64: [^>]*>", "orders = [array<i64>"), "overwrote it"),
    "a place smaller than its value": (_planned(r"places = \[#graph.size<[^>]*>", "places = [#graph.size<4>"), "place 0 has 4"),
    "a slot that is no place": (_planned("slots = array<i64: 0>", "slots = array<i64: 99>"), "99"),
    "offsets by hand": (
        _planned("slots = array<i64: 0>", "pinned_slots = array<i64: 0>", "plan-memory"), "expected no offsets by hand",
    ),
    "in place of other sizes": (
        _passed(IN_PLACE, "infer-shapes{symbols=true},wrap-kernels,infer-inplace"), "must_inplace cannot be kept.*bytes",
    ),
    "bytes past 2**63": (_large, r"a = 1048576, b = 1048576, c = 1048576 give more than 2\*\*63 bytes"),
    "a cache that grows and is read": (
        lambda: fuse_opt.compile(GROWN, growing=True), r"\('past'\) is a cache that 'graph.concat' grows and 'graph.exp' reads",
    ),
    "versions whose predicates are none": (
        _passed(ROWS.replace("ENTRY", "short = 0 : i64"), "schedule-kernels"), "entry 'short': expected an integer from 1 to 64",
    ),
    "versions in a list": (
        _passed(ROWS.replace("ENTRY", "long = [256, 512]"), "schedule-kernels"), "entry 'long': expected an integer from 128",
    ),
}  # fmt: skip
"""Versions have predicates and one without by construction: no list of them can end with a condition."""


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_refused_by_name(kind: str) -> None:
    act, message = REFUSED[kind]
    with pytest.raises(Exception, match=message) as caught:
        act()
    assert not isinstance(caught.value, AssertionError)


PACKED = """func.func @main(%x: XF) -> (tensor<?xi64, #graph.shape<m{most = 40}>>, XF) {
  %0 = graph.count_nonzero %x {keepdims = false, axes = array<i64: 0>} : (XF) -> tensor<?xi64, #graph.shape<m{most = 40}>>
  %1 = graph.max %x {axes = array<i64: -1>, keepdims = true} : (XF) -> XC
  %2 = graph.subtract %x, %1 : (XF, XC) -> XF
  func.return %0, %2 : tensor<?xi64, #graph.shape<m{most = 40}>>, XF
}""".replace("XF", "tensor<?x?xf32, #graph.shape<m{most = 40}, m{most = 40}>>").replace(
    "XC", "tensor<?x1xf32, #graph.shape<m{most = 40}, 1>>"
)


@needs_compiler
@pytest.mark.parametrize("m", [1, 9, 40])
def test_kernels_packed_by_hand_that_need_numbers_are_compiled_for_each_set(m: int) -> None:
    x = np.random.default_rng(m).integers(-2, 3, (m, m)).astype(np.float32)
    counts, rest = fuse_opt.compile(PACKED, "cpu", ["fuse-row", "fuse-siblings"])(x)
    np.testing.assert_array_equal(counts, np.count_nonzero(x, 0))
    np.testing.assert_array_equal(rest, x - x.max(1, keepdims=True))
