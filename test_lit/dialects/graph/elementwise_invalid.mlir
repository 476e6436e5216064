// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.subtract %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.subtract' operand shapes 4x3, 4 do not broadcast: dimension -1 has extents 3 and 4; make them equal or 1

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.clip %x, %y, %y : (tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.clip' operand shapes 4x3, 4, 4 do not broadcast: dimension -1 has extents 3 and 4; make them equal or 1

// -----

func.func @f(%y: tensor<4xf32>, %d: tensor<4xf64>) {
  %r = graph.multiply %y, %d : (tensor<4xf32>, tensor<4xf64>) -> tensor<4xf64>
  func.return
}

// CHECK: 'graph.multiply' operands (tensor<4xf32>, tensor<4xf64>): 'mul' does not accept (f32, f64); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>, %h: tensor<4xf16>) {
  %r = graph.maximum %y, %h : (tensor<4xf32>, tensor<4xf16>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.maximum' operands mix f32 and f16; insert graph.astype to make them one type

// -----

func.func @f(%b: tensor<4xi1>) {
  %r = graph.add %b, %b : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  func.return
}

// CHECK: 'graph.add' operands (tensor<4xi1>, tensor<4xi1>): 'add' does not accept (i1, i1); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%e: tensor<4xf8E5M2>) {
  %r = graph.add %e, %e : (tensor<4xf8E5M2>, tensor<4xf8E5M2>) -> tensor<4xf8E5M2>
  func.return
}

// CHECK: 'graph.add' f8E5M2 is a storage type and 'add' computes with it: insert graph.astype to f32 before, and back after

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.divide %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.divide' operands (tensor<4xi32>, tensor<4xi32>): 'div' does not accept (i32, i32); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.fma %i, %i, %i : (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.fma' operands (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>): 'fma' does not accept (i32, i32, i32); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>, %i: tensor<4xi32>) {
  %r = graph.lerp %y, %y, %i : (tensor<4xf32>, tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.lerp' operand 2: expected elements of f16 bf16 f32 f64, got 'tensor<4xi32>'; insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.astype %y {dtype = i4} : (tensor<4xf32>) -> tensor<4xi4>
  func.return
}

// CHECK: 'graph.astype' element type 'i4' is not supported; use one of i1

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.where %y, %y, %y : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.where' operand 'condition': expected an i1 condition, got 'tensor<4xf32>'; insert a comparison or graph.astype

// -----

func.func @f(%b: tensor<4xi1>, %y: tensor<4xf32>, %d: tensor<4xf64>) {
  %r = graph.where %b, %y, %d : (tensor<4xi1>, tensor<4xf32>, tensor<4xf64>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.where' operands 'x' and 'y': expected one element type, got f32 and f64; insert graph.astype

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.sqrt %i : (tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.sqrt' operands (tensor<4xi32>): 'sqrt' does not accept (i32); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%b: tensor<4xi1>) {
  %r = graph.floor %b : (tensor<4xi1>) -> tensor<4xi1>
  func.return
}

// CHECK: 'graph.floor' operands (tensor<4xi1>): 'floor' does not accept (i1); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>, %i: tensor<4xi32>) {
  %r = graph.logaddexp %y, %i : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.logaddexp' operand 1: expected elements of f16 bf16 f32 f64, got 'tensor<4xi32>'; insert graph.astype

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.sigmoid %i : (tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.sigmoid' operand 0: expected elements of f16 bf16 f32 f64, got 'tensor<4xi32>'; insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>, %i: tensor<4xi32>) {
  %r = graph.silu_backward %y, %i : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.silu_backward' operand 1: expected elements of f16 bf16 f32 f64, got 'tensor<4xi32>'; insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>, %d: tensor<4xf64>) {
  %r = graph.silu_backward %y, %d : (tensor<4xf32>, tensor<4xf64>) -> tensor<4xf64>
  func.return
}

// CHECK: 'graph.silu_backward' operands (tensor<4xf32>, tensor<4xf64>): 'mul' does not accept (f32, f64); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.elu %y {alpha = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.elu' property 'alpha': 1 : i64 should be of base attribute float

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.gelu %y {approximate = "fast"} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.gelu' attribute 'approximate': expected "none" or "tanh", got "fast"

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.gelu_backward %y, %y {approximate = "fast"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.gelu_backward' attribute 'approximate': expected "none" or "tanh", got "fast"

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.softplus %y {beta = 0.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.softplus' attribute 'beta': expected a number other than 0, got 0.0; leave it out for 1.0

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.celu %y {alpha = 0.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.celu' attribute 'alpha': expected a number above 0, got 0.0; leave it out for 1.0

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.hard_tanh %y {min = 2.0 : f64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.hard_tanh' attributes 'min' and 'max': expected min <= max, got 2.0 and 1.0; swap them

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.less %y, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.less' result 0: expected 'tensor<4xi1>' as its operands give, got 'tensor<4xf32>'

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.isnan %y : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.isnan' result 0: expected 'tensor<4xi1>' as its operands give, got 'tensor<4xf32>'

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.logical_and %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.logical_and' operand 0: expected elements of i1, got 'tensor<4xi32>'; use graph.bitwise_and on the bits of integers, or make truth values with graph.not_equal

// -----

func.func @f(%u: tensor<4xui8>) {
  %r = graph.logical_not %u : (tensor<4xui8>) -> tensor<4xui8>
  func.return
}

// CHECK: 'graph.logical_not' operand 0: expected elements of i1, got 'tensor<4xui8>'; use graph.bitwise_not on the bits of integers, or make truth values with graph.not_equal

// -----

func.func @f(%b: tensor<4xi1>, %y: tensor<4xf32>) {
  %r = graph.logical_or %b, %y : (tensor<4xi1>, tensor<4xf32>) -> tensor<4xi1>
  func.return
}

// CHECK: 'graph.logical_or' operand 1: expected elements of i1, got 'tensor<4xf32>'; use graph.bitwise_or on the bits of integers, or make truth values with graph.not_equal

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.bitwise_xor %y, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.bitwise_xor' operands (tensor<4xf32>, tensor<4xf32>): 'xor' does not accept (f32, f32); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%b: tensor<4xi1>) {
  %r = graph.bitwise_left_shift %b, %b : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  func.return
}

// CHECK: 'graph.bitwise_left_shift' operands (tensor<4xi1>, tensor<4xi1>): 'shl' does not accept (i1, i1); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%i: tensor<4xi32>, %u: tensor<4xui8>) {
  %r = graph.bitwise_right_shift %i, %u : (tensor<4xi32>, tensor<4xui8>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.bitwise_right_shift' operands (tensor<4xi32>, tensor<4xui8>): 'shr' does not accept (i32, ui8); expected one element type that it accepts, insert graph.astype
