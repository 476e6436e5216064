// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<2x3xi1>) {
  %r = graph.sum %x : (tensor<2x3xi1>) -> tensor<i1>
  func.return
}

// CHECK: 'graph.sum' operands (tensor<2x3xi1>): 'add' does not accept (i1, i1); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.any %x : (tensor<2x3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.any' operands (tensor<2x3xf32>): 'or' does not accept (f32, f32); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%x: tensor<2x0xf32>) {
  %r = graph.amax %x {axes = array<i64: 1>} : (tensor<2x0xf32>) -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.amax' has no value over an empty axis of [2, 0]; reduce over non-empty axes

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.prod %x {axes = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.prod' axis 2 is out of range for rank 2; expected -2 <= axis < 2

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.norm1 %x {axes = array<i64: 1, -1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.norm1' axes [1, -1] name an axis twice

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.count_nonzero %x : (tensor<2x3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.count_nonzero' result 0: expected 'tensor<i64>' as its operands give, got 'tensor<f32>'

// -----

func.func @f(%x: tensor<4xf8E5M2>) {
  %r = graph.sum_squares %x : (tensor<4xf8E5M2>) -> tensor<f8E5M2>
  func.return
}

// CHECK: 'graph.sum_squares' f8E5M2 is a storage type and 'mul' computes with it: insert graph.astype to f32 before, and back after

// -----

func.func @f(%x: tensor<2x3xi32>) {
  %r = graph.mean %x : (tensor<2x3xi32>) -> tensor<i32>
  func.return
}

// CHECK: 'graph.mean' operand 0: expected floats of one type, got 'tensor<2x3xi32>'; insert graph.astype

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r = graph.var %x {correction = "one"} : (tensor<2x3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.var' attribute 'correction': expected a number for elements of f64, got "one"

// -----

func.func @f(%x: tensor<2x3xf32>) {
  %r:2 = graph.var_mean %x {axes = array<i64: 1>} : (tensor<2x3xf32>) -> (tensor<2xf32>, tensor<2x1xf32>)
  func.return
}

// CHECK: 'graph.var_mean' result 1: expected 'tensor<2xf32>' as its operands give, got 'tensor<2x1xf32>'

// -----

func.func @f(%x: tensor<2x3xi1>) {
  %r = graph.argmax %x {axis = 1 : i64} : (tensor<2x3xi1>) -> tensor<2xi64>
  func.return
}

// CHECK: 'graph.argmax' expected elements of numbers to compare, got i1; insert graph.astype

// -----

func.func @f(%x: tensor<2x0xf32>) {
  %r = graph.argmin %x {axis = 1 : i64} : (tensor<2x0xf32>) -> tensor<2xi64>
  func.return
}

// CHECK: 'graph.argmin' has no value over an empty axis of [2, 0]; search non-empty axes
