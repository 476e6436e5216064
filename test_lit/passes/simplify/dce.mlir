// RUN: fuse-opt %s --split-input-file --dce | filecheck %s
// RUN: fuse-opt %s --split-input-file --dce --dce | filecheck %s

// A chain that nobody reads.
// CHECK-LABEL: func.func @dead(
// CHECK-NEXT:      func.return %x : tensor<8xf32>
// CHECK-NEXT:    }
func.func @dead(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %b = graph.tanh %a : (tensor<8xf32>) -> tensor<8xf32>
  func.return %x : tensor<8xf32>
}

// -----

// A kernel gives up results and operands that are not needed, and with them what was decided about it.
// CHECK-LABEL: func.func @kernel(
// CHECK-NEXT:      %b = fused.kernel(%q = %y : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK-NEXT:        %d = graph.tanh %q : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %d : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %b : tensor<8xf32>
// CHECK-NEXT:    }
func.func @kernel(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %a, %b = fused.kernel(%p = %x : tensor<8xf32>, %q = %y : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) attributes {schedule = {kind = "pointwise"}} {
    %c = graph.exp %p : (tensor<8xf32>) -> tensor<8xf32>
    %d = graph.tanh %q : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %c, %d : tensor<8xf32>, tensor<8xf32>
  }
  func.return %b : tensor<8xf32>
}

// -----

// Not: arguments stay, whether read or not.
// CHECK-LABEL: func.func @arguments(
// CHECK-NEXT:      %y = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @arguments(%x: tensor<8xf32>, %unused: tensor<4xf32>) -> tensor<8xf32> {
  %y = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// Not: results of an op that a library runs, as long as one of them is read.
// CHECK-LABEL: func.func @library(
// CHECK-NEXT:      %v, %p = fused.kernel(%y = %x : tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>) attributes {schedule = {kind = "library"}} {
// CHECK-NEXT:        %a, %b = graph.top_k %y {k = 2 : i64} : (tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>)
// CHECK-NEXT:        fused.yield %a, %b : tensor<2xf32>, tensor<2xi64>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %v : tensor<2xf32>
// CHECK-NEXT:    }
func.func @library(%x: tensor<8xf32>) -> tensor<2xf32> {
  %v, %p = fused.kernel(%y = %x : tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>) attributes {schedule = {kind = "library"}} {
    %a, %b = graph.top_k %y {k = 2 : i64} : (tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>)
    fused.yield %a, %b : tensor<2xf32>, tensor<2xi64>
  }
  %w, %q = fused.kernel(%y = %x : tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>) attributes {schedule = {kind = "library"}} {
    %a, %b = graph.top_k %y {k = 2 : i64} : (tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>)
    fused.yield %a, %b : tensor<2xf32>, tensor<2xi64>
  }
  func.return %v : tensor<2xf32>
}
