// RUN: fuse-opt %s --split-input-file --fuse-elementwise | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-elementwise --fuse-elementwise | filecheck %s

// A chain with an implicit broadcast; the constant goes into the kernel.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<8x4xf32>, %b_1 = %b : tensor<4xf32>) -> (tensor<8x4xf32>) {
// CHECK-NEXT:        %sum = graph.add %x_1, %b_1 : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:        %exp = graph.exp %sum : (tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:        %one = graph.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:        %y_1 = graph.add %exp, %one : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<8x4xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8x4xf32>
// CHECK-NEXT:    }
func.func @chain(%x: tensor<8x4xf32>, %b: tensor<4xf32>) -> tensor<8x4xf32> {
  %one = graph.constant dense<1.0> : tensor<f32>
  %sum = graph.add %x, %b : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %exp = graph.exp %sum : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %y = graph.add %exp, %one : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// -----

// A diamond; what is read outside as well becomes a second result.
// CHECK-LABEL: func.func @diamond(
// CHECK-NEXT:      %exp, %y = fused.kernel(%x_1 = %x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
// CHECK-NEXT:        %exp_1 = graph.exp %x_1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %neg = graph.negative %exp_1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %y_1 = graph.multiply %exp_1, %neg : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %exp_1, %y_1 : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %exp, %y : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @diamond(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %exp = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %neg = graph.negative %exp : (tensor<8xf32>) -> tensor<8xf32>
  %y = graph.multiply %exp, %neg : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %exp, %y : tensor<8xf32>, tensor<8xf32>
}

// -----

// Not: a costly value would be computed once for every place that it is broadcast to.
// CHECK-LABEL: func.func @costly(
// CHECK-NEXT:      %exp = graph.exp %x : (tensor<64x1xf32>) -> tensor<64x1xf32>
// CHECK-NEXT:      %z = graph.add %exp, %y : (tensor<64x1xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
// CHECK-NEXT:      func.return %z : tensor<64x64xf32>
// CHECK-NEXT:    }
func.func @costly(%x: tensor<64x1xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %exp = graph.exp %x : (tensor<64x1xf32>) -> tensor<64x1xf32>
  %z = graph.add %exp, %y : (tensor<64x1xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %z : tensor<64x64xf32>
}

// -----

// Not: the path through the matmul would make a cycle.
// CHECK-LABEL: func.func @cycle(
// CHECK-NEXT:      %exp = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT:      %mm = graph.matmul %exp, %exp : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT:      %y = graph.add %exp, %mm : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT:      func.return %y : tensor<4x4xf32>
// CHECK-NEXT:    }
func.func @cycle(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %exp = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %mm = graph.matmul %exp, %exp : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = graph.add %exp, %mm : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}
