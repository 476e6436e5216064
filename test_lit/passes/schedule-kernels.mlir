// RUN: fuse-opt %s --split-input-file --schedule-kernels | filecheck %s
// RUN: fuse-opt %s --split-input-file --schedule-kernels --schedule-kernels | filecheck %s

// CHECK-LABEL: func.func @kinds
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "row"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "library"}} {
// CHECK:         attributes {schedule = {kind = "reference"}} {
func.func @kinds(%x: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<2x4xf32>) {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.exp %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32>
    fused.yield %1 : tensor<4xf32>
  }
  %c = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %d:2 = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<2x4xf32>) {
    %1 = graph.exp %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = graph.slice %1 {starts = array<i64: 0, 0>, stops = array<i64: 2, 4>} : (tensor<4x4xf32>) -> tensor<2x4xf32>
    fused.yield %1, %2 : tensor<4x4xf32>, tensor<2x4xf32>
  }
  func.return %b, %c, %d#0, %d#1 : tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<2x4xf32>
}

// -----

// Parts that share no more than operands run side by side; those of one size that read the same run as one pass.
// CHECK-LABEL: func.func @parts
// CHECK:         attributes {schedule = {kind = "pack"}} {
// CHECK:         attributes {schedule = {kind = "pack"}} {
// CHECK:         attributes {schedule = {kind = "row"}} {
func.func @parts(%x: tensor<8x4xf32>, %y: tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>, tensor<8x4xf32>, tensor<8xf32>) {
  %a:2 = fused.kernel(%0 = %x : tensor<8x4xf32>, %1 = %y : tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>) {
    %c = graph.constant dense<2.0> : tensor<f32>
    %2 = graph.sum %0 {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
    %3 = graph.multiply %2, %c : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
    %4 = graph.multiply %1, %c : (tensor<5xf32>, tensor<f32>) -> tensor<5xf32>
    fused.yield %3, %4 : tensor<8xf32>, tensor<5xf32>
  }
  %b:2 = fused.kernel(%0 = %a#0 : tensor<8xf32>, %1 = %a#1 : tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>)
      attributes {schedule = {kind = "pack"}} {
    %2 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    %3 = graph.exp %1 : (tensor<5xf32>) -> tensor<5xf32>
    fused.yield %2, %3 : tensor<8xf32>, tensor<5xf32>
  }
  %d:2 = fused.kernel(%0 = %x : tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
    %1 = graph.exp %0 : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = graph.sum %0 {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
    fused.yield %1, %2 : tensor<8x4xf32>, tensor<8xf32>
  }
  func.return %b#0, %b#1, %d#0, %d#1 : tensor<8xf32>, tensor<5xf32>, tensor<8x4xf32>, tensor<8xf32>
}

// -----

// A schedule written by hand is kept with all of its entries; bare ops have none.
// CHECK-LABEL: func.func @kept
// CHECK:         attributes {schedule = {kind = "pointwise", width = 4 : i64}} {
// CHECK:         %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
func.func @kept(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise", width = 4 : i64}} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
  func.return %b : tensor<8xf32>
}
