// RUN: fuse-opt %s --split-input-file --decompose | filecheck %s
// RUN: fuse-opt %s --split-input-file --decompose --decompose | filecheck %s

// Softmax by its definition, with one reciprocal for a row.
// CHECK-LABEL: func.func @softmax(
// CHECK-NEXT:      %0 = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<8x4xf32>) -> tensor<8x1xf32>
// CHECK-NEXT:      %1 = graph.subtract %x, %0 : (tensor<8x4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %2 = graph.exp %1 : (tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %3 = graph.sum %2 {axes = array<i64: 1>, keepdims = true} : (tensor<8x4xf32>) -> tensor<8x1xf32>
// CHECK-NEXT:      %4 = graph.reciprocal %3 : (tensor<8x1xf32>) -> tensor<8x1xf32>
// CHECK-NEXT:      %y = graph.multiply %2, %4 : (tensor<8x4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      func.return %y : tensor<8x4xf32>
// CHECK-NEXT:    }
func.func @softmax(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %y = graph.softmax %x {axis = -1 : i64} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// -----

// A variance is two passes over its operand: the mean first, then squared distances from it.
// CHECK-LABEL: func.func @var(
// CHECK-NEXT:      %0 = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<8x4xf32>) -> tensor<8x1xf32>
// CHECK-NEXT:      %1 = graph.constant dense<2.500000e-01> : tensor<f32>
// CHECK-NEXT:      %2 = graph.multiply %0, %1 : (tensor<8x1xf32>, tensor<f32>) -> tensor<8x1xf32>
// CHECK-NEXT:      %3 = graph.subtract %x, %2 : (tensor<8x4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %4 = graph.square %3 : (tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %5 = graph.sum %4 {axes = array<i64: 1>, keepdims = false} : (tensor<8x4xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %6 = graph.constant dense<2.500000e-01> : tensor<f32>
// CHECK-NEXT:      %y = graph.multiply %5, %6 : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @var(%x: tensor<8x4xf32>) -> tensor<8xf32> {
  %y = graph.var %x {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// Directives go to every op; inside a kernel, what was decided about it is dropped.
// CHECK-LABEL: func.func @kernel(
// CHECK-NEXT:      %y = fused.kernel(%a = %x : tensor<8x4xf32>) -> (tensor<8x1xf32>) {
// CHECK-NEXT:        %0 = graph.sum %a {axes = array<i64: 1>, keepdims = true, fuse_group = "m"} : (tensor<8x4xf32>) -> tensor<8x1xf32>
// CHECK-NEXT:        %1 = graph.constant {fuse_group = "m"} dense<2.500000e-01> : tensor<f32>
// CHECK-NEXT:        %mean = graph.multiply %0, %1 {fuse_group = "m"} : (tensor<8x1xf32>, tensor<f32>) -> tensor<8x1xf32>
// CHECK-NEXT:        fused.yield %mean : tensor<8x1xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8x1xf32>
// CHECK-NEXT:    }
func.func @kernel(%x: tensor<8x4xf32>) -> tensor<8x1xf32> {
  %y = fused.kernel(%a = %x : tensor<8x4xf32>) -> (tensor<8x1xf32>) attributes {schedule = {kind = "row"}} {
    %mean = graph.mean %a {axes = array<i64: 1>, keepdims = true, fuse_group = "m"} : (tensor<8x4xf32>) -> tensor<8x1xf32>
    fused.yield %mean : tensor<8x1xf32>
  }
  func.return %y : tensor<8x1xf32>
}

// -----

// Not: the mean divides by an extent that is not known.
// CHECK-LABEL: func.func @unknown(
// CHECK-NEXT:      %y = graph.mean %x : (tensor<?xf32>) -> tensor<f32>
// CHECK-NEXT:      func.return %y : tensor<f32>
// CHECK-NEXT:    }
func.func @unknown(%x: tensor<?xf32>) -> tensor<f32> {
  %y = graph.mean %x : (tensor<?xf32>) -> tensor<f32>
  func.return %y : tensor<f32>
}

// -----

// Not: gelu and matmul have no decomposition.
// CHECK-LABEL: func.func @primitive(
// CHECK-NEXT:      %a = graph.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT:      %y = graph.gelu %a : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT:      func.return %y : tensor<4x4xf32>
// CHECK-NEXT:    }
func.func @primitive(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = graph.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = graph.gelu %a : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}
