// RUN: fuse-opt %s --split-input-file --fuse-epilogue | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-epilogue --fuse-epilogue | filecheck %s

// Bias, activation and residual follow; the implementation stays named.
// CHECK-LABEL: func.func @ffn(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<8x4xf32>, %w_1 = %w : tensor<4x16xf32>, %b_1 = %b : tensor<16xf32>, %r_1 = %r : tensor<8x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "blas.matmul_epilogue"} {
// CHECK-NEXT:        %0 = graph.matmul %x_1, %w_1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %biased = graph.add %0, %b_1 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %act = graph.relu %biased : (tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %y_1 = graph.add %act, %r_1 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<8x16xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8x16xf32>
func.func @ffn(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>, %r: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %p = fused.kernel(%0 = %x : tensor<8x4xf32>, %1 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "blas.matmul_epilogue"} {
    %2 = graph.matmul %0, %1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    fused.yield %2 : tensor<8x16xf32>
  }
  %biased = graph.add %p, %b : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %act = graph.relu %biased : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = graph.add %act, %r : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}

// -----

// A generated product takes what follows it.
// CHECK-LABEL: func.func @generated(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<8x4xf32>, %w_1 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) {
// CHECK-NEXT:        %p = graph.matmul %x_1, %w_1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:        %y_1 = graph.relu %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
func.func @generated(%x: tensor<8x4xf32>, %w: tensor<4x16xf32>) -> tensor<8x16xf32> {
  %p = graph.matmul %x, %w : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %y = graph.relu %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}

// -----

// Not: no code is generated for products of wide integers, and the default library offers no epilogue. Few columns are generated.
// CHECK-LABEL: func.func @called(
// CHECK-NEXT:      %p = graph.matmul
// CHECK-NEXT:      %y = graph.negative
// CHECK-NEXT:      %z = fused.kernel(
func.func @called(%x: tensor<8x4xi32>, %w: tensor<4x16xi32>, %u: tensor<8x4xf32>, %v: tensor<4x3xf32>) -> (tensor<8x16xi32>, tensor<8x3xf32>) {
  %p = graph.matmul %x, %w : (tensor<8x4xi32>, tensor<4x16xi32>) -> tensor<8x16xi32>
  %y = graph.negative %p : (tensor<8x16xi32>) -> tensor<8x16xi32>
  %q = graph.matmul %u, %v : (tensor<8x4xf32>, tensor<4x3xf32>) -> tensor<8x3xf32>
  %z = graph.relu %q : (tensor<8x3xf32>) -> tensor<8x3xf32>
  func.return %y, %z : tensor<8x16xi32>, tensor<8x3xf32>
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
  %p = fused.kernel(%0 = %x : tensor<8x4xf32>, %1 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "blas.matmul_epilogue"} {
    %2 = graph.matmul %0, %1 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    fused.yield %2 : tensor<8x16xf32>
  }
  %y = graph.relu %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %q = fused.kernel(%3 = %x : tensor<8x4xf32>, %4 = %w : tensor<4x16xf32>) -> (tensor<8x16xf32>) attributes {implementation = "blas.matmul_epilogue"} {
    %5 = graph.matmul %3, %4 : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
    fused.yield %5 : tensor<8x16xf32>
  }
  %s = graph.sum %q {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  func.return %p, %y, %s : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>
}
