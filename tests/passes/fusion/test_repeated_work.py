"""What is computed several times in a group that was made a moment ago is no more work than in a kernel that was there."""

from __future__ import annotations

from ir_testing import apply, parse

from fuse_opt.dialects.interfaces.shapes import sizes_asked_for

_IMAGE = "?x2x?x?xf32, #graph.shape<batch{least = 2, most = 5}, 2, height{least = 2, most = 20}, height{least = 2, most = 20}>"
_COUNTS = "?x1x?x?xi64, #graph.shape<batch{least = 2, most = 5}, 1, height{least = 2, most = 20}, height{least = 2, most = 20}>"
POOLED = f"""
func.func @main(%x: tensor<{_IMAGE}>) -> tensor<{_COUNTS}> {{
  %p = graph.avg_pool %x {{kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, count_include_pad = false}}
    : (tensor<{_IMAGE}>) -> tensor<{_IMAGE}>
  %n = graph.count_nonzero %p {{keepdims = true, axes = array<i64: 1>}} : (tensor<{_IMAGE}>) -> tensor<{_COUNTS}>
  func.return %n : tensor<{_COUNTS}>
}}"""


def test_a_second_run_of_fuse_row_changes_nothing() -> None:
    """Seed 291130583: numbers of elements in windows, which windows of ones sum up, joined their views in a second run."""
    with sizes_asked_for():
        module = apply(parse(POOLED), "decompose,fuse-row")
        once = str(module)
        assert str(apply(module, "fuse-row")) == once
    assert once.count("fused.kernel") == 2
