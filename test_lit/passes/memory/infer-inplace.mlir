// RUN: fuse-opt %s --split-input-file --infer-inplace | filecheck %s
// RUN: fuse-opt %s --split-input-file --infer-inplace --infer-inplace | filecheck %s

// The last reader takes over: %a is read here and nowhere later. %x is the caller's.
// CHECK-LABEL: func.func @chain
// CHECK:         %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK:         %b = fused.kernel(%0 = %a : tensor<8xf32>) -> (tensor<8xf32>) attributes {inplace = array<i64: 0, 0>} {
func.func @chain(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<8xf32>) -> (tensor<8xf32>) {
    %1 = graph.multiply %0, %0 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %b : tensor<8xf32>
}

// -----

// A donated argument may be overwritten.
// CHECK-LABEL: func.func @donated
// CHECK:         attributes {inplace = array<i64: 0, 1>} {
func.func @donated(%x: tensor<8xf32>, %y: tensor<8xf32> {graph.donated}) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>, %1 = %y : tensor<8xf32>) -> (tensor<8xf32>) {
    %2 = graph.add %0, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    fused.yield %2 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}

// -----

// Not where a view of the operand is read later.
// CHECK-LABEL: func.func @view_is_read
// CHECK-NOT:     inplace
func.func @view_is_read(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<2x4xf32>) {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  %v = graph.reshape %a {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
  %b = fused.kernel(%0 = %a : tensor<8xf32>) -> (tensor<8xf32>) {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %b, %v : tensor<8xf32>, tensor<2x4xf32>
}

// -----

// Not where elements are read at other places than they are written: a transposition, a broadcast.
// CHECK-LABEL: func.func @other_index
// CHECK-NOT:     inplace
func.func @other_index(%x: tensor<4x4xf32> {graph.donated}, %y: tensor<4xf32> {graph.donated}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%0 = %y : tensor<4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.broadcast_to %0 {shape = array<i64: 4, 4>} : (tensor<4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  func.return %a, %b : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// A row is read in full before its elements are overwritten; not where a later stage reads it once more.
// CHECK-LABEL: func.func @row
// CHECK:         %r, %s = fused.kernel(%0 = %x : tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) attributes {inplace = array<i64: 1, 0>} {
func.func @row(%x: tensor<4x8xf32> {graph.donated}) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %r, %s = fused.kernel(%0 = %x : tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    %1 = graph.negative %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = graph.max %0 {axes = array<i64: 1>, keepdims = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
    %3 = graph.subtract %0, %2 : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
    fused.yield %1, %3 : tensor<4x8xf32>, tensor<4x8xf32>
  }
  func.return %r, %s : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Directives forbid it; a library call declares no pairs.
// CHECK-LABEL: func.func @forbidden
// CHECK-NOT:     inplace =
func.func @forbidden(%x: tensor<4x4xf32> {graph.donated}) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {no_inplace} {
    %1 = graph.exp %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  func.return %b : tensor<4x4xf32>
}

// -----

// Generated code of a product: what its epilogue alone reads, where it stores. Where the kernel names no code, a library may run it.
// CHECK-LABEL: func.func @residual
// CHECK:         %a = fused.kernel({{.*}}) -> (tensor<4x4xf32>) attributes {implementation = "fuse.matmul", schedule = {kind = "matmul"}, inplace = array<i64: 0, 1>} {
// CHECK:         %b = fused.kernel({{.*}}) -> (tensor<4x4xf32>) attributes {schedule = {kind = "matmul"}} {
func.func @residual(%x: tensor<4x4xf32> {graph.donated}, %r: tensor<4x4xf32> {graph.donated}, %s: tensor<4x4xf32> {graph.donated}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>, %1 = %r : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "fuse.matmul", schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = graph.add %2, %1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %3 : tensor<4x4xf32>
  }
  %b = fused.kernel(%0 = %x : tensor<4x4xf32>, %1 = %s : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = graph.add %2, %1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %3 : tensor<4x4xf32>
  }
  func.return %a, %b : tensor<4x4xf32>, tensor<4x4xf32>
}
