// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/pointwise.py --partition | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/pointwise.py --partition --partition | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/pointwise.py --partition=min-ops=3 --remarks 2>&1 | filecheck %s --check-prefix=FEW
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/pointwise.py --partition --unfuse | filecheck %s --check-prefix=UNDONE
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --partition | filecheck %s --check-prefix=NONE

// A part on each side of the product; what is read twice is given once, and a constant comes along.
// CHECK-LABEL: func.func @two(
// CHECK:         %0 = fused.partition(%x_1 = %x : tensor<8x4xf32>) -> (tensor<8x4xf32>) attributes {backend = "pointwise", memory = "private"} {
// CHECK-NEXT:      graph.exp
// CHECK-NEXT:      graph.constant
// CHECK-NEXT:      graph.multiply
// CHECK:         graph.matmul
// CHECK:         fused.partition(
// CHECK-NEXT:      graph.tanh
// CHECK-NEXT:      graph.add
// FEW:           remark: [partition] few-ops: 'graph.exp' is not given to 'pointwise': fewer ops than 3 (otherwise with: min-ops=2) ops=2
// UNDONE-LABEL: func.func @two(
// UNDONE-NOT:    fused.partition
// NONE-LABEL:   func.func @two(
// NONE-NOT:      fused.
func.func @two(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %c = graph.constant dense<2.0> : tensor<f32>
  %0 = graph.exp %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = graph.multiply %0, %c : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  %2 = graph.matmul %1, %w : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %3 = graph.tanh %2 : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %4 = graph.add %3, %1 : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %4, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----

// %1 reads %0 by way of the product, so it cannot be one part with it; nor is anything taken that carries a directive.
// CHECK-LABEL: func.func @cycle(
// CHECK-NOT:     fused.partition
// CHECK:         func.return
func.func @cycle(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = graph.matmul %0, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = graph.add %0, %m : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = graph.tanh %1 {no_fuse} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %2 : tensor<4x4xf32>
}

// -----

// Two groups that would wait for each other: F4 of a0 -> xa -> b0, b0 -> b1 -> xb -> a1, a0 -> a1.
// CHECK-LABEL: func.func @crossed(
// CHECK:         graph.exp
// CHECK:         graph.sin
// CHECK:         fused.partition(
// CHECK-NEXT:      graph.tanh
// CHECK-NEXT:      graph.relu
// CHECK:         graph.sin
// CHECK:         graph.add
// CHECK-NOT:     fused.partition
func.func @crossed(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %xa = graph.sin %a0 : (tensor<8xf32>) -> tensor<8xf32>
  %b0 = graph.tanh %xa : (tensor<8xf32>) -> tensor<8xf32>
  %b1 = graph.relu %b0 : (tensor<8xf32>) -> tensor<8xf32>
  %xb = graph.sin %b1 : (tensor<8xf32>) -> tensor<8xf32>
  %a1 = graph.add %a0, %xb : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %a1 : tensor<8xf32>
}
