// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%v: tensor<4xf32>, %x: tensor<4x3xf32>) {
  %r = graph.matmul %v, %x {transpose_lhs = true} : (tensor<4xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.matmul' attribute 'transpose_lhs': expected an operand of rank 2 or more, got [4]; remove the attribute

// -----

func.func @f(%b: tensor<4x3xi1>) {
  %r = graph.matmul %b, %b : (tensor<4x3xi1>, tensor<4x3xi1>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.matmul' expected operands of numbers, got i1; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %d: tensor<4x3xf64>) {
  %r = graph.matmul %x, %d : (tensor<4x3xf32>, tensor<4x3xf64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.matmul' element types f32 and f64 differ; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xi8>, %u: tensor<3x4xui8>) {
  %r = graph.matmul %x, %u : (tensor<4x3xi8>, tensor<3x4xui8>) -> tensor<4x4xi8>
  func.return
}

// CHECK: 'graph.matmul' element types i8 and ui8 differ; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xi8>, %u: tensor<3x4xui8>) {
  %r = graph.matmul %x, %u {dtype = ui32} : (tensor<4x3xi8>, tensor<3x4xui8>) -> tensor<4x4xui32>
  func.return
}

// CHECK: 'graph.matmul' attribute 'dtype': expected a type that holds all of i8 and ui8, got 'ui32'

// -----

func.func @f(%x: tensor<4x3xf16>, %u: tensor<3x4xbf16>) {
  %r = graph.matmul %x, %u {dtype = f32} : (tensor<4x3xf16>, tensor<3x4xbf16>) -> tensor<4x4xf32>
  func.return
}

// CHECK: 'graph.matmul' element types f16 and bf16 differ; insert graph.astype

// -----

func.func @f(%n: tensor<1x4x6xf32>) {
  %r = graph.conv %n, %n {groups = 4 : i64} : (tensor<1x4x6xf32>, tensor<1x4x6xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv' x has 4 channels, weight takes 4 in each of 4 group(s) and gives 1; expected 16 channels and outputs divisible by the groups

// -----

func.func @f(%n: tensor<1x4x6xf32>, %w: tensor<2x2x3xf32>) {
  %r = graph.conv %n, %w {groups = 2 : i64, strides = array<i64: 0>} : (tensor<1x4x6xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv' attribute 'strides': expected 1 positive integers, got [0]

// -----

func.func @f(%n: tensor<1x4x6xf32>, %w: tensor<2x2x3xf32>) {
  %r = graph.conv %n, %w {groups = 2 : i64, pads = array<i64: 1>} : (tensor<1x4x6xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv' attribute 'pads': expected 2 integers >= 0, got [1]

// -----

func.func @f(%n: tensor<1x4x6xf32>, %w: tensor<2x2x3xf32>) {
  %r = graph.conv %n, %w {groups = 2 : i64, dilations = array<i64: 3>} : (tensor<1x4x6xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv' the window is larger than the padded input: it reaches over [7] of [6] spatial elements, and no output element is left; pad more or dilate less

// -----

func.func @f(%n: tensor<1x4x6xf32>, %w: tensor<2x2x3xf32>) {
  %r = graph.conv_transpose %n, %w : (tensor<1x4x6xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv_transpose' x has 4 channels, weight takes 2 in 1 group(s); expected as many, divisible by the groups

// -----

func.func @f(%w: tensor<2x2x3xf32>) {
  %r = graph.conv_transpose %w, %w {pads = array<i64: 3, 3>} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv_transpose' the pads leave no output element: the extents would be [-1]; make them less

// -----

func.func @f(%w: tensor<2x2x3xf32>) {
  %r = graph.conv_transpose %w, %w {output_padding = array<i64: 1>} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv_transpose' attribute 'output_padding': expected less than the stride or the dilation of the axis, got [1]

// -----

func.func @f(%w: tensor<2x2x3xf32>) {
  %r = graph.conv_backward_data %w, %w {shape = array<i64: 8>} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv_backward_data' grad of shape [2, 2, 3] is no result of a convolution of [8] with weight [2, 2, 3]; expected [2, 2, 6]

// -----

func.func @f(%w: tensor<2x2x3xf32>) {
  %r = graph.conv_backward_data %w, %w {shape = array<i64: 8, 8>} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv_backward_data' attribute 'shape': expected 1 positive integers, got [8, 8]

// -----

func.func @f(%w: tensor<2x2x3xf32>, %n: tensor<1x4x6xf32>) {
  %r = graph.conv_backward_weight %w, %n {kernel_shape = array<i64: 3>} : (tensor<2x2x3xf32>, tensor<1x4x6xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.conv_backward_weight' grad of shape [2, 2, 3] is no result of a convolution of [1, 4, 6] with windows [3]; expected [1, 2, 4]

// -----

func.func @f(%x: tensor<4x3xf32>, %v: tensor<4xf32>) {
  %r = graph.take %x, %v : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.take' operand 'indices': expected integers, got 'tensor<4xf32>'; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>) {
  %r = graph.take %x, %i {axis = 2 : i64} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.take' axis 2 is out of range for rank 2; expected -2 <= axis < 2

// -----

func.func @f(%n: tensor<1x4x6xf32>, %i: tensor<2xi64>) {
  %r = graph.embedding %n, %i : (tensor<1x4x6xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.embedding' operand 'weight': expected [rows, width], got [1, 4, 6]; use graph.take

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>) {
  %r = graph.take_along_axis %x, %i : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.take_along_axis' expected indices of rank 2 as x has, got [2]; insert graph.expand_dims

// -----

func.func @f(%x: tensor<4x3xf32>, %m: tensor<4x3xi64>) {
  %r = graph.gather_nd %x, %m : (tensor<4x3xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.gather_nd' operand 'indices': expected positions of a static length from 1 to 2 along the last axis, got [4, 3]

// -----

func.func @f(%x: tensor<4x3xf32>, %m: tensor<4x3xi64>) {
  %r = graph.gather_nd %x, %m {batch_dims = 2 : i64} : (tensor<4x3xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.gather_nd' attribute 'batch_dims': expected 2 leading axes that are equal, fewer than either rank, got [4, 3] and [4, 3]

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>) {
  %r = graph.index %x, %i, %i {axes = array<i64: 0, -2>} : (tensor<4x3xf32>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.index' attribute 'axes': expected a different axis for each of 2 index tensors, 1 or more, got [0, -2]

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>, %m: tensor<4x3xi64>) {
  %r = graph.index %x, %i, %m : (tensor<4x3xf32>, tensor<2xi64>, tensor<4x3xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.index' operand shapes 2, 4x3 do not broadcast: dimension -1 has extents 2 and 3; make them equal or 1

// -----

func.func @f(%x: tensor<4x3xf32>, %m: tensor<4x3xi64>, %d: tensor<4x3xf64>) {
  %r = graph.scatter %x, %m, %d : (tensor<4x3xf32>, tensor<4x3xi64>, tensor<4x3xf64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter' operand 'updates': expected elements of type f32 as x has, got f64

// -----

func.func @f(%x: tensor<4x3xf32>, %m: tensor<4x3xi64>, %v: tensor<4xf32>) {
  %r = graph.scatter %x, %m, %v : (tensor<4x3xf32>, tensor<4x3xi64>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter' operand 'updates': expected shape [4, 3] as the indices have, got [4]; slice or broadcast them

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>, %u: tensor<2xf32>) {
  %r = graph.scatter %x, %i, %u : (tensor<4x3xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter' operand 'indices': expected rank 2 and no more than [4, 3] beside axis 0, got [2]

// -----

func.func @f(%v: tensor<4xf32>, %m: tensor<4x3xi64>, %x: tensor<4x3xf32>) {
  %r = graph.scatter %v, %m, %x : (tensor<4xf32>, tensor<4x3xi64>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter' operand 'indices': expected rank 1 and no more than [4] beside axis 0, got [4, 3]

// -----

func.func @f(%b: tensor<4x3xi1>, %m: tensor<4x3xi64>) {
  %r = graph.scatter_add %b, %m, %b : (tensor<4x3xi1>, tensor<4x3xi64>, tensor<4x3xi1>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter_add' expected numbers to reduce, got i1; insert graph.astype

// -----

func.func @f(%s: tensor<4x3xf8E5M2>, %m: tensor<4x3xi64>) {
  %r = graph.scatter_add %s, %m, %s : (tensor<4x3xf8E5M2>, tensor<4x3xi64>, tensor<4x3xf8E5M2>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter_add' f8E5M2 is a storage type and it is computed with: insert graph.astype to f32 before, and back after

// -----

func.func @f(%x: tensor<4x3xf32>, %m: tensor<4x3xi64>) {
  %r = graph.scatter_reduce %x, %m, %x {reduce = "sum"} : (tensor<4x3xf32>, tensor<4x3xi64>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter_reduce' attribute 'reduce': expected one of add, mul, max, min, got "sum"

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>, %v: tensor<4xf32>) {
  %r = graph.scatter_nd %x, %i, %v : (tensor<4x3xf32>, tensor<2xi64>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter_nd' operand 'updates': expected shape [], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<2xi64>) {
  %r = graph.scatter_nd %x, %i, %x {reduce = "mean"} : (tensor<4x3xf32>, tensor<2xi64>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter_nd' attribute 'reduce': expected one of none, add, mul, max, min, got "mean"

// -----

func.func @f(%x: tensor<4x3xf32>, %n: tensor<1x4x6xf32>, %i: tensor<2xi64>) {
  %r = graph.index_put %x, %n, %i : (tensor<4x3xf32>, tensor<1x4x6xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.index_put' operand 'values': expected a shape that broadcasts to [2, 3], got [1, 4, 6]

// -----

func.func @f(%x: tensor<4x3xf32>, %d: tensor<4x3xf64>, %i: tensor<2xi64>) {
  %r = graph.index_put %x, %d, %i : (tensor<4x3xf32>, tensor<4x3xf64>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.index_put' operand 'values': expected elements of type f32 as x has, got f64

// -----

func.func @f(%s: tensor<4x3xf8E5M2>, %p: tensor<4x1xi64>) {
  %r = graph.scatter_nd %s, %p, %s {reduce = "add"} : (tensor<4x3xf8E5M2>, tensor<4x1xi64>, tensor<4x3xf8E5M2>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.scatter_nd' f8E5M2 is a storage type and it is computed with: insert graph.astype to f32 before, and back after

// -----

func.func @f(%b: tensor<4x3xi1>, %m: tensor<4x3xi64>) {
  %r = graph.index_put %b, %b, %m {accumulate = true} : (tensor<4x3xi1>, tensor<4x3xi1>, tensor<4x3xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.index_put' expected numbers to reduce, got i1; insert graph.astype

// -----

func.func @f(%i: tensor<2xi64>) {
  %r = graph.embedding_backward %i, %i {rows = 3 : i64} : (tensor<2xi64>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.embedding_backward' operand 'grad': expected floats, got 'tensor<2xi64>'

// -----

func.func @f(%u: tensor<2xf32>, %z: tensor<i64>) {
  %r = graph.embedding_backward %u, %z {rows = -1 : i64} : (tensor<2xf32>, tensor<i64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.embedding_backward' attribute 'rows': expected 0 or more, got -1

// -----

func.func @f(%v: tensor<4xf32>, %i: tensor<2xi64>) {
  %r = graph.embedding_backward %v, %i {rows = 3 : i64} : (tensor<4xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.embedding_backward' operand 'grad': expected [2, ?], a row for each id, got [4]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.sort %x {axis = -3 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.sort' axis -3 is out of range for rank 2; expected -2 <= axis < 2

// -----

func.func @f(%s: tensor<4x3xf8E5M2>) {
  %r = graph.sort %s : (tensor<4x3xf8E5M2>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.sort' f8E5M2 is a storage type and it is computed with: insert graph.astype to f32 before, and back after

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r:2 = graph.top_k %x {k = 4 : i64} : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>)
  func.return
}

// CHECK: 'graph.top_k' attribute 'k': expected 0 to 3, the extent of axis 1 of [4, 3], got 4

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r:2 = graph.top_k %x {k = 2 : i64} : (tensor<4x3xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>)
  func.return
}

// CHECK: 'graph.top_k' result 1: expected 'tensor<4x2xi64>' as its operands give, got 'tensor<4x2xi32>'

// -----

func.func @f(%x: tensor<4x3xf32>, %v: tensor<4xf32>) {
  %r = graph.searchsorted %x, %v : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.searchsorted' operand 'x': expected rank 1, got [4, 3]

// -----

func.func @f(%v: tensor<4xf32>, %d: tensor<4x3xf64>) {
  %r = graph.searchsorted %v, %d : (tensor<4xf32>, tensor<4x3xf64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.searchsorted' element types f32 and f64 differ; insert graph.astype

// -----

func.func @f(%v: tensor<4xf32>) {
  %r = graph.searchsorted %v, %v {side = "both"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.searchsorted' attribute 'side': expected "left" or "right", got "both"

// -----

func.func @f(%b: tensor<4x3xi1>) {
  %r = graph.cumulative_sum %b {axis = 0 : i64} : (tensor<4x3xi1>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.cumulative_sum' expected numbers, got i1; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.cumulative_sum %x : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.cumulative_sum' attribute 'axis': expected one for a tensor of rank 2, got none

// -----

func.func @f(%v: tensor<4xf32>) {
  %r = graph.cumulative_prod %v {include_initial = true, exclusive = true} : (tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.cumulative_prod' attributes 'include_initial' and 'exclusive' exclude each other; remove one

// -----

func.func @f(%i: tensor<4xi64>) {
  %r = graph.checked_positions %i {axis = 0 : i64, extent = 4.0 : f32, op = "graph.take"} : (tensor<4xi64>) -> tensor<4xi32>
  func.return
}

// CHECK: 'graph.checked_positions' attribute 'extent': expected an integer or a '#graph.size', got '4.000000e+00 : f32'
