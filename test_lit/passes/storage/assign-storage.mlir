// RUN: fuse-opt %s --split-input-file --assign-storage --remarks 2>&1 | filecheck %s

// Kinds flow through what is 0 at 0. The exponential is not: its operand is made dense, once for two readers.

// CHECK-LABEL: func.func @flows
func.func @flows(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  // CHECK: %[[R:.*]] = graph.relu %a : {{.*}} -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  %0 = graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32>
  // CHECK-NEXT: %[[D:.*]] = graph.to_storage %[[R]] {graph.fallback} : {{.*}} -> tensor<4x5xf32>
  // CHECK-NEXT: graph.exp %[[D]]
  %1 = graph.exp %0 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  // CHECK-NEXT: graph.cos %[[D]]
  %2 = graph.cos %0 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  func.return %1, %2 : tensor<4x5xf32>, tensor<4x5xf32>
}

// -----

// Results stay as the function says; a composite is taken apart as far as its ops run on what is stored.

// CHECK-LABEL: func.func @results
func.func @results(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) -> (tensor<4x5xf32>, tensor<4xf32>) {
  // CHECK-NEXT: graph.abs %a : {{.*}} -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  %0 = graph.abs %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32>
  // CHECK-NEXT: graph.sum %a
  // CHECK: graph.multiply
  %1 = graph.mean %a {axes = array<i64: 1>} : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4xf32>
  // CHECK-NEXT: %[[D:.*]] = graph.to_storage {{.*}} -> tensor<4x5xf32>
  // CHECK-NEXT: func.return %[[D]]
  func.return %0, %1 : tensor<4x5xf32>, tensor<4xf32>
}

// -----

// Of two csr operands of a product the smaller one is made dense.

