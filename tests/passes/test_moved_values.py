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
