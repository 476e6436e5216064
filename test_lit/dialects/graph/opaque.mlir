// RUN: fuse-opt %s --infer-shapes | filecheck %s
// RUN: fuse-opt %s --infer-shapes | fuse-opt --print-op-generic | fuse-opt | filecheck %s

// Ops that a library runs: what is known of their operands' extents is carried on, the rest stays unknown.

// CHECK-LABEL: func.func @products(
// CHECK-NEXT:      %0 = graph.matmul %a, %b {transpose_rhs = true} : (tensor<?x8x16xf32>, tensor<4x16xf32>) -> tensor<?x8x4xf32>
// CHECK-NEXT:      %1 = graph.matmul %a, %a {transpose_lhs = true} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x16x16xf32>
// CHECK-NEXT:      func.return
func.func @products(%a: tensor<?x8x16xf32>, %b: tensor<4x16xf32>) {
  %0 = graph.matmul %a, %b {transpose_rhs = true} : (tensor<?x8x16xf32>, tensor<4x16xf32>) -> tensor<?x?x?xf32>
  %1 = graph.matmul %a, %a {transpose_lhs = true} : (tensor<?x8x16xf32>, tensor<?x8x16xf32>) -> tensor<?x?x?xf32>
  func.return
}

// CHECK-LABEL: func.func @convolutions(
// CHECK-NEXT:      %y = graph.conv %x, %w {strides = array<i64: 2>, pads = array<i64: 1, 1>, groups = 2 : i64} : (tensor<?x4x8xf16>, tensor<6x2x3xf16>) -> tensor<?x6x4xf16>
// CHECK-NEXT:      %0 = graph.conv_transpose %y, %w {strides = array<i64: 2>, pads = array<i64: 1, 1>, output_padding = array<i64: 1>, groups = 2 : i64} : (tensor<?x6x4xf16>, tensor<6x2x3xf16>) -> tensor<?x4x8xf16>
// CHECK-NEXT:      %1 = graph.conv_backward_data %y, %w {strides = array<i64: 2>, pads = array<i64: 1, 1>, groups = 2 : i64, shape = array<i64: 8>} : (tensor<?x6x4xf16>, tensor<6x2x3xf16>) -> tensor<?x4x8xf16>
// CHECK-NEXT:      %2 = graph.conv_backward_weight %y, %x {strides = array<i64: 2>, pads = array<i64: 1, 1>, groups = 2 : i64, kernel_shape = array<i64: 3>} : (tensor<?x6x4xf16>, tensor<?x4x8xf16>) -> tensor<6x2x3xf16>
// CHECK-NEXT:      func.return
func.func @convolutions(%x: tensor<?x4x8xf16>, %w: tensor<6x2x3xf16>) {
  %y = graph.conv %x, %w {strides = array<i64: 2>, pads = array<i64: 1, 1>, groups = 2 : i64} : (tensor<?x4x8xf16>, tensor<6x2x3xf16>) -> tensor<?x6x4xf16>
  %0 = graph.conv_transpose %y, %w {strides = array<i64: 2>, pads = array<i64: 1, 1>, output_padding = array<i64: 1>, groups = 2 : i64} : (tensor<?x6x4xf16>, tensor<6x2x3xf16>) -> tensor<?x?x?xf16>
  %1 = graph.conv_backward_data %y, %w {strides = array<i64: 2>, pads = array<i64: 1, 1>, groups = 2 : i64, shape = array<i64: 8>} : (tensor<?x6x4xf16>, tensor<6x2x3xf16>) -> tensor<?x?x?xf16>
  %2 = graph.conv_backward_weight %y, %x {strides = array<i64: 2>, pads = array<i64: 1, 1>, groups = 2 : i64, kernel_shape = array<i64: 3>} : (tensor<?x6x4xf16>, tensor<?x4x8xf16>) -> tensor<?x?x?xf16>
  func.return
}

// CHECK-LABEL: func.func @reads(
// CHECK-NEXT:      %0 = graph.take %x, %i {axis = 1 : i64} : (tensor<?x8x4xf32>, tensor<?x2xi64>) -> tensor<?x?x2x4xf32>
// CHECK-NEXT:      %1 = graph.embedding %t, %i : (tensor<?x4xf8E5M2>, tensor<?x2xi64>) -> tensor<?x2x4xf8E5M2>
// CHECK-NEXT:      %2 = graph.take_along_axis %t, %j {axis = 0 : i64} : (tensor<?x4xf8E5M2>, tensor<3x1xui8>) -> tensor<3x4xf8E5M2>
// CHECK-NEXT:      %3 = graph.gather_nd %x, %i {batch_dims = 1 : i64} : (tensor<?x8x4xf32>, tensor<?x2xi64>) -> tensor<?xf32>
// CHECK-NEXT:      %4 = graph.index %x, %j, %i {axes = array<i64: 0, 2>} : (tensor<?x8x4xf32>, tensor<3x1xui8>, tensor<?x2xi64>) -> tensor<3x2x8xf32>
// CHECK-NEXT:      %5 = graph.index %x, %j {axes = array<i64: -1>} : (tensor<?x8x4xf32>, tensor<3x1xui8>) -> tensor<?x8x3x1xf32>
// CHECK-NEXT:      func.return
func.func @reads(%x: tensor<?x8x4xf32>, %t: tensor<?x4xf8E5M2>, %i: tensor<?x2xi64>, %j: tensor<3x1xui8>) {
  %0 = graph.take %x, %i {axis = 1 : i64} : (tensor<?x8x4xf32>, tensor<?x2xi64>) -> tensor<?x?x?x?xf32>
  %1 = graph.embedding %t, %i : (tensor<?x4xf8E5M2>, tensor<?x2xi64>) -> tensor<?x?x?xf8E5M2>
  %2 = graph.take_along_axis %t, %j {axis = 0 : i64} : (tensor<?x4xf8E5M2>, tensor<3x1xui8>) -> tensor<?x?xf8E5M2>
  %3 = graph.gather_nd %x, %i {batch_dims = 1 : i64} : (tensor<?x8x4xf32>, tensor<?x2xi64>) -> tensor<?xf32>
  %4 = graph.index %x, %j, %i {axes = array<i64: 0, 2>} : (tensor<?x8x4xf32>, tensor<3x1xui8>, tensor<?x2xi64>) -> tensor<?x?x?xf32>
  %5 = graph.index %x, %j {axes = array<i64: -1>} : (tensor<?x8x4xf32>, tensor<3x1xui8>) -> tensor<?x?x?x?xf32>
  func.return
}

