// RUN: fuse-opt %s --split-input-file --fuse-row | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-row --fuse-row | filecheck %s

// Softmax, written out, is one pass over rows.
// CHECK-LABEL: func.func @softmax(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<64x32xf32>) -> (tensor<64x32xf32>) {
// CHECK-NEXT:        %max = graph.max %x_1 {axes = array<i64: 1>, keepdims = true} : (tensor<64x32xf32>) -> tensor<64x1xf32>
// CHECK-NEXT:        %sub = graph.subtract %x_1, %max : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
// CHECK-NEXT:        %exp = graph.exp %sub : (tensor<64x32xf32>) -> tensor<64x32xf32>
// CHECK-NEXT:        %sum = graph.sum %exp {axes = array<i64: 1>, keepdims = true} : (tensor<64x32xf32>) -> tensor<64x1xf32>
// CHECK-NEXT:        %y_1 = graph.divide %exp, %sum : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<64x32xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<64x32xf32>
// CHECK-NEXT:    }
func.func @softmax(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %max = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x32xf32>) -> tensor<64x1xf32>
  %sub = graph.subtract %x, %max : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
  %exp = graph.exp %sub : (tensor<64x32xf32>) -> tensor<64x32xf32>
  %sum = graph.sum %exp {axes = array<i64: 1>, keepdims = true} : (tensor<64x32xf32>) -> tensor<64x1xf32>
  %y = graph.divide %exp, %sum : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
  func.return %y : tensor<64x32xf32>
}

// -----

// A prologue, and an epilogue of one value for each row.
// CHECK-LABEL: func.func @norm(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<64x32xf32>) -> (tensor<64xf32>) {
// CHECK-NEXT:        %square = graph.square %x_1 : (tensor<64x32xf32>) -> tensor<64x32xf32>
// CHECK-NEXT:        %sum = graph.sum %square {axes = array<i64: 1>} : (tensor<64x32xf32>) -> tensor<64xf32>
// CHECK-NEXT:        %y_1 = graph.sqrt %sum : (tensor<64xf32>) -> tensor<64xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<64xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<64xf32>
// CHECK-NEXT:    }
func.func @norm(%x: tensor<64x32xf32>) -> tensor<64xf32> {
  %square = graph.square %x : (tensor<64x32xf32>) -> tensor<64x32xf32>
  %sum = graph.sum %square {axes = array<i64: 1>} : (tensor<64x32xf32>) -> tensor<64xf32>
  %y = graph.sqrt %sum : (tensor<64xf32>) -> tensor<64xf32>
  func.return %y : tensor<64xf32>
}

// -----

// Not: the second reduction goes over the rows of the first.
// CHECK-LABEL: func.func @columns_of_rows(
// CHECK-NEXT:      %sub = fused.kernel(%x_1 = %x : tensor<64x32xf32>) -> (tensor<64x32xf32>) {
// CHECK-NEXT:        %max = graph.max %x_1 {axes = array<i64: 1>, keepdims = true} : (tensor<64x32xf32>) -> tensor<64x1xf32>
// CHECK-NEXT:        %sub_1 = graph.subtract %x_1, %max : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
// CHECK-NEXT:        fused.yield %sub_1 : tensor<64x32xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %sum = graph.sum %sub {axes = array<i64: 0>} : (tensor<64x32xf32>) -> tensor<32xf32>
// CHECK-NEXT:      func.return %sum : tensor<32xf32>
// CHECK-NEXT:    }
func.func @columns_of_rows(%x: tensor<64x32xf32>) -> tensor<32xf32> {
  %max = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x32xf32>) -> tensor<64x1xf32>
  %sub = graph.subtract %x, %max : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
  %sum = graph.sum %sub {axes = array<i64: 0>} : (tensor<64x32xf32>) -> tensor<32xf32>
  func.return %sum : tensor<32xf32>
}

// -----

// Not: two rows of a million elements would leave all but two processors idle.
// CHECK-LABEL: func.func @few_rows(
// CHECK-NEXT:      %sum = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<2x1000000xf32>) -> tensor<2x1xf32>
// CHECK-NEXT:      %y = graph.divide %x, %sum : (tensor<2x1000000xf32>, tensor<2x1xf32>) -> tensor<2x1000000xf32>
// CHECK-NEXT:      func.return %y : tensor<2x1000000xf32>
// CHECK-NEXT:    }
func.func @few_rows(%x: tensor<2x1000000xf32>) -> tensor<2x1000000xf32> {
  %sum = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<2x1000000xf32>) -> tensor<2x1xf32>
  %y = graph.divide %x, %sum : (tensor<2x1000000xf32>, tensor<2x1xf32>) -> tensor<2x1000000xf32>
  func.return %y : tensor<2x1000000xf32>
}

// -----

