// RUN: fuse-opt %s --split-input-file --wrap-kernels --schedule-kernels | filecheck %s

// All that the function reads and gives is there from the call before, in the last cache.
// CHECK-LABEL: func.func @near(
// CHECK:         schedule = {kind = "matmul", right_operand = "near"}
func.func @near(%x: tensor<1x768xf32>, %w: tensor<768x2304xf32>) -> tensor<1x2304xf32> {
  %r = graph.matmul %x, %w : (tensor<1x768xf32>, tensor<768x2304xf32>) -> tensor<1x2304xf32>
  func.return %r : tensor<1x2304xf32>
}

// -----

// Three such weights are more than half of it.
// CHECK-LABEL: func.func @many(
// CHECK-NOT:     right_operand
func.func @many(%x: tensor<1x768xf32>, %a: tensor<768x2304xf32>, %b: tensor<2304x768xf32>, %c: tensor<768x2304xf32>) -> tensor<1x2304xf32> {
  %y = graph.matmul %x, %a : (tensor<1x768xf32>, tensor<768x2304xf32>) -> tensor<1x2304xf32>
  %z = graph.matmul %y, %b : (tensor<1x2304xf32>, tensor<2304x768xf32>) -> tensor<1x768xf32>
  %r = graph.matmul %z, %c : (tensor<1x768xf32>, tensor<768x2304xf32>) -> tensor<1x2304xf32>
  func.return %r : tensor<1x2304xf32>
}

// -----

// Second caches hold it.
// CHECK-LABEL: func.func @nearer(
// CHECK-NOT:     right_operand
func.func @nearer(%x: tensor<1x512xf32>, %w: tensor<512x512xf32>) -> tensor<1x512xf32> {
  %r = graph.matmul %x, %w : (tensor<1x512xf32>, tensor<512x512xf32>) -> tensor<1x512xf32>
  func.return %r : tensor<1x512xf32>
}

// -----

// CHECK-LABEL: func.func @many_rows(
// CHECK-NOT:     right_operand
func.func @many_rows(%x: tensor<9x768xf32>, %w: tensor<768x2304xf32>) -> tensor<9x2304xf32> {
  %r = graph.matmul %x, %w : (tensor<9x768xf32>, tensor<768x2304xf32>) -> tensor<9x2304xf32>
  func.return %r : tensor<9x2304xf32>
}

// -----

// Of unknown extents nothing is known.
// CHECK-LABEL: func.func @sizes(
// CHECK-NOT:     right_operand
func.func @sizes(%x: tensor<?x768xf32>, %w: tensor<768x2304xf32>) -> tensor<?x2304xf32> {
  %r = graph.matmul %x, %w : (tensor<?x768xf32>, tensor<768x2304xf32>) -> tensor<?x2304xf32>
  func.return %r : tensor<?x2304xf32>
}

// -----

// Columns of one that is transposed lie side by side.
// CHECK-LABEL: func.func @turned(
// CHECK:         right_operand = "near"
func.func @turned(%x: tensor<1x768xf32>, %w: tensor<2304x768xf32>) -> tensor<1x2304xf32> {
  %r = graph.matmul %x, %w {transpose_rhs = true} : (tensor<1x768xf32>, tensor<2304x768xf32>) -> tensor<1x2304xf32>
  func.return %r : tensor<1x2304xf32>
}

// -----

// CHECK-LABEL: func.func @turned_of_many_rows(
// CHECK-NOT:     right_operand
func.func @turned_of_many_rows(%x: tensor<4x768xf32>, %w: tensor<2304x768xf32>) -> tensor<4x2304xf32> {
  %r = graph.matmul %x, %w {transpose_rhs = true} : (tensor<4x768xf32>, tensor<2304x768xf32>) -> tensor<4x2304xf32>
  func.return %r : tensor<4x2304xf32>
}
