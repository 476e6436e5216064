// RUN: fuse-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: not fuse-opt %s --split-input-file 2>&1 >/dev/null | filecheck %s

// CHECK: diagnostics.mlir:[[# @LINE + 2]]:18: error: value '%y' is used but not defined here
func.func @undefined(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = graph.abs %y : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

// CHECK: error: 'graph.abs' operand 0: the value is used before its definition
func.func @too_early(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = graph.abs %1 : (tensor<4xf32>) -> tensor<4xf32>
  %1 = graph.abs %x : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

// CHECK: error: unknown operation 'graph.abz'; did you mean 'graph.abs'?
func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = graph.abz %x : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

// CHECK: error: 'graph.add' operand 1: the value is defined outside of the enclosing 'fused.kernel'
func.func @not_isolated(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) {
    %1 = graph.add %a, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    fused.yield %1 : tensor<4xf32>
  }
  func.return %0 : tensor<4xf32>
}