// CHECK-LABEL: func.func @writes(
// CHECK-NEXT:      %0 = graph.scatter %x, %i, %u : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?x2xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:      %1 = graph.scatter_add %x, %i, %u {axis = 1 : i64} : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?x2xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:      %2 = graph.scatter_reduce %x, %i, %u {reduce = "max"} : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?x2xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:      %3 = graph.scatter_nd %x, %i, %v {reduce = "mul"} : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:      %4 = graph.index_put %x, %v, %i, %i {accumulate = true} : (tensor<?x4xf32>, tensor<?xf32>, tensor<?x2xi64>, tensor<?x2xi64>) -> tensor<?x4xf32>
// CHECK-NEXT:      %5 = graph.embedding_backward %g, %i {rows = 7 : i64, padding_index = -1 : i64} : (tensor<?x2x5xbf16>, tensor<?x2xi64>) -> tensor<7x5xbf16>
// CHECK-NEXT:      func.return
func.func @writes(%x: tensor<?x4xf32>, %u: tensor<?x2xf32>, %i: tensor<?x2xi64>, %v: tensor<?xf32>, %g: tensor<?x2x5xbf16>) {
  %0 = graph.scatter %x, %i, %u : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?x2xf32>) -> tensor<?x?xf32>
  %1 = graph.scatter_add %x, %i, %u {axis = 1 : i64} : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?x2xf32>) -> tensor<?x?xf32>
  %2 = graph.scatter_reduce %x, %i, %u {reduce = "max"} : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?x2xf32>) -> tensor<?x?xf32>
  %3 = graph.scatter_nd %x, %i, %v {reduce = "mul"} : (tensor<?x4xf32>, tensor<?x2xi64>, tensor<?xf32>) -> tensor<?x?xf32>
  %4 = graph.index_put %x, %v, %i, %i {accumulate = true} : (tensor<?x4xf32>, tensor<?xf32>, tensor<?x2xi64>, tensor<?x2xi64>) -> tensor<?x?xf32>
  %5 = graph.embedding_backward %g, %i {rows = 7 : i64, padding_index = -1 : i64} : (tensor<?x2x5xbf16>, tensor<?x2xi64>) -> tensor<?x?xbf16>
  func.return
}

// CHECK-LABEL: func.func @orders(
// CHECK-NEXT:      %0 = graph.sort %x {axis = 0 : i64, descending = true, stable = false} : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:      %1 = graph.argsort %x : (tensor<?x4xf32>) -> tensor<?x4xi64>
// CHECK-NEXT:      %2, %3 = graph.top_k %x {k = 3 : i64, axis = 0 : i64, largest = false, sorted = false} : (tensor<?x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xi64>)
// CHECK-NEXT:      %4 = graph.searchsorted %v, %x {side = "right"} : (tensor<?xf32>, tensor<?x4xf32>) -> tensor<?x4xi64>
// CHECK-NEXT:      %5 = graph.cumulative_sum %x {axis = 1 : i64, include_initial = true} : (tensor<?x4xf32>) -> tensor<?x5xf32>
// CHECK-NEXT:      %6 = graph.cumulative_sum %v {include_initial = true} : (tensor<?xf32>) -> tensor<?xf32>
// CHECK-NEXT:      %7 = graph.cumulative_prod %x {axis = -2 : i64, exclusive = true, reverse = true} : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT:      func.return
func.func @orders(%x: tensor<?x4xf32>, %v: tensor<?xf32>) {
  %0 = graph.sort %x {axis = 0 : i64, descending = true, stable = false} : (tensor<?x4xf32>) -> tensor<?x?xf32>
  %1 = graph.argsort %x : (tensor<?x4xf32>) -> tensor<?x?xi64>
  %2:2 = graph.top_k %x {k = 3 : i64, axis = 0 : i64, largest = false, sorted = false} : (tensor<?x4xf32>) -> (tensor<?x?xf32>, tensor<?x?xi64>)
  %3 = graph.searchsorted %v, %x {side = "right"} : (tensor<?xf32>, tensor<?x4xf32>) -> tensor<?x?xi64>
  %4 = graph.cumulative_sum %x {axis = 1 : i64, include_initial = true} : (tensor<?x4xf32>) -> tensor<?x?xf32>
  %5 = graph.cumulative_sum %v {include_initial = true} : (tensor<?xf32>) -> tensor<?xf32>
  %6 = graph.cumulative_prod %x {axis = -2 : i64, exclusive = true, reverse = true} : (tensor<?x4xf32>) -> tensor<?x?xf32>
  func.return
}
