"""What a compiled program may decide otherwise than the reference is what last bits decide, and nothing else."""

from __future__ import annotations

import numpy as np
from ir_testing import evaluate, parse
from laws import roughly_differs
from moved_values import open_elements

TEXT = """
func.func @main(%x: tensor<6xf32>) -> (tensor<6xi1>, tensor<6xf32>, tensor<6xf32>) {
  %0 = graph.tanh %x : (tensor<6xf32>) -> tensor<6xf32>
  %1 = graph.equal %0, %x : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
  %2 = graph.exp %x : (tensor<6xf32>) -> tensor<6xf32>
  %3 = graph.floor %2 : (tensor<6xf32>) -> tensor<6xf32>
  func.return %1, %3, %2 : tensor<6xi1>, tensor<6xf32>, tensor<6xf32>
}
"""


def test_what_last_bits_decide_is_open() -> None:
    x = np.array([0.0, 1e-6, 3e-4, 0.5, np.log(2.0), np.nan], np.float32)
    module = parse(TEXT)
    values = evaluate(module, [x])
    found = open_elements(module, [x], values)
    assert [mask.tolist() for mask in found] == [
        [False, True, True, False, False, False],  # tanh(0) is 0
        [True, True, False, False, True, False],  # exp is just at 1 or 2
        [False] * 6,
    ]
    other = [np.array(value) for value in values]
    other[0][1], other[1][4] = not other[0][1], 1.0
    assert roughly_differs(other, values) and not roughly_differs(other, values, found)
    other[0][3] = True
    assert roughly_differs(other, values, found).startswith("result 0 differs")


CANCELLED = """func.func @main(%x: tensor<?x2xf32, #graph.shape<n{most = 9}, 2>>, %y: tensor<2xf32>)
    -> tensor<?xf32, #graph.shape<n{most = 9}>> {
  %0 = graph.matmul %x, %y : (tensor<?x2xf32, #graph.shape<n{most = 9}, 2>>, tensor<2xf32>)
    -> tensor<?xf32, #graph.shape<n{most = 9}>>
  func.return %0 : tensor<?xf32, #graph.shape<n{most = 9}>>
}"""


def test_a_sum_whose_terms_cancel_each_other_is_open_at_any_size() -> None:
    x, y = np.array([[1e4, -1e4], [1, -2]], np.float32), np.ones(2, np.float32)
    module = parse(CANCELLED)
    (found,) = open_elements(module, [x, y], evaluate(module, [x, y]))
    assert found.tolist() == [True, False]
