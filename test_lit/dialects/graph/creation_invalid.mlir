// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f() {
  %r = graph.full {shape = array<i64: -1>, value = 1 : i64, dtype = f32} : () -> tensor<1xf32>
  func.return
}

// CHECK: 'graph.full' attribute 'shape': expected static extents >= 0, got [-1]

// -----

func.func @f() {
  %r = graph.full {shape = array<i64: 1>, value = 1 : i64, dtype = complex<f32>} : () -> tensor<1xf32>
  func.return
}

// CHECK: 'graph.full' attribute 'dtype': expected a supported element type, got 'complex<f32>'

// -----

func.func @f() {
  %r = graph.full {shape = array<i64: 1>, value = 0.5 : f64, dtype = i8} : () -> tensor<1xi8>
  func.return
}

// CHECK: 'graph.full' attribute 'value': expected an integer for elements of i8, got 5.000000e-01 : f64

// -----

func.func @f() {
  %r = graph.full {shape = array<i64: 1>, value = "1", dtype = f32} : () -> tensor<1xf32>
  func.return
}

// CHECK: 'graph.full' attribute 'value': expected a number for elements of f32, got "1"

// -----

func.func @f() {
  %r = graph.full {shape = array<i64: 1>, value = -1 : i64, dtype = ui8} : () -> tensor<1xui8>
  func.return
}

// CHECK: 'graph.full' attribute 'value': expected 0 to 255 for elements of ui8, got -1

// -----

func.func @f() {
  %r = graph.iota {shape = array<i64: 2>, dtype = i1} : () -> tensor<2xi1>
  func.return
}

// CHECK: 'graph.iota' attribute 'dtype': expected integers or floats to count with, got i1

// -----

func.func @f() {
  %r = graph.iota {shape = array<i64: 2>, axis = 1 : i64, dtype = i8} : () -> tensor<2xi8>
  func.return
}

// CHECK: 'graph.iota' axis 1 is out of range for rank 1; expected -1 <= axis < 1

// -----

func.func @f() {
  %r = graph.eye {n = -1 : i64, dtype = f32} : () -> tensor<0x0xf32>
  func.return
}

// CHECK: 'graph.eye' attributes 'n' and 'm': expected integers >= 0, got [-1, -1]

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.one_hot %y {depth = 3 : i64, dtype = f32} : (tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.one_hot' operand 'x': expected integer ids, got 'tensor<4xf32>'

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.one_hot %i {depth = -3 : i64, dtype = f32} : (tensor<4xi32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.one_hot' attribute 'depth': expected an integer >= 0, got -3

// -----

func.func @f() {
  %r = graph.random_bits {shape = array<i64: 2>, seed = 1 : i64, dtype = f32} : () -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.random_bits' attribute 'dtype': expected integers or i1, got f32

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.random_bits %y {shape = array<i64: 2>, seed = 1 : i64, dtype = i8} : (tensor<4xf32>) -> tensor<2xi8>
  func.return
}

// CHECK: 'graph.random_bits' operand 'offset': expected 'tensor<i64>', got 'tensor<4xf32>'

// -----

func.func @f() {
  %r = graph.random_uniform {shape = array<i64: 2>, seed = 1 : i64, dtype = i32} : () -> tensor<2xi32>
  func.return
}

// CHECK: 'graph.random_uniform' attribute 'dtype': expected floats to compute with, got i32

// -----

func.func @f() {
  %r = graph.random_uniform {shape = array<i64: 2>, seed = 1 : i64, dtype = f32, low = 1.0 : f64} : () -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.random_uniform' attributes 'low' and 'high': expected low < high, got 1.0 and 1.0

// -----

func.func @f() {
  %r = graph.random_normal {shape = array<i64: 2>, seed = 1 : i64, dtype = f32, mean = 0x7FF0000000000000 : f64} : () -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.random_normal' attribute 'mean': expected a finite number, got inf

// -----

func.func @f() {
  %r = graph.random_normal {shape = array<i64: 2>, seed = 1 : i64, dtype = f32, std = -1.0 : f64} : () -> tensor<2xf32>
  func.return
}

// CHECK: 'graph.random_normal' attribute 'std': expected a number >= 0, got -1.0
