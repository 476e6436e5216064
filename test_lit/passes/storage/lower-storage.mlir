// RUN: fuse-opt %s --split-input-file --lower-storage | filecheck %s

// Two chains on one pattern read the same indptr and indices; results say what they are parts of.

// CHECK-LABEL: func.func @chains(%a_indptr: tensor<5xi32> {graph.frozen, graph.part = ["indptr", tensor<4x5xf32, #graph.csr<capacity = 7>>]}, %a_indices: tensor<7xi32> {{.*}}, %a_values: tensor<7xf32> {{.*}}, %x: tensor<5x3xf32>)
// CHECK-SAME: (tensor<4x3xf32>, tensor<5xi32> {graph.part = ["indptr", tensor<4x5xf32, #graph.csr<capacity = 7>>]}, tensor<7xi32> {{.*}}, tensor<7xf32> {{.*}})
func.func @chains(%a: tensor<4x5xf32, #graph.csr<capacity = 7>> {graph.frozen}, %x: tensor<5x3xf32>) -> (tensor<4x3xf32>, tensor<4x5xf32, #graph.csr<capacity = 7>>) {
  // CHECK-NEXT: %[[R:.*]] = graph.relu %a_values
  %0 = graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  // CHECK-NEXT: %[[Q:.*]] = graph.square %a_values
  %1 = graph.square %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  // CHECK-NEXT: %[[P:.*]] = graph.csr_matmul %a_indptr, %a_indices, %[[R]], %x
  %2 = graph.matmul %0, %x : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<5x3xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT: %[[S:.*]] = graph.add %[[R]], %[[Q]] : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
  %3 = graph.add %0, %1 : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  // CHECK-NEXT: func.return %[[P]], %a_indptr, %a_indices, %[[S]]
  func.return %2, %3 : tensor<4x3xf32>, tensor<4x5xf32, #graph.csr<capacity = 7>>
}

// -----

// Different patterns: the union of both.

// CHECK-LABEL: func.func @union
func.func @union(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>, %b: tensor<4x5xf32, #graph.csr<capacity = 3>>) -> tensor<4x5xf32, #graph.csr<capacity = 10>> {
  // CHECK: graph.csr_union %a_indptr, %a_indices, %b_indptr, %b_indices {capacity = 10 : i64}
  %0 = graph.add %a, %b : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<4x5xf32, #graph.csr<capacity = 3>>) -> tensor<4x5xf32, #graph.csr<capacity = 10>>
  func.return %0 : tensor<4x5xf32, #graph.csr<capacity = 10>>
}

// -----

// A step of gradient descent touches the rows of the gradient alone.

// CHECK-LABEL: func.func @step
func.func @step(%w: tensor<50x4xf32>, %g: tensor<8x4xf32>, %ids: tensor<8xi64>) -> tensor<50x4xf32> {
  // CHECK: %[[P:.*]], %[[I:.*]], %[[V:.*]] = graph.embedding_rows_backward %g, %ids
  %0 = graph.embedding_backward %g, %ids {rows = 50 : i64} : (tensor<8x4xf32>, tensor<8xi64>) -> tensor<50x4xf32, #graph.row_sparse<capacity = 8>>
  %rate = graph.constant dense<0.1> : tensor<f32>
  // CHECK: graph.multiply %[[V]], {{.*}} -> tensor<8x4xf32>
  %1 = graph.multiply %0, %rate : (tensor<50x4xf32, #graph.row_sparse<capacity = 8>>, tensor<f32>) -> tensor<50x4xf32, #graph.row_sparse<capacity = 8>>
  // CHECK-NEXT: graph.rows_subtract %w, %[[P]], %[[I]], %
  %2 = graph.subtract %w, %1 : (tensor<50x4xf32>, tensor<50x4xf32, #graph.row_sparse<capacity = 8>>) -> tensor<50x4xf32>
  func.return %2 : tensor<50x4xf32>
}

// -----

// Dense functions stay as they are.

// CHECK-LABEL: func.func @dense
func.func @dense(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  // CHECK-NEXT: graph.relu %x : (tensor<4x5xf32>) -> tensor<4x5xf32>
  %0 = graph.relu %x : (tensor<4x5xf32>) -> tensor<4x5xf32>
  // CHECK-NEXT: func.return
  func.return %0 : tensor<4x5xf32>
}
