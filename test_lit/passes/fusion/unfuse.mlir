// RUN: fuse-opt %s --split-input-file --unfuse | filecheck %s
// RUN: fuse-opt %s --split-input-file --unfuse --unfuse | filecheck %s

// The ops return to the function; decisions about the kernel are gone, directives on its ops are not.
// CHECK-LABEL: func.func @inline(
// CHECK-NEXT:      %exp = graph.exp %x {no_inplace} : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %neg = graph.negative %exp : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %neg : tensor<8xf32>
// CHECK-NEXT:    }
func.func @inline(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise"}, inplace = array<i64>} {
    %exp = graph.exp %a {no_inplace} : (tensor<8xf32>) -> tensor<8xf32>
    %neg = graph.negative %exp : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %neg : tensor<8xf32>
  }
  func.return %y : tensor<8xf32>
}

// -----

// A kernel that hands an operand through leaves its operand.
// CHECK-LABEL: func.func @through(
// CHECK-NEXT:      %abs = graph.abs %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %x, %abs : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @through(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %same, %y = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %abs = graph.abs %a : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %a, %abs : tensor<8xf32>, tensor<8xf32>
  }
  func.return %same, %y : tensor<8xf32>, tensor<8xf32>
}

// -----

// Not: there is no kernel.
// CHECK-LABEL: func.func @bare(
// CHECK-NEXT:      %y = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @bare(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
