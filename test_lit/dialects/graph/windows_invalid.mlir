// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.window_max %x {window = array<i64: 2, 2, 2>} : (tensor<2x3xf32>) -> tensor<1x2xf32>
  func.return
}

// CHECK: 'graph.window_max' attribute 'window': expected at most 2 extents, got [2, 2, 2]

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.window_max %x {window = array<i64: 2, 2>, axes = array<i64: 1, -1>} : (tensor<2x3xf32>) -> tensor<1x2xf32>
  func.return
}

// CHECK: 'graph.window_max' attribute 'axes': expected 2 different axes, one for each extent, got [1, -1]

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.window_sum %x {window = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return
}

// CHECK: 'graph.window_sum' attribute 'window': expected 1 integer(s) above 0, got [0]

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.window_sum %x {window = array<i64: 2>, strides = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  func.return
}

// CHECK: 'graph.window_sum' attribute 'strides': expected 1 integer(s) above 0, got [1, 1]

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.window_min %x {window = array<i64: 2>, dilations = array<i64: 3>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  func.return
}

// CHECK: 'graph.window_min' a window of 2 elements, 3 apart, does not fit on axis 1 of [2, 3]; insert graph.pad

// -----

func.func @f(%x: tensor<2x3xi1>) {
  %r = graph.window_sum %x {window = array<i64: 2>} : (tensor<2x3xi1>) -> tensor<2x2xi1>
  func.return
}

// CHECK: 'graph.window_sum' operands (tensor<2x3xi1>): 'add' does not accept (i1, i1); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.sliding_windows %x {window = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  func.return
}

// CHECK: 'graph.sliding_windows' result 0: expected 'tensor<2x2x2xf32>' as its operands give, got 'tensor<2x2xf32>'

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.max_pool %x {kernel_shape = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2x2xf32>
  func.return
}

// CHECK: 'graph.max_pool' expected a tensor [N, C, spatial...] with 1 to 3 spatial axes, got [2, 3]

// -----

func.func @f(%x: tensor<2x3x8xi1>) {
  %r = graph.max_pool %x {kernel_shape = array<i64: 2>} : (tensor<2x3x8xi1>) -> tensor<2x3x7xi1>
  func.return
}

// CHECK: 'graph.max_pool' expected elements of numbers to compare, got i1; insert graph.astype

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  %r = graph.max_pool %x {kernel_shape = array<i64: 2, 2>} : (tensor<2x3x8xf32>) -> tensor<2x3x7xf32>
  func.return
}

// CHECK: 'graph.max_pool' attribute 'kernel_shape': expected 1 integer(s) above 0, got [2, 2]

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  %r = graph.max_pool %x {kernel_shape = array<i64: 2>, pads = array<i64: 0, 2>} : (tensor<2x3x8xf32>) -> tensor<2x3x9xf32>
  func.return
}

// CHECK: 'graph.max_pool' attribute 'pads': expected 2 integers >= 0 below the extents [2] of a window, got [0, 2]

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  %r:2 = graph.max_pool_with_indices %x {kernel_shape = array<i64: 9>} : (tensor<2x3x8xf32>) -> (tensor<2x3x1xf32>, tensor<2x3x1xi64>)
  func.return
}

// CHECK: 'graph.max_pool_with_indices' a window of 9 elements on spatial axis 0 of [8] has no element that is not padding, or does not fit; take a smaller kernel_shape or other pads

// -----

func.func @f(%x: tensor<2x3x8xi32>) {
  %r = graph.avg_pool %x {kernel_shape = array<i64: 2>} : (tensor<2x3x8xi32>) -> tensor<2x3x7xi32>
  func.return
}

// CHECK: 'graph.avg_pool' expected elements of floats to average, got i32; insert graph.astype

// -----

func.func @f(%x: tensor<2x3x1xf32>) {
  %r = graph.avg_pool %x {kernel_shape = array<i64: 2>, dilations = array<i64: 2>, pads = array<i64: 1, 1>} : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  func.return
}

// CHECK: 'graph.avg_pool' a window of 3 elements on spatial axis 0 of [1] has no element that is not padding, or does not fit; take a smaller kernel_shape or other pads

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.global_avg_pool %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return
}

// CHECK: 'graph.global_avg_pool' expected x [N, C, spatial...], got [2, 3]

// -----

func.func @f(%x: tensor<2x3x0xf32>) {
  %r = graph.global_max_pool %x : (tensor<2x3x0xf32>) -> tensor<2x3x1xf32>
  func.return
}

// CHECK: 'graph.global_max_pool' has no value over an empty axis of [2, 3, 0]; pool non-empty planes

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  %r = graph.adaptive_avg_pool %x {output_size = array<i64: 3>} : (tensor<2x3x8xf32>) -> tensor<2x3x3xf32>
  func.return
}

// CHECK: 'graph.adaptive_avg_pool' attribute 'output_size': expected divisors of the spatial extents [8], got [3]; use graph.avg_pool for other windows

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  %r = graph.avg_pool_backward %x {kernel_shape = array<i64: 2>, extents = array<i64: 8>} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  func.return
}

// CHECK: 'graph.avg_pool_backward' operand 'grad': expected 1 spatial extents [7], which pooling of [8] gives, got [8]

// -----

func.func @f(%x: tensor<2x3x8xf32>, %i: tensor<2x3x8xi32>) {
  %r = graph.max_pool_backward %x, %i {kernel_shape = array<i64: 2>, extents = array<i64: 9>} : (tensor<2x3x8xf32>, tensor<2x3x8xi32>) -> tensor<2x3x9xf32>
  func.return
}

// CHECK: 'graph.max_pool_backward' operand 'indices': expected [2, 3, 8] of i64, got 'tensor<2x3x8xi32>'
