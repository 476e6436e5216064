// RUN: fuse-opt %s --split-input-file --fuse-horizontal | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-horizontal --fuse-horizontal | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-horizontal=max-elements=4 | filecheck %s --check-prefix=FEW

// Of different sizes, one with a reduction; what depends on them is a kernel of the next level.
// CHECK-LABEL: func.func @sizes(
// CHECK-NEXT:      %a, %b, %c = fused.kernel(%x_1 = %x : tensor<8xf32>, %y_1 = %y : tensor<4x5xf32>) -> (tensor<8xf32>, tensor<4x5xf32>, tensor<4xf32>) {
// CHECK-NEXT:        %a_1 = graph.exp %x_1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %b_1 = graph.tanh %y_1 : (tensor<4x5xf32>) -> tensor<4x5xf32>
// CHECK-NEXT:        %c_1 = graph.sum %y_1 {axes = array<i64: 1>} : (tensor<4x5xf32>) -> tensor<4xf32>
// CHECK-NEXT:        fused.yield %a_1, %b_1, %c_1 : tensor<8xf32>, tensor<4x5xf32>, tensor<4xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %d, %e = fused.kernel(%b_1 = %b : tensor<4x5xf32>, %c_1 = %c : tensor<4xf32>) -> (tensor<4x5xf32>, tensor<4xf32>) {
// CHECK-NEXT:        %d_1 = graph.negative %b_1 : (tensor<4x5xf32>) -> tensor<4x5xf32>
// CHECK-NEXT:        %e_1 = graph.exp %c_1 : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:        fused.yield %d_1, %e_1 : tensor<4x5xf32>, tensor<4xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %a, %d, %e : tensor<8xf32>, tensor<4x5xf32>, tensor<4xf32>
// FEW-LABEL: func.func @sizes(
// FEW-NOT:   fused.kernel
func.func @sizes(%x: tensor<8xf32>, %y: tensor<4x5xf32>) -> (tensor<8xf32>, tensor<4x5xf32>, tensor<4xf32>) {
  %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %b = graph.tanh %y : (tensor<4x5xf32>) -> tensor<4x5xf32>
  %d = graph.negative %b : (tensor<4x5xf32>) -> tensor<4x5xf32>
  %c = graph.sum %y {axes = array<i64: 1>} : (tensor<4x5xf32>) -> tensor<4xf32>
  %e = graph.exp %c : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a, %d, %e : tensor<8xf32>, tensor<4x5xf32>, tensor<4xf32>
}

// -----

// Not: it is a library's, large, a view, or not to be fused; %e alone has nothing to be packed with.
// CHECK-LABEL: func.func @apart(
// CHECK-NOT:     fused.kernel
// CHECK:         func.return
func.func @apart(%x: tensor<4x4xf32>, %y: tensor<70000xf32>) -> (tensor<4x4xf32>, tensor<70000xf32>, tensor<16xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %a = graph.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = graph.exp %y : (tensor<70000xf32>) -> tensor<70000xf32>
  %c = graph.reshape %x {shape = array<i64: 16>} : (tensor<4x4xf32>) -> tensor<16xf32>
  %d = graph.exp %x {no_fuse} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = graph.tanh %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %a, %b, %c, %d, %e : tensor<4x4xf32>, tensor<70000xf32>, tensor<16xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Not: one depends on the other.
// CHECK-LABEL: func.func @dependent(
// CHECK-NOT:     fused.kernel
// CHECK:         func.return
func.func @dependent(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %b = graph.tanh %a : (tensor<8xf32>) -> tensor<8xf32>
  func.return %b : tensor<8xf32>
}
