// RUN: fuse-opt %s --split-input-file --fuse-epilogue | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-epilogue --fuse-epilogue | filecheck %s

// Bias, activation and residual follow; the implementation stays named.
// CHECK-LABEL: func.func @ffn(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<8x4xf32>, %w_1 = %w : tensor<4x16xf32>, %b_1 = %b : tensor<16xf32>, %r_1 = %r : tensor<8x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "numpy.matmul_epilogue"} {
// CHECK-NEXT:        %0 = graph.matmul %x_1, %w_1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %biased = graph.add %0, %b_1 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %act = graph.relu %biased : (tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %y_1 = graph.add %act, %r_1 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<8x16xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8x16xf32>
func.func @ffn(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>, %r: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %p = fused.kernel(%0 = %x : tensor<8x4xf32>, %1 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "numpy.matmul_epilogue"} {
    %2 = graph.matmul %0, %1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    fused.yield %2 : tensor<8x16xf32>
  }
  %biased = graph.add %p, %b : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %act = graph.relu %biased : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = graph.add %act, %r : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}

// -----

// Not: the default implementation offers none.
// CHECK-LABEL: func.func @default(
// CHECK-NEXT:      %p = graph.matmul
// CHECK-NEXT:      %y = graph.relu
func.func @default(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>) -> tensor<8x16xf32> {
  %p = graph.matmul %x, %w : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %y = graph.relu %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}

// -----

// Not: the product is returned, too; and a reduction is not pointwise.
// CHECK-LABEL: func.func @read_elsewhere(
// CHECK:           fused.yield %2 : tensor<8x16xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %y = graph.relu %p
// CHECK:           fused.yield %2 : tensor<8x16xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %s = graph.sum %q
func.func @read_elsewhere(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>) {
  %p = fused.kernel(%0 = %x : tensor<8x4xf32>, %1 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "numpy.matmul_epilogue"} {
    %2 = graph.matmul %0, %1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    fused.yield %2 : tensor<8x16xf32>
  }
  %y = graph.relu %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %q = fused.kernel(%3 = %x : tensor<8x4xf32>, %4 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "numpy.matmul_epilogue"} {
    %5 = graph.matmul %3, %4 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    fused.yield %5 : tensor<8x16xf32>
  }
  %s = graph.sum %q {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  func.return %p, %y, %s : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>
}