// Rows that will be cut keep them at work, where the result has room for what is handed on and stays in the caches.
// CHECK-LABEL: func.func @few_rows_in_caches(
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<2x60000xf32>) -> (tensor<2x60000xf32>) {
// CHECK-NEXT:        %sum = graph.sum %x_1 {axes = array<i64: 1>, keepdims = true} : (tensor<2x60000xf32>) -> tensor<2x1xf32>
// CHECK-NEXT:        %y_1 = graph.divide %x_1, %sum : (tensor<2x60000xf32>, tensor<2x1xf32>) -> tensor<2x60000xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<2x60000xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<2x60000xf32>
// CHECK-NEXT:    }
func.func @few_rows_in_caches(%x: tensor<2x60000xf32>) -> tensor<2x60000xf32> {
  %sum = graph.sum %x {axes = array<i64: 1>, keepdims = true} : (tensor<2x60000xf32>) -> tensor<2x1xf32>
  %y = graph.divide %x, %sum : (tensor<2x60000xf32>, tensor<2x1xf32>) -> tensor<2x60000xf32>
  func.return %y : tensor<2x60000xf32>
}

// -----

// Rows that lie side by side are reduced together: what is stored of them on the way is no detour.
// CHECK-LABEL: func.func @relu_backward(
// CHECK-NEXT:      %dx, %db = fused.kernel(%p_1 = %p : tensor<256x1024xi1>, %dy_1 = %dy : tensor<256x1024xf32>) -> (tensor<256x1024xf32>, tensor<1024xf32>) {
// CHECK-NEXT:        %zero = graph.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:        %dx_1 = graph.where %p_1, %dy_1, %zero : (tensor<256x1024xi1>, tensor<256x1024xf32>, tensor<f32>) -> tensor<256x1024xf32>
// CHECK-NEXT:        %db_1 = graph.sum %dx_1 {axes = array<i64: 0>} : (tensor<256x1024xf32>) -> tensor<1024xf32>
// CHECK-NEXT:        fused.yield %dx_1, %db_1 : tensor<256x1024xf32>, tensor<1024xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %dx, %db : tensor<256x1024xf32>, tensor<1024xf32>
// CHECK-NEXT:    }
func.func @relu_backward(%dy: tensor<256x1024xf32>, %p: tensor<256x1024xi1>) -> (tensor<256x1024xf32>, tensor<1024xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %dx = graph.where %p, %dy, %zero : (tensor<256x1024xi1>, tensor<256x1024xf32>, tensor<f32>) -> tensor<256x1024xf32>
  %db = graph.sum %dx {axes = array<i64: 0>} : (tensor<256x1024xf32>) -> tensor<1024xf32>
  func.return %dx, %db : tensor<256x1024xf32>, tensor<1024xf32>
}

// -----

// A row that is cut into parts keeps all processors at work; what goes into its sum is not stored.
// CHECK-LABEL: func.func @sum_of_exp(
// CHECK-NEXT:      %s = fused.kernel(%x_1 = %x : tensor<1000000xf32>) -> (tensor<f32>) {
// CHECK-NEXT:        %e = graph.exp %x_1 : (tensor<1000000xf32>) -> tensor<1000000xf32>
// CHECK-NEXT:        %s_1 = graph.sum %e {axes = array<i64: 0>} : (tensor<1000000xf32>) -> tensor<f32>
// CHECK-NEXT:        fused.yield %s_1 : tensor<f32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %s : tensor<f32>
// CHECK-NEXT:    }
func.func @sum_of_exp(%x: tensor<1000000xf32>) -> tensor<f32> {
  %e = graph.exp %x : (tensor<1000000xf32>) -> tensor<1000000xf32>
  %s = graph.sum %e {axes = array<i64: 0>} : (tensor<1000000xf32>) -> tensor<f32>
  func.return %s : tensor<f32>
}

// -----

// On a GPU neighbours that belong to other rows are threads side by side, so whole rows may be stored.
// CHECK-LABEL: func.func @softmax_of_columns(
// CHECK-NEXT:      %r = fused.kernel(%x_1 = %x : tensor<16x512x256xf32>) -> (tensor<16x512x256xf32>) {
// CHECK-NOT:       fused.kernel
// CHECK:           func.return %r
builtin.module attributes {fused.device = {name = "h100", processors = 132 : i64}} {
  func.func @softmax_of_columns(%x: tensor<16x512x256xf32>) -> tensor<16x512x256xf32> {
    %m = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<16x512x256xf32>) -> tensor<16x1x256xf32>
    %d = graph.subtract %x, %m : (tensor<16x512x256xf32>, tensor<16x1x256xf32>) -> tensor<16x512x256xf32>
    %e = graph.exp %d : (tensor<16x512x256xf32>) -> tensor<16x512x256xf32>
    %s = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<16x512x256xf32>) -> tensor<16x1x256xf32>
    %r = graph.divide %e, %s : (tensor<16x512x256xf32>, tensor<16x1x256xf32>) -> tensor<16x512x256xf32>
    func.return %r : tensor<16x512x256xf32>
  }
}
