// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.add %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.add' operand shapes 4x3, 4 do not broadcast: dimension -1 has extents 3 and 4; make them equal or 1

// -----

func.func @f(%x: tensor<4x4xf32>) {
  %r = graph.matmul %x, %x {transpose_rhs} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return
}

// CHECK: 'graph.matmul' property 'transpose_rhs': unit should be of base attribute integer

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.add %y, %d : (tensor<4xf32>, tensor<4xf64>) -> tensor<4xf64>
  func.return
}

// CHECK: 'graph.add' operands (tensor<4xf32>, tensor<4xf64>): 'add' does not accept (f32, f64); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.exp %i : (tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.exp' operands (tensor<4xi32>): 'exp' does not accept (i32); expected one element type that it accepts, insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.less %y, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.less' result 0: expected 'tensor<4xi1>' as its operands give, got 'tensor<4xf32>'

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.reshape %x {shape = array<i64: 5>} : (tensor<4x3xf32>) -> tensor<5xf32>
  func.return
}

// CHECK: 'graph.reshape' cannot reshape [4, 3] (12 elements) to [5] (5 elements)

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.permute_dims %x {axes = array<i64: 0, 2>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.permute_dims' attribute 'axes': expected a permutation of 0..1, got [0, 2]

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.slice %y {starts = array<i64: 0>, stops = array<i64: 4>, steps = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.slice' attribute 'steps': expected steps other than 0, got [0]

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.sum %x {axes = array<i64: 2>} : (tensor<4x3xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.sum' axis 2 is out of range for rank 2; expected -2 <= axis < 2

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.softmax %i : (tensor<4xi32>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.softmax' operand 0: expected floats of one type, got 'tensor<4xi32>'

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.layer_norm %x, %y, %y : (tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.layer_norm' operand 'scale': expected shape [3], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.matmul %x, %x : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.matmul' contracted dimensions differ: the last of [4, 3] is 3, that of [4, 3] is 4; they must be equal

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.conv %x, %x : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv' expected x [N, C, spatial...] and weight [O, C/groups, spatial...] with 1 to 3 spatial axes, got [4, 3] and [4, 3]

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<4xf64>) {
  %r = graph.astype %y {dtype = complex<f32>} : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
  func.return
}

// CHECK: 'graph.astype' element type 'complex<f32>' is not supported; use one of i1 i8 i16 i32 i64 ui8 ui16 ui32 ui64 f16 bf16 f32 f64 f8E4M3FN f8E5M2

// -----

func.func @f(%x: tensor<4x4xf32, "csr">) {
  %r = graph.exp %x : (tensor<4x4xf32, "csr">) -> tensor<4x4xf32, "csr">
  func.return
}

// CHECK: 'graph.exp' type 'tensor<4x4xf32, "csr">': expected an encoding such as #graph.order<1, 0>, got '"csr"', which would be ignored; remove it, or register an attribute that implements EncodingPart

// -----

func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  func.return %x : tensor<?xf32>
^empty:
}

// CHECK: 'func.func' has an empty block; expected at least a terminator
