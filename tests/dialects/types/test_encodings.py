"""Encodings: places of elements against counting by hand, what is refused, and one of a user's own in whole programs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from ir_testing import context
from xdsl.dialects.builtin import ArrayAttr, TensorType, f32
from xdsl.ir import Attribute, Dialect, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.exceptions import VerifyException

import fuse_opt
from fuse_opt.dialects.types.encodings import (
    EncodingAttr,
    EncodingPart,
    Extents,
    OrderAttr,
    PanelAttr,
    encoding_of,
    with_encoding,
)
from fuse_opt.dialects.types.index_expr import Index, constant, linearize
from fuse_opt.tools.source.parsing import parse_module
from fuse_opt.tools.source.verification import verify


def positions(encoding: EncodingPart, extents: Extents) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Where each element is in memory."""
    found = np.empty(extents, np.int64)
    memory = encoding.memory_extents(extents)
    for index in itertools.product(*map(range, extents)):
        place = encoding.to_memory(tuple(map(constant, index)), extents)
        found[index] = linearize(place, memory).constant
        back = encoding.from_memory(place, extents)
        assert tuple(i.constant for i in back) == index
    return found


@pytest.mark.parametrize("extents", [(4, 6), (4, 1), (1, 6)])
def test_orders_and_panels_count_as_numpy_does(extents: Extents) -> None:
    rows, columns = extents
    numbers = np.arange(rows * columns)
    assert (positions(OrderAttr.of((1, 0)), extents) == numbers.reshape(columns, rows).T).all()
    if columns % 2 == 0:
        panels = numbers.reshape(columns // 2, rows, 2).transpose(1, 0, 2).reshape(extents)
        assert (positions(PanelAttr.of(1, 2), extents) == panels).all()
        both = EncodingAttr(ArrayAttr[Attribute]([OrderAttr.of((1, 0)), PanelAttr.of(0, 2)]))
        assert (
            positions(both, extents) == numbers.reshape(columns // 2, rows, 2).transpose(1, 0, 2).reshape(extents)
        ).all()


def test_groups_lie_side_by_side_in_panels() -> None:
    """[panel][rows in groups][element of a panel][of a group], of the innermost of the other axes, whichever is in panels."""
    numbers = np.arange(2 * 8 * 6)
    panels = numbers.reshape(3, 2, 2, 2, 4).transpose(1, 2, 4, 0, 3).reshape(2, 8, 6)
    assert (positions(PanelAttr.of(2, 2, 4), (2, 8, 6)) == panels).all()
    middle = numbers.reshape(4, 2, 3, 2, 2).transpose(1, 0, 3, 2, 4).reshape(2, 8, 6)
    assert (positions(PanelAttr.of(1, 2, 2), (2, 8, 6)) == middle).all()
    assert PanelAttr.of(2, 2, 3).problem((2, 8, 6)) == (
        "expected a multiple of 3 as extent of the innermost other axis, got 8; graph.pad it"
    )
    assert PanelAttr.of(0, 2, 4).problem((8,)) is not None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_strides_of_an_order_are_its_positions(order: tuple[int, ...]) -> None:
    encoding, extents = OrderAttr.of(order), (2, 3, 4)
    steps = encoding.strides(extents)
    assert steps is not None
    index = np.indices(extents)
    assert (positions(encoding, extents) == sum(i * s for i, s in zip(index, steps, strict=True))).all()
    assert encoding.is_default(extents) == (order == (0, 1, 2))


def test_the_identity_is_no_encoding() -> None:
    type_ = with_encoding(TensorType[Attribute](f32, [2, 3]), OrderAttr.of((0, 1)))
    assert type_ == TensorType(f32, [2, 3]) and encoding_of(type_) is None


@pytest.mark.parametrize("axes", [(0, 0), (1, 2), (-1, 0)])
def test_an_order_is_a_permutation(axes: tuple[int, ...]) -> None:
    with pytest.raises(VerifyException, match="each of the axes"):
        OrderAttr.of(axes)


@irdl_attr_definition
class ReversedAttr(ParametrizedAttribute, EncodingPart):
    """Somebody else's: rows from the last to the first."""

    name = "mine.reversed"

    def problem(self, extents: Sequence[int]) -> str | None:
        return None if len(extents) == 2 else f"expected a matrix, got {len(extents)} axes"

    def memory_extents(self, extents: Sequence[int]) -> Extents:
        return tuple(extents)

    def to_memory(self, index: Index, extents: Sequence[int]) -> Index:
        return (index[0] * -1 + (extents[0] - 1), *index[1:])

    def from_memory(self, place: Index, extents: Sequence[int]) -> Index:
        return self.to_memory(place, extents)


USER = """
func.func @main(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = graph.to_layout %x : (tensor<5x7xf32>) -> tensor<5x7xf32, #mine.reversed>
  %1 = graph.exp %0 : (tensor<5x7xf32, #mine.reversed>) -> tensor<5x7xf32, #mine.reversed>
  %2 = graph.sum %1 {axes = array<i64: 1>, keepdims = true} : (tensor<5x7xf32, #mine.reversed>) -> tensor<5x1xf32>
  %3 = graph.divide %1, %2 : (tensor<5x7xf32, #mine.reversed>, tensor<5x1xf32>) -> tensor<5x7xf32, #mine.reversed>
  %4 = graph.to_layout %3 : (tensor<5x7xf32, #mine.reversed>) -> tensor<5x7xf32>
  func.return %4 : tensor<5x7xf32>
}
"""


@pytest.mark.parametrize("pipeline", ["default", "unfused"])
def test_an_encoding_of_a_users_own_joins(pipeline: str) -> None:
    ctx = context()
    ctx.load_dialect(Dialect("mine", [], [ReversedAttr]))
    module = parse_module(USER, "user", ctx)
    verify(module)
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    program = fuse_opt.compile(module, pipeline=pipeline)
    np.testing.assert_allclose(program(x), expected, rtol=1e-5)
    np.testing.assert_allclose(fuse_opt.evaluate(module, x), expected, rtol=1e-5)
