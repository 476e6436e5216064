// RUN: fuse-opt %s --split-input-file --canonicalize | filecheck %s
// RUN: fuse-opt %s --split-input-file --canonicalize --canonicalize | filecheck %s

// Neutral elements, double negation, and views of views.
// CHECK-LABEL: func.func @simpler(
// CHECK-NEXT:      %c = graph.reshape %x {shape = array<i64: 4, 8>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:      func.return %x, %x, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
// CHECK-NEXT:    }
func.func @simpler(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
  %one = graph.constant dense<1.0> : tensor<f32>
  %a = graph.multiply %x, %one : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  %n = graph.negative %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = graph.negative %n : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %r = graph.reshape %x {shape = array<i64: 32>} : (tensor<8x4xf32>) -> tensor<32xf32>
  %c = graph.reshape %r {shape = array<i64: 4, 8>} : (tensor<32xf32>) -> tensor<4x8xf32>
  func.return %a, %b, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
}

// -----

// Two transposes that undo each other are none; a cast to the same type is none.
// CHECK-LABEL: func.func @nothing(
// CHECK-NEXT:      func.return %x : tensor<8x4xf32>
// CHECK-NEXT:    }
func.func @nothing(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %u = graph.permute_dims %t {axes = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %y = graph.astype %u {dtype = f32} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// -----

// Not: x + 0.0 makes +0.0 of -0.0, and x * 0.0 keeps NaN.
// CHECK-LABEL: func.func @inexact(
// CHECK-NEXT:      %zero = graph.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:      %a = graph.add %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      %b = graph.multiply %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %a, %b : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @inexact(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %a = graph.add %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = graph.multiply %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// Not: the operand is smaller than the result, or a directive names the op.
// CHECK-LABEL: func.func @kept(
// CHECK-NEXT:      %ones = graph.constant dense<1.000000e+00> : tensor<8x1xf32>
// CHECK-NEXT:      %one = graph.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:      %a = graph.multiply %x, %ones : (tensor<4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %b = graph.multiply %x, %one {keep_live} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:      func.return %a, %b : tensor<8x4xf32>, tensor<4xf32>
// CHECK-NEXT:    }
func.func @kept(%x: tensor<4xf32>) -> (tensor<8x4xf32>, tensor<4xf32>) {
  %ones = graph.constant dense<1.0> : tensor<8x1xf32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %a = graph.multiply %x, %ones : (tensor<4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
  %b = graph.multiply %x, %one {keep_live} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %a, %b : tensor<8x4xf32>, tensor<4xf32>
}
