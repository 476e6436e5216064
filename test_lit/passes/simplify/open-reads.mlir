// RUN: fuse-opt %s --split-input-file --open-reads | filecheck %s
// RUN: fuse-opt %s --split-input-file --open-reads --canonicalize --fuse-injective --fuse-row | filecheck %s --check-prefix FUSED

// Rows that are computed with.
// CHECK-LABEL: @rows
// CHECK-NEXT: %0 = graph.checked_positions %ids {extent = 50000 : i64, axis = 0 : i64, op = "graph.take"} : (tensor<8x64xi64>) -> tensor<8x64xi32>
// CHECK-NEXT: %1 = graph.reshape %0 {shape = array<i64: 512, 1>}
// CHECK-NEXT: %2 = graph.read_at %table, %1 {axis = 0 : i64} : (tensor<50000x768xf32>, tensor<512x1xi32>) -> tensor<512x768xf32>
// CHECK-NEXT: %rows = graph.reshape %2 {shape = array<i64: 8, 64, 768>}
// CHECK-NEXT: graph.relu %rows
// FUSED-LABEL: @rows
// FUSED: fused.kernel
// FUSED-DAG: graph.read_at
// FUSED-DAG: graph.relu
// FUSED: func.return
func.func @rows(%table: tensor<50000x768xf32>, %ids: tensor<8x64xi64>) -> tensor<8x64x768xf32> {
  %rows = graph.take %table, %ids : (tensor<50000x768xf32>, tensor<8x64xi64>) -> tensor<8x64x768xf32>
  %y = graph.relu %rows : (tensor<8x64x768xf32>) -> tensor<8x64x768xf32>
  func.return %y : tensor<8x64x768xf32>
}

// -----

// One element of each row of what is made for nothing else: the row kernel gives it, and no row is stored.
// CHECK-LABEL: @picked
// CHECK: graph.subtract
// CHECK-NEXT: graph.checked_positions %i {extent = 512 : i64, axis = 1 : i64, op = "graph.take_along_axis", wrap_negative = false}
// CHECK-NEXT: graph.read_at
// FUSED-LABEL: @picked
// FUSED: -> (tensor<64x1xf32>) {
// FUSED-NEXT: graph.sum
// FUSED-NEXT: graph.subtract
// FUSED-NEXT: graph.read_at
// FUSED-NEXT: fused.yield
func.func @picked(%x: tensor<64x512xf32>, %i: tensor<64x1xi64>) -> tensor<64x1xf32> {
  %s = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x512xf32>) -> tensor<64x1xf32>
  %d = graph.subtract %x, %s : (tensor<64x512xf32>, tensor<64x1xf32>) -> tensor<64x512xf32>
  %y = graph.take_along_axis %d, %i {wrap_negative = false} : (tensor<64x512xf32>, tensor<64x1xi64>) -> tensor<64x1xf32>
  func.return %y : tensor<64x1xf32>
}

// -----

// What is only handed on, what has as many positions as elements, and what a person gave to somebody.
// CHECK-LABEL: @stays
// CHECK-NEXT: graph.take %table
// CHECK-NEXT: graph.take_along_axis
// CHECK-NEXT: graph.relu
// CHECK-NEXT: graph.take %table
// CHECK-NEXT: graph.relu
// FUSED-LABEL: @stays
// FUSED-COUNT-3: graph.take
func.func @stays(%table: tensor<50x8xf32>, %ids: tensor<4xi64>, %all: tensor<50x8xi64>) -> (tensor<4x8xf32>, tensor<50x8xf32>, tensor<4x8xf32>) {
  %a = graph.take %table, %ids : (tensor<50x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %b = graph.take_along_axis %table, %all : (tensor<50x8xf32>, tensor<50x8xi64>) -> tensor<50x8xf32>
  %c = graph.relu %b : (tensor<50x8xf32>) -> tensor<50x8xf32>
  %d = graph.take %table, %ids {use_implementation = "numpy.take"} : (tensor<50x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %e = graph.relu %d : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %a, %c, %e : tensor<4x8xf32>, tensor<50x8xf32>, tensor<4x8xf32>
}

// -----

// Rows of rows: once the second ones are read where they are needed, so are the first ones, in one run of the pass.
// CHECK-LABEL: @rows_of_rows
// CHECK:       graph.read_at %table
// CHECK:       graph.read_at %a
// CHECK-NOT:   graph.take %
// CHECK:       func.return
// FUSED-LABEL: @rows_of_rows
func.func @rows_of_rows(%table: tensor<5x64xf64>, %i: tensor<3xi32>, %j: tensor<5xi64>) -> tensor<5x64xf64> {
  %a = graph.take %table, %i : (tensor<5x64xf64>, tensor<3xi32>) -> tensor<3x64xf64>
  %b = graph.take %a, %j : (tensor<3x64xf64>, tensor<5xi64>) -> tensor<5x64xf64>
  %c = graph.multiply %b, %b : (tensor<5x64xf64>, tensor<5x64xf64>) -> tensor<5x64xf64>
  func.return %c : tensor<5x64xf64>
}

// -----

// Index tensors along axes of their own: a call would read all of them for each place, also where nothing computes with it.
// CHECK-LABEL: @apart
// CHECK:       graph.checked_positions %i
// CHECK:       graph.read_at %x
// CHECK:       graph.checked_positions %j
// CHECK:       graph.read_at
// CHECK-NOT:   graph.index
// CHECK-LABEL: @together
// CHECK-NEXT:  graph.index
// FUSED-LABEL: @apart
func.func @apart(%x: tensor<8x31x31xf32>, %i: tensor<62x1xi64>, %j: tensor<62xi64>) -> tensor<8x62x62xf32> {
  %y = graph.index %x, %i, %j {axes = array<i64: 1, 2>} : (tensor<8x31x31xf32>, tensor<62x1xi64>, tensor<62xi64>) -> tensor<8x62x62xf32>
  func.return %y : tensor<8x62x62xf32>
}
func.func @together(%x: tensor<8x31x31xf32>, %i: tensor<62xi64>, %j: tensor<62xi64>) -> tensor<8x62xf32> {
  %y = graph.index %x, %i, %j {axes = array<i64: 1, 2>} : (tensor<8x31x31xf32>, tensor<62xi64>, tensor<62xi64>) -> tensor<8x62xf32>
  func.return %y : tensor<8x62xf32>
}
