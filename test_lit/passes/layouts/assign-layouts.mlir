// RUN: fuse-opt %s --split-input-file --assign-layouts --remarks 2>&1 | filecheck %s

// Two 1x1 convolutions run as products where channels are innermost, and what is between them lies so, too. The first
// convolution stores its result so; the last conversion is for the result alone.

// CHECK-LABEL: func.func @residual
func.func @residual(%x: tensor<1x256x14x14xf32>, %w: tensor<1024x256x1x1xf32>, %v: tensor<256x1024x1x1xf32>, %u: tensor<256x256x3x3xf32>) -> tensor<1x256x14x14xf32> {
  // CHECK: graph.conv %x, %u {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x256x14x14xf32>, tensor<256x256x3x3xf32>) -> tensor<1x256x14x14xf32, #graph.order<0, 2, 3, 1>>
  %0 = graph.conv %x, %u {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x256x14x14xf32>, tensor<256x256x3x3xf32>) -> tensor<1x256x14x14xf32>
  // CHECK: graph.relu {{.*}} -> tensor<1x256x14x14xf32, #graph.order<0, 2, 3, 1>>
  %1 = graph.relu %0 : (tensor<1x256x14x14xf32>) -> tensor<1x256x14x14xf32>
  // CHECK: graph.conv {{.*}} -> tensor<1x1024x14x14xf32, #graph.order<0, 2, 3, 1>>
  %2 = graph.conv %1, %w : (tensor<1x256x14x14xf32>, tensor<1024x256x1x1xf32>) -> tensor<1x1024x14x14xf32>
  // CHECK: graph.conv {{.*}} -> tensor<1x256x14x14xf32, #graph.order<0, 2, 3, 1>>
  %3 = graph.conv %2, %v : (tensor<1x1024x14x14xf32>, tensor<256x1024x1x1xf32>) -> tensor<1x256x14x14xf32>
  // CHECK: graph.add {{.*}} -> tensor<1x256x14x14xf32, #graph.order<0, 2, 3, 1>>
  %4 = graph.add %3, %1 : (tensor<1x256x14x14xf32>, tensor<1x256x14x14xf32>) -> tensor<1x256x14x14xf32>
  // CHECK: %[[R:.*]] = graph.to_layout {{.*}} -> tensor<1x256x14x14xf32>
  // CHECK-NEXT: func.return %[[R]]
  func.return %4 : tensor<1x256x14x14xf32>
}

// -----

// Nothing gains: one small convolution, and row-major products.

// CHECK-LABEL: func.func @stays
func.func @stays(%x: tensor<1x8x20x20xf32>, %w: tensor<8x8x3x3xf32>, %a: tensor<32x16xf32>, %b: tensor<16x8xf32>) -> (tensor<1x8x18x18xf32>, tensor<32x8xf32>) {
  // CHECK-NEXT: graph.conv %x, %w : (tensor<1x8x20x20xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x18x18xf32>
  // CHECK-NEXT: graph.matmul %a, %b : (tensor<32x16xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  // CHECK-NEXT: func.return
  %0 = graph.conv %x, %w : (tensor<1x8x20x20xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x18x18xf32>
  %1 = graph.matmul %a, %b : (tensor<32x16xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
  func.return %0, %1 : tensor<1x8x18x18xf32>, tensor<32x8xf32>
}

// -----

// What somebody decided stays; what no implementation takes is converted around the op.

// CHECK-LABEL: func.func @fallback
func.func @fallback(%x: tensor<1x8x20x20xf32, #graph.order<0, 3, 2, 1>>, %w: tensor<8x8x3x3xf32>) -> tensor<1x8x18x18xf32, #graph.order<0, 3, 2, 1>> {
  // CHECK-NEXT: %[[X:.*]] = graph.to_layout %x : (tensor<1x8x20x20xf32, #graph.order<0, 3, 2, 1>>) -> tensor<1x8x20x20xf32>
  // CHECK-NEXT: %[[C:.*]] = graph.conv %[[X]], %w : (tensor<1x8x20x20xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x18x18xf32>
  // CHECK-NEXT: %[[R:.*]] = graph.to_layout %[[C]] : (tensor<1x8x18x18xf32>) -> tensor<1x8x18x18xf32, #graph.order<0, 3, 2, 1>>
  // CHECK-NEXT: func.return %[[R]]
  %0 = graph.conv %x, %w : (tensor<1x8x20x20xf32, #graph.order<0, 3, 2, 1>>, tensor<8x8x3x3xf32>) -> tensor<1x8x18x18xf32, #graph.order<0, 3, 2, 1>>
  func.return %0 : tensor<1x8x18x18xf32, #graph.order<0, 3, 2, 1>>
}

// CHECK: remark: [assign-layouts] assigned: 'graph.conv' lies as '{{.*}}' wants it: #graph.order<0, 2, 3, 1>
// CHECK: remark: [assign-layouts] converted: 'func.return' reads 'tensor<1x256x14x14xf32, #graph.order<0, 2, 3, 1>>' in row-major order: it is converted bytes=200704
// CHECK: remark: [assign-layouts] fallback: 'graph.conv' is run in row-major order, as no implementation takes another one
