// RUN: fuse-opt %s --split-input-file --infer-shapes | filecheck %s
// RUN: fuse-opt %s --split-input-file --infer-shapes --infer-shapes | filecheck %s

// Extents go forward through ops, to the function's results.
// CHECK-LABEL: func.func @forward(
// CHECK-NEXT:      %a = graph.add %x, %b : (tensor<8x4xf32>, tensor<?xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %s = graph.sum %a {axes = array<i64: 1>, keepdims = true} : (tensor<8x4xf32>) -> tensor<8x1xf32>
// CHECK-NEXT:      %y = graph.divide %a, %s : (tensor<8x4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      func.return %y : tensor<8x4xf32>
// CHECK-NEXT:    }
func.func @forward(%x: tensor<8x4xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %a = graph.add %x, %b : (tensor<8x4xf32>, tensor<?xf32>) -> tensor<?x?xf32>
  %s = graph.sum %a {axes = array<i64: 1>, keepdims = true} : (tensor<?x?xf32>) -> tensor<?x1xf32>
  %y = graph.divide %a, %s : (tensor<?x?xf32>, tensor<?x1xf32>) -> tensor<?x?xf32>
  func.return %y : tensor<?x?xf32>
}

// -----

// Through kernels as well.
// CHECK-LABEL: func.func @kernel(
// CHECK-NEXT:      %d = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %y = fused.kernel(%a = %d : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK-NEXT:        %b = graph.tanh %a : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %b : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @kernel(%x: tensor<8xf32>) -> tensor<?xf32> {
  %d = graph.exp %x : (tensor<8xf32>) -> tensor<?xf32>
  %y = fused.kernel(%a = %d : tensor<?xf32>) -> (tensor<?xf32>) {
    %b = graph.tanh %a : (tensor<?xf32>) -> tensor<?xf32>
    fused.yield %b : tensor<?xf32>
  }
  func.return %y : tensor<?xf32>
}

// -----

// Not: nothing says how long an argument is.
// CHECK-LABEL: func.func @unknown(
// CHECK-NEXT:      %y = graph.exp %x : (tensor<?xf32>) -> tensor<?xf32>
// CHECK-NEXT:      func.return %y : tensor<?xf32>
// CHECK-NEXT:    }
func.func @unknown(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = graph.exp %x : (tensor<?xf32>) -> tensor<?xf32>
  func.return %y : tensor<?xf32>
}

// -----

// Not: a function of several blocks is left as it is.
// CHECK-LABEL: func.func @blocks(
// CHECK-NEXT:      %y = graph.add %x, %b : (tensor<8xf32>, tensor<?xf32>) -> tensor<?xf32>
// CHECK-NEXT:      cf.br ^bb1(%y : tensor<?xf32>)
// CHECK-NEXT:    ^bb1(%z: tensor<?xf32>):
// CHECK-NEXT:      func.return %z : tensor<?xf32>
// CHECK-NEXT:    }
func.func @blocks(%x: tensor<8xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %y = graph.add %x, %b : (tensor<8xf32>, tensor<?xf32>) -> tensor<?xf32>
  cf.br ^bb1(%y : tensor<?xf32>)
^bb1(%z: tensor<?xf32>):
  func.return %z : tensor<?xf32>
}
