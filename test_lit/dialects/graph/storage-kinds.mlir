// RUN: fuse-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @kinds
func.func @kinds(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>, %g: tensor<4x5xf32, #graph.row_sparse<capacity = 2>>, %y: tensor<4x5xf32>) -> tensor<4x5xf32> {
  // What is 0 at 0 keeps the pattern; a constant operand has its value.
  // CHECK: graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  %0 = graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  %c = graph.constant dense<2.0> : tensor<f32>
  %1 = graph.divide %g, %c : (tensor<4x5xf32, #graph.row_sparse<capacity = 2>>, tensor<f32>) -> tensor<4x5xf32, #graph.row_sparse<capacity = 2>>
  // 0 times an infinity would be NaN: the result's kind says that y is finite where nothing is stored.
  %2 = graph.multiply %0, %y : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<4x5xf32>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  // CHECK: graph.to_storage
  %3 = graph.to_storage %2 : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32>
  %4 = graph.subtract %3, %1 : (tensor<4x5xf32>, tensor<4x5xf32, #graph.row_sparse<capacity = 2>>) -> tensor<4x5xf32>
  func.return %4 : tensor<4x5xf32>
}

// -----

// expected-error@+1 {{expected a matrix to be stored as csr, got a tensor of 1 axes}}
func.func @rank(%a: tensor<4xf32, #graph.csr<capacity = 2>>) { func.return }

// -----

// expected-error@+1 {{expected a capacity of at most 20, as many as there are, got 21}}
func.func @capacity(%a: tensor<4x5xf32, #graph.csr<capacity = 21>>) { func.return }

// -----

// expected-error@+1 {{expected known extents of a tensor that is stored as row_sparse}}
func.func @extents(%a: tensor<?x5xf32, #graph.row_sparse<capacity = 2>>) { func.return }

// -----

func.func @adds_a_number(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) {
  // expected-error@+1 {{'graph.exp' result 0: expected 'tensor<4x5xf32>' by how its operands are stored, got 'tensor<4x5xf32, #graph.csr<capacity = 7>>'; write that and convert it by graph.to_storage}}
  %0 = graph.exp %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  func.return
}

// -----

func.func @another_capacity(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) {
  // expected-error@+1 {{write that with a capacity of 7}}
  %0 = graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.csr<capacity = 8>>
  func.return
}

// -----

func.func @between_kinds(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) {
  // expected-error@+1 {{'graph.to_storage' cannot convert from csr to row_sparse at once; convert to a dense tensor between}}
  %0 = graph.to_storage %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.row_sparse<capacity = 2>>
  func.return
}

// -----

func.func @orders(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>, %x: tensor<5x3xf32, #graph.order<1, 0>>) {
  // expected-error@+1 {{takes and gives dense values in row-major order beside those of storage kinds}}
  %0 = graph.matmul %a, %x : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<5x3xf32, #graph.order<1, 0>>) -> tensor<4x3xf32>
  func.return
}
