// RUN: fuse-opt %s --split-input-file --cancel-conversions | filecheck %s
// RUN: fuse-opt %s --split-input-file --cancel-conversions --remarks 2>&1 | filecheck %s --check-prefix=REMARK

// A pair around pointwise ops that undoes itself: the ops run on what there is.

// CHECK-LABEL: func.func @inverse
func.func @inverse(%x: tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32, #graph.order<1, 0>> {
  // CHECK-NEXT: %[[E:.*]] = graph.exp %x : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32, #graph.order<1, 0>>
  // CHECK-NEXT: func.return %[[E]]
  %0 = graph.to_layout %x : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32>
  %1 = graph.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = graph.to_layout %1 : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.order<1, 0>>
  func.return %2 : tensor<4x8xf32, #graph.order<1, 0>>
}

// -----

// CHECK-LABEL: func.func @chain_and_equal
func.func @chain_and_equal(%x: tensor<4x8x2xf32>) -> (tensor<4x8x2xf32, #graph.order<2, 1, 0>>, tensor<4x8x2xf32, #graph.order<2, 1, 0>>) {
  // CHECK-NEXT: %[[L:.*]] = graph.to_layout %x : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32, #graph.order<2, 1, 0>>
  // CHECK-NEXT: func.return %[[L]], %[[L]]
  %0 = graph.to_layout %x : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32, #graph.order<1, 0, 2>>
  %1 = graph.to_layout %0 : (tensor<4x8x2xf32, #graph.order<1, 0, 2>>) -> tensor<4x8x2xf32, #graph.order<2, 1, 0>>
  %2 = graph.to_layout %x : (tensor<4x8x2xf32>) -> tensor<4x8x2xf32, #graph.order<2, 1, 0>>
  func.return %1, %2 : tensor<4x8x2xf32, #graph.order<2, 1, 0>>, tensor<4x8x2xf32, #graph.order<2, 1, 0>>
}

// -----

// Two operands are converted: their sum alone is fewer bytes.

// CHECK-LABEL: func.func @sink
func.func @sink(%x: tensor<4x8xf32, #graph.order<1, 0>>, %y: tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32> {
  // CHECK-NEXT: %[[S:.*]] = graph.add %x, %y : (tensor<4x8xf32, #graph.order<1, 0>>, tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32, #graph.order<1, 0>>
  // CHECK-NEXT: %[[R:.*]] = graph.to_layout %[[S]]
  // CHECK-NEXT: func.return %[[R]]
  %0 = graph.to_layout %x : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32>
  %1 = graph.to_layout %y : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32>
  %2 = graph.add %0, %1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %2 : tensor<4x8xf32>
}

// -----

// The narrow operand is fewer bytes than the wide result.

// CHECK-LABEL: func.func @hoist
func.func @hoist(%x: tensor<4x8xf16>) -> tensor<4x8xf32, #graph.order<1, 0>> {
  // CHECK-NEXT: %[[L:.*]] = graph.to_layout %x : (tensor<4x8xf16>) -> tensor<4x8xf16, #graph.order<1, 0>>
  // CHECK-NEXT: %[[R:.*]] = graph.astype %[[L]]
  // CHECK-NEXT: func.return %[[R]]
  %0 = graph.astype %x {dtype = f32} : (tensor<4x8xf16>) -> tensor<4x8xf32>
  %1 = graph.to_layout %0 : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.order<1, 0>>
  func.return %1 : tensor<4x8xf32, #graph.order<1, 0>>
}

// -----

// As many bytes on either side: it stays as it is, and so does what a person has marked.

// CHECK-LABEL: func.func @stays
func.func @stays(%x: tensor<4x8xf32>) -> (tensor<4x8xf32, #graph.order<1, 0>>, tensor<4x8xf32>) {
  // CHECK-NEXT: %[[E:.*]] = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %[[L:.*]] = graph.to_layout %[[E]]
  // CHECK-NEXT: %[[A:.*]] = graph.to_layout %x {no_fuse}
  // CHECK-NEXT: %[[B:.*]] = graph.to_layout %[[A]]
  // CHECK-NEXT: func.return %[[L]], %[[B]]
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = graph.to_layout %0 : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.order<1, 0>>
  %2 = graph.to_layout %x {no_fuse} : (tensor<4x8xf32>) -> tensor<4x8xf32, #graph.order<1, 0>>
  %3 = graph.to_layout %2 : (tensor<4x8xf32, #graph.order<1, 0>>) -> tensor<4x8xf32>
  func.return %1, %3 : tensor<4x8xf32, #graph.order<1, 0>>, tensor<4x8xf32>
}

// REMARK-DAG: remark: [cancel-conversions] cancelled: 'graph.to_layout'
// REMARK-DAG: remark: [cancel-conversions] moved: 'graph.add' runs on the other side of conversions, of which fewer bytes are left
