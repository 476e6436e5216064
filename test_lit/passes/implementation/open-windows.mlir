// RUN: fuse-opt %s --split-input-file --gpu-attach-device --open-windows=device=h100 | filecheck %s
// RUN: fuse-opt %s --split-input-file --open-windows | filecheck %s --check-prefix CPU

// A filter for each channel: a sum of nine products in a kernel, which takes in what follows later.
// CHECK-LABEL: @depthwise
// CHECK: %r = fused.kernel
// CHECK-NEXT: graph.pad %x_1 {pads = array<i64: 0, 0, 1, 1, 0, 0, 1, 1>}
// CHECK-NEXT: graph.slice
// CHECK-COUNT-8: graph.add
// CHECK: fused.yield
// CHECK-NEXT: }
// CHECK-NEXT: graph.relu %r
// CPU-LABEL: @depthwise
// CPU: graph.conv
func.func @depthwise(%x: tensor<32x96x56x56xf32>, %w: tensor<96x1x3x3xf32>) -> tensor<32x96x56x56xf32> {
  %r = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>, groups = 96 : i64} : (tensor<32x96x56x56xf32>, tensor<96x1x3x3xf32>) -> tensor<32x96x56x56xf32>
  %y = graph.relu %r : (tensor<32x96x56x56xf32>) -> tensor<32x96x56x56xf32>
  func.return %y : tensor<32x96x56x56xf32>
}

// -----

// Halves lie with channels innermost, which a call takes; larger windows and what a promise names stay calls, too.
// CHECK-LABEL: @others
// CHECK-COUNT-3: graph.conv
func.func @others(%x: tensor<8x32x56x56xf16>, %w: tensor<32x1x3x3xf16>, %a: tensor<8x32x56x56xf32>, %b: tensor<32x1x7x7xf32>, %c: tensor<32x1x3x3xf32>) -> (tensor<8x32x54x54xf16>, tensor<8x32x50x50xf32>, tensor<8x32x54x54xf32>) {
  %0 = graph.conv %x, %w {groups = 32 : i64} : (tensor<8x32x56x56xf16>, tensor<32x1x3x3xf16>) -> tensor<8x32x54x54xf16>
  %1 = graph.conv %a, %b {groups = 32 : i64} : (tensor<8x32x56x56xf32>, tensor<32x1x7x7xf32>) -> tensor<8x32x50x50xf32>
  %2 = graph.conv %a, %c {groups = 32 : i64, use_implementation = "cudnn.conv"} : (tensor<8x32x56x56xf32>, tensor<32x1x3x3xf32>) -> tensor<8x32x54x54xf32>
  func.return %0, %1, %2 : tensor<8x32x54x54xf16>, tensor<8x32x50x50xf32>, tensor<8x32x54x54xf32>
}
