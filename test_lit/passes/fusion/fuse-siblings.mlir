// RUN: fuse-opt %s --split-input-file --fuse-siblings | filecheck %s

// Two reductions of one value, which neither reads from the other: one kernel reads it once.
func.func @sum_and_max(%x: tensor<64x128xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %s = graph.sum %x {axes = array<i64: 1>} : (tensor<64x128xf32>) -> tensor<64xf32>
  %m = graph.max %x {axes = array<i64: 1>} : (tensor<64x128xf32>) -> tensor<64xf32>
  func.return %s, %m : tensor<64xf32>, tensor<64xf32>
}
// CHECK-LABEL: func.func @sum_and_max
// CHECK-NEXT:    %s, %m = fused.kernel(%x_1 = %x : tensor<64x128xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
// CHECK-NEXT:      %s_1 = graph.sum %x_1
// CHECK-NEXT:      %m_1 = graph.max %x_1
// CHECK-NEXT:      fused.yield %s_1, %m_1
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return %s, %m

// -----

// Two elementwise readers at the same index.
func.func @same_index(%x: tensor<64x128xf32>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %a = graph.exp %x : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %b = graph.negative %x : (tensor<64x128xf32>) -> tensor<64x128xf32>
  func.return %a, %b : tensor<64x128xf32>, tensor<64x128xf32>
}
// CHECK-LABEL: func.func @same_index
// CHECK-NEXT:    %a, %b = fused.kernel(%x_1 = %x
// CHECK-NEXT:      %a_1 = graph.exp %x_1
// CHECK-NEXT:      %b_1 = graph.negative %x_1

// -----

// Not: another index of the same value; a bias that is next to nothing of what both move; rows of another length.
func.func @apart(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>, %z: tensor<64x64xf32>, %b: tensor<64xf32>)
    -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %a = graph.exp %x : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = graph.add %y, %b : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64x64xf32>
  %d = graph.multiply %z, %b : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64x64xf32>
  func.return %a, %t, %c, %d : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
// CHECK-LABEL: func.func @apart
// CHECK-NOT:     fused.kernel

// -----

// Not: no_fuse, and a reader that the other one waits for through a matrix product.
func.func @directives(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %a = graph.exp %x {no_fuse} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %b = graph.negative %x : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = graph.matmul %b, %b : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = graph.add %x, %p : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %a, %b, %c : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
// CHECK-LABEL: func.func @directives
// CHECK-NOT:     fused.kernel
