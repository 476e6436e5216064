"""What nobody uses of an op that was taken apart."""

from __future__ import annotations

from ir_testing import kernels, parse

from fuse_opt.tools.compiler.api import optimize


def test_indices_that_nobody_uses_are_not_computed() -> None:
    module = parse("""func.func @main(%x: tensor<1x2x8x8xf32>) -> tensor<1x2x4x4xf32> {
      %y, %i = graph.max_pool_with_indices %x {kernel_shape = array<i64: 3, 3>, strides = array<i64: 2, 2>,
        pads = array<i64: 1, 1, 1, 1>} : (tensor<1x2x8x8xf32>) -> (tensor<1x2x4x4xf32>, tensor<1x2x4x4xi64>)
      func.return %y : tensor<1x2x4x4xf32>
    }""")
    assert len(kernels(optimize(module))) == 1