// CHECK-LABEL: func.func @product
func.func @product(%a: tensor<40x5xf32, #graph.csr<capacity = 7>>, %b: tensor<5x3xf32, #graph.csr<capacity = 7>>) -> tensor<40x3xf32> {
  // CHECK-NEXT: %[[D:.*]] = graph.to_storage %b {graph.fallback}
  // CHECK-NEXT: graph.matmul %a, %[[D]]
  %0 = graph.matmul %a, %b : (tensor<40x5xf32, #graph.csr<capacity = 7>>, tensor<5x3xf32, #graph.csr<capacity = 7>>) -> tensor<40x3xf32>
  func.return %0 : tensor<40x3xf32>
}

// -----

// Nothing to do.

// CHECK-LABEL: func.func @stays
func.func @stays(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>, %x: tensor<5x3xf32>, %s: tensor<f32>) -> (tensor<4x3xf32>, tensor<f32>) {
  // CHECK-NEXT: graph.matmul
  %0 = graph.matmul %a, %x : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<5x3xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT: graph.exp
  %1 = graph.exp %s : (tensor<f32>) -> tensor<f32>
  // CHECK-NEXT: func.return
  func.return %0, %1 : tensor<4x3xf32>, tensor<f32>
}

// -----

// What becomes csr is dense again where another kind is made of it.

// CHECK-LABEL: func.func @between_kinds
func.func @between_kinds(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32, #graph.row_sparse<capacity = 4>> {
  // CHECK: %[[R:.*]] = graph.relu %a : {{.*}} -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  %0 = graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32>
  // CHECK-NEXT: %[[D:.*]] = graph.to_storage %[[R]] {graph.fallback} : {{.*}} -> tensor<4x5xf32>
  // CHECK-NEXT: graph.to_storage %[[D]] : (tensor<4x5xf32>) -> tensor<4x5xf32, #graph.row_sparse<capacity = 4>>
  %1 = graph.to_storage %0 : (tensor<4x5xf32>) -> tensor<4x5xf32, #graph.row_sparse<capacity = 4>>
  func.return %1 : tensor<4x5xf32, #graph.row_sparse<capacity = 4>>
}

// -----

// Entries that are zero are not stored of what is written as dense, whatever it became; nor more than there is room for.

// CHECK-LABEL: func.func @as_written
func.func @as_written(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>, %b: tensor<4x5xf32, #graph.csr<capacity = 9>>) -> tensor<4x5xf32> {
  // CHECK: %[[R:.*]] = graph.relu %a : {{.*}} -> tensor<4x5xf32, #graph.csr<capacity = 7>>
  %0 = graph.relu %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32>
  // CHECK-NEXT: %[[D:.*]] = graph.to_storage %[[R]] : {{.*}} -> tensor<4x5xf32>
  // CHECK-NEXT: %[[S:.*]] = graph.stored_softmax %[[D]] : (tensor<4x5xf32>)
  %1 = graph.stored_softmax %0 : (tensor<4x5xf32>) -> tensor<4x5xf32>
  // CHECK-NEXT: %[[P:.*]] = graph.multiply %b, %[[D]] : {{.*}} -> tensor<4x5xf32, #graph.csr<capacity = 9>>
  %2 = graph.multiply %b, %0 : (tensor<4x5xf32, #graph.csr<capacity = 9>>, tensor<4x5xf32>) -> tensor<4x5xf32, #graph.csr<capacity = 9>>
  // CHECK-NEXT: graph.add %[[P]], %[[R]] : {{.*}} -> tensor<4x5xf32, #graph.csr<capacity = 16>>
  %3 = graph.add %2, %0 : (tensor<4x5xf32, #graph.csr<capacity = 9>>, tensor<4x5xf32>) -> tensor<4x5xf32>
  %4 = graph.add %3, %1 : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  func.return %4 : tensor<4x5xf32>
}

// -----

// A lazy step runs on the rows of its gradient; the step of all elements is never made one.
// CHECK-LABEL: func.func @lazy
func.func @lazy(%w: tensor<9x2xf32>, %g: tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, %r: tensor<f32>, %v: tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>) {
  // CHECK-NOT: graph.to_storage
  // CHECK: graph.lazy_momentum %w, %g, %r, %v
  // CHECK: graph.to_storage %g {graph.fallback}
  %0:2 = graph.lazy_momentum %w, %g, %r, %v : (tensor<9x2xf32>, tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, tensor<f32>, tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>)
  %1:2 = graph.momentum %0#0, %g, %r, %0#1 : (tensor<9x2xf32>, tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, tensor<f32>, tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>)
  func.return %1#0, %1#1 : tensor<9x2xf32>, tensor<9x2xf32>
}

// -----

// Nor Adam's: its gradient and the squares of that are made dense.
// CHECK-LABEL: func.func @lazy_adam
func.func @lazy_adam(%w: tensor<9x2xf32>, %g: tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, %r: tensor<f32>, %m: tensor<9x2xf32>, %v: tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>, tensor<9x2xf32>) {
  // CHECK-NOT: graph.to_storage
  // CHECK: graph.lazy_adam %w, %g, %r, %m, %v
  // CHECK: [[D:%.*]] = graph.to_storage %g {graph.fallback}
  // CHECK-NOT: lazy
  // CHECK: func.return
  %0:3 = graph.lazy_adam %w, %g, %r, %m, %v : (tensor<9x2xf32>, tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, tensor<f32>, tensor<9x2xf32>, tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>, tensor<9x2xf32>)
  %1:3 = graph.adam %0#0, %g, %r, %0#1, %0#2 : (tensor<9x2xf32>, tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, tensor<f32>, tensor<9x2xf32>, tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>, tensor<9x2xf32>)
  func.return %1#0, %1#1, %1#2 : tensor<9x2xf32>, tensor<9x2xf32>, tensor<9x2xf32>
}

// -----

// What means something about stored rows keeps them: of its other operands a stored one is made dense.
// CHECK-LABEL: func.func @stored_weight
func.func @stored_weight(%w: tensor<9x2xf32, #graph.row_sparse<capacity = 9>>, %g: tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, %r: tensor<f32>, %v: tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>) {
  // CHECK-NEXT: [[D:%.*]] = graph.to_storage %w {graph.fallback}
  // CHECK-NEXT: graph.lazy_momentum [[D]], %g, %r, %v
  %0:2 = graph.lazy_momentum %w, %g, %r, %v : (tensor<9x2xf32, #graph.row_sparse<capacity = 9>>, tensor<9x2xf32, #graph.row_sparse<capacity = 3>>, tensor<f32>, tensor<9x2xf32>) -> (tensor<9x2xf32>, tensor<9x2xf32>)
  func.return %0#0, %0#1 : tensor<9x2xf32>, tensor<9x2xf32>
}

// -----

// Rows that ids name have room for what these rows may have.
// CHECK-LABEL: func.func @rows
func.func @rows(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>, %i: tensor<2xi64>, %j: tensor<2x3xi64>) -> (tensor<2x5xf32>, tensor<2x3x5xf32>) {
  // CHECK: graph.take %a, %i : {{.*}} -> tensor<2x5xf32, #graph.csr<capacity = 10>>
  %0 = graph.take %a, %i : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<2xi64>) -> tensor<2x5xf32>
  // CHECK: graph.embedding %a, %j : {{.*}} -> tensor<2x3x5xf32>
  %1 = graph.embedding %a, %j : (tensor<4x5xf32, #graph.csr<capacity = 7>>, tensor<2x3xi64>) -> tensor<2x3x5xf32>
  func.return %0, %1 : tensor<2x5xf32>, tensor<2x3x5xf32>
}

// CHECK: remark: [assign-storage] fallback: 'graph.exp' has no way to run on operand 0 stored as csr: it is made dense bytes=80
// CHECK: remark: [assign-storage] fallback: 'graph.matmul' {{.*}} bytes=60
// CHECK: remark: [assign-storage] fallback: 'graph.to_storage' {{.*}} bytes=80
// CHECK: remark: [assign-storage] fallback: 'graph.add' {{.*}} stored as row_sparse: it is made dense bytes=72
// CHECK-COUNT-2: remark: [assign-storage] fallback: 'graph.subtract' {{.*}} bytes=72
// CHECK: remark: [assign-storage] fallback: 'graph.lazy_momentum' has no way to run on operand 0 stored as row_sparse: it is made dense bytes=72
// CHECK-NOT: remark
