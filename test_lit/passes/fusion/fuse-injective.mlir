// RUN: fuse-opt %s --split-input-file --fuse-injective | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-injective --fuse-injective | filecheck %s

// A transpose becomes an index of the kernel that makes its operand.
// CHECK-LABEL: func.func @transpose(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<8x4xf32>, %b_1 = %b : tensor<4xf32>) -> (tensor<4x8xf32>) {
// CHECK-NEXT:        %sum = graph.add %x_1, %b_1 : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:        %y_1 = graph.permute_dims %sum {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<4x8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<4x8xf32>
// CHECK-NEXT:    }
func.func @transpose(%x: tensor<8x4xf32>, %b: tensor<4xf32>) -> tensor<4x8xf32> {
  %sum = graph.add %x, %b : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %y = graph.permute_dims %sum {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// -----

// A value of which all readers take slices is computed slice by slice, in one kernel.
// CHECK-LABEL: func.func @split(
// CHECK-NEXT:      %low, %high = fused.kernel(%x_1 = %x : tensor<8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT:        %neg = graph.negative %x_1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %low_1 = graph.slice %neg {starts = array<i64: 0>, stops = array<i64: 4>} : (tensor<8xf32>) -> tensor<4xf32>
// CHECK-NEXT:        %high_1 = graph.slice %neg {starts = array<i64: 4>, stops = array<i64: 8>} : (tensor<8xf32>) -> tensor<4xf32>
// CHECK-NEXT:        fused.yield %low_1, %high_1 : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %low, %high : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT:    }
func.func @split(%x: tensor<8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %neg = graph.negative %x : (tensor<8xf32>) -> tensor<8xf32>
  %low = graph.slice %neg {starts = array<i64: 0>, stops = array<i64: 4>} : (tensor<8xf32>) -> tensor<4xf32>
  %high = graph.slice %neg {starts = array<i64: 4>, stops = array<i64: 8>} : (tensor<8xf32>) -> tensor<4xf32>
  func.return %low, %high : tensor<4xf32>, tensor<4xf32>
}

// -----

// Not: a reshape that only gives a returned value another shape moves nothing.
// CHECK-LABEL: func.func @alias(
// CHECK-NEXT:      %neg = graph.negative %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %y = graph.reshape %neg {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
// CHECK-NEXT:      func.return %neg, %y : tensor<8xf32>, tensor<2x4xf32>
// CHECK-NEXT:    }
func.func @alias(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<2x4xf32>) {
  %neg = graph.negative %x : (tensor<8xf32>) -> tensor<8xf32>
  %y = graph.reshape %neg {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
  func.return %neg, %y : tensor<8xf32>, tensor<2x4xf32>
}

// -----

// Not: a reduction is no view.
// CHECK-LABEL: func.func @reduction(
// CHECK-NEXT:      %y = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:      %sum = graph.sum %y {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
// CHECK-NEXT:      func.return %sum : tensor<4xf32>
// CHECK-NEXT:    }
func.func @reduction(%x: tensor<8x4xf32>) -> tensor<4xf32> {
  %y = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %sum = graph.sum %y {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  func.return %sum : tensor<4xf32>
}

// -----

// Not: what costs much is not computed again for each place that one of several readers broadcasts it to.
// CHECK-LABEL: func.func @broadcast(
// CHECK-NEXT:        %exp = graph.exp %x : (tensor<4x1xf32>) -> tensor<4x1xf32>
// CHECK-NEXT:        %log = graph.log1p %exp : (tensor<4x1xf32>) -> tensor<4x1xf32>
// CHECK-NEXT:        %a = fused.kernel(%log_1 = %log : tensor<4x1xf32>, %y_1 = %y : tensor<4x512x2xf32>) -> (tensor<4x512x2xf32>) {
// CHECK-NEXT:          %column = graph.reshape %log_1 {shape = array<i64: 4, 1, 1>} : (tensor<4x1xf32>) -> tensor<4x1x1xf32>
// CHECK-NEXT:          %a_1 = graph.multiply %column, %y_1 : (tensor<4x1x1xf32>, tensor<4x512x2xf32>) -> tensor<4x512x2xf32>
// CHECK-NEXT:          fused.yield %a_1 : tensor<4x512x2xf32>
// CHECK-NEXT:        }
// CHECK-NEXT:        %b = fused.kernel(%log_1 = %log : tensor<4x1xf32>, %z_1 = %z : tensor<1024x4xf32>) -> (tensor<1024x4xf32>) {
// CHECK-NEXT:          %row = graph.permute_dims %log_1 {axes = array<i64: 1, 0>} : (tensor<4x1xf32>) -> tensor<1x4xf32>
// CHECK-NEXT:          %b_1 = graph.multiply %row, %z_1 : (tensor<1x4xf32>, tensor<1024x4xf32>) -> tensor<1024x4xf32>
// CHECK-NEXT:          fused.yield %b_1 : tensor<1024x4xf32>
// CHECK-NEXT:        }
// CHECK-NEXT:        func.return %a, %b : tensor<4x512x2xf32>, tensor<1024x4xf32>
// CHECK-NEXT:      }
func.func @broadcast(%x: tensor<4x1xf32>, %y: tensor<4x512x2xf32>, %z: tensor<1024x4xf32>) -> (tensor<4x512x2xf32>, tensor<1024x4xf32>) {
  %exp = graph.exp %x : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %log = graph.log1p %exp : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %column = graph.reshape %log {shape = array<i64: 4, 1, 1>} : (tensor<4x1xf32>) -> tensor<4x1x1xf32>
  %row = graph.permute_dims %log {axes = array<i64: 1, 0>} : (tensor<4x1xf32>) -> tensor<1x4xf32>
  %a = graph.multiply %column, %y : (tensor<4x1x1xf32>, tensor<4x512x2xf32>) -> tensor<4x512x2xf32>
  %b = graph.multiply %row, %z : (tensor<1x4xf32>, tensor<1024x4xf32>) -> tensor<1024x4xf32>
  func.return %a, %b : tensor<4x512x2xf32>, tensor<1024x4xf32>
}
