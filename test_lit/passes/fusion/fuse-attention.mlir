// RUN: fuse-opt %s --split-input-file --fuse-attention | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-attention --fuse-attention | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-attention --unfuse | filecheck %s --check-prefix=UNFUSED

// UNFUSED-NOT: fused.kernel

// Two products, a softmax between them, and the view behind; the scale and the mask of positions come along.
// CHECK-LABEL: func.func @causal(
// CHECK-NEXT:      %y = fused.kernel(%q_1 = %q : tensor<8x32xf32>, %k_1 = %k : tensor<16x32xf32>, %v_1 = %v : tensor<16x24xf32>) -> (tensor<192xf32>) {
// CHECK:             graph.iota
// CHECK:             graph.matmul
// CHECK:             graph.where
// CHECK:             graph.matmul
// CHECK-NEXT:        %y_1 = graph.reshape %o
// CHECK-NEXT:        fused.yield %y_1 : tensor<192xf32>
func.func @causal(%q: tensor<8x32xf32>, %k: tensor<16x32xf32>, %v: tensor<16x24xf32>) -> tensor<192xf32> {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %i = graph.iota {shape = array<i64: 8, 1>, axis = 0 : i64, dtype = i64} : () -> tensor<8x1xi64>
  %j = graph.iota {shape = array<i64: 1, 16>, axis = 1 : i64, dtype = i64} : () -> tensor<1x16xi64>
  %kept = graph.greater_equal %i, %j : (tensor<8x1xi64>, tensor<1x16xi64>) -> tensor<8x16xi1>
  %low = graph.constant dense<0xFF800000> : tensor<f32>
  %w = graph.where %kept, %s, %low : (tensor<8x16xi1>, tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
  %m = graph.max %w {axes = array<i64: 1>, keepdims = true} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %d = graph.subtract %w, %m : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  %e = graph.exp %d : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %t = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %p = graph.divide %e, %t : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  %o = graph.matmul %p, %v : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  %y = graph.reshape %o {shape = array<i64: 192>} : (tensor<8x24xf32>) -> tensor<192xf32>
  func.return %y : tensor<192xf32>
}

// -----

// A mask that is read from memory stays an operand; what computes it from memory stays outside.
// CHECK-LABEL: func.func @mask(
// CHECK-NEXT:      %n = graph.negative %b
// CHECK-NEXT:      %o = fused.kernel(%q_1 = %q : tensor<8x32xf32>, %k_1 = %k : tensor<16x32xf32>, %n_1 = %n : tensor<8x16xf32>, %v_1 = %v : tensor<16x24xf32>) -> (tensor<8x24xf32>) {
func.func @mask(%q: tensor<8x32xf32>, %k: tensor<16x32xf32>, %v: tensor<16x24xf32>, %b: tensor<8x16xf32>) -> tensor<8x24xf32> {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %n = graph.negative %b : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %w = graph.add %s, %n : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %t = graph.sum %w {axes = array<i64: 1>, keepdims = true} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %p = graph.divide %w, %t : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  %o = graph.matmul %p, %v : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  func.return %o : tensor<8x24xf32>
}

// -----

// Dropout by random numbers is drawn in the kernel, whose only memory is their offset; so is what is cast to a wider type.
// CHECK-LABEL: func.func @dropout(
// CHECK-NEXT:      %o = fused.kernel(%n_1 = %n : tensor<i64>, %q_1 = %q : tensor<8x32xf32>, %k_1 = %k : tensor<32x16xf32>, %b_1 = %b : tensor<8x16xi1>, %v_1 = %v : tensor<16x24xf32>) -> (tensor<8x24xf32>) {
func.func @dropout(%q: tensor<8x32xf32>, %k: tensor<32x16xf32>, %v: tensor<16x24xf32>, %b: tensor<8x16xi1>, %n: tensor<i64>) -> tensor<8x24xf32> {
  %s = graph.matmul %q, %k : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %t = graph.sum %s {axes = array<i64: 1>, keepdims = true} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %p = graph.divide %s, %t : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  %c = graph.astype %b {dtype = f32} : (tensor<8x16xi1>) -> tensor<8x16xf32>
  %w = graph.multiply %p, %c : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %u = graph.random_uniform %n {shape = array<i64: 8, 16>, dtype = f32, seed = 7 : i64} : (tensor<i64>) -> tensor<8x16xf32>
  %h = graph.constant dense<0.5> : tensor<f32>
  %m = graph.greater_equal %u, %h : (tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xi1>
  %z = graph.constant dense<0.0> : tensor<f32>
  %d = graph.where %m, %w, %z : (tensor<8x16xi1>, tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
  %o = graph.matmul %d, %v : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  func.return %o : tensor<8x24xf32>
}

// -----

// Not: no row is reduced between the products.
// CHECK-LABEL: func.func @two_layers(
// CHECK-NOT:       fused.kernel
func.func @two_layers(%x: tensor<8x32xf32>, %u: tensor<32x16xf32>, %v: tensor<16x24xf32>) -> tensor<8x24xf32> {
  %s = graph.matmul %x, %u : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %a = graph.relu %s : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %o = graph.matmul %a, %v : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  func.return %o : tensor<8x24xf32>
}

// -----

// Not: few queries, another type, scores that are returned themselves, a sum down the columns, and a directive.
// CHECK-LABEL: func.func @few(
// CHECK-NOT:       fused.kernel
func.func @few(%q: tensor<2x32xf32>, %k: tensor<32x16xf32>, %v: tensor<16x24xf32>) -> tensor<2x24xf32> {
  %s = graph.matmul %q, %k : (tensor<2x32xf32>, tensor<32x16xf32>) -> tensor<2x16xf32>
  %t = graph.sum %s {axes = array<i64: 1>, keepdims = true} : (tensor<2x16xf32>) -> tensor<2x1xf32>
  %p = graph.divide %s, %t : (tensor<2x16xf32>, tensor<2x1xf32>) -> tensor<2x16xf32>
  %o = graph.matmul %p, %v : (tensor<2x16xf32>, tensor<16x24xf32>) -> tensor<2x24xf32>
  func.return %o : tensor<2x24xf32>
}
func.func @half(%q: tensor<8x32xf16>, %k: tensor<32x16xf16>, %v: tensor<16x24xf16>) -> tensor<8x24xf16> {
  %s = graph.matmul %q, %k : (tensor<8x32xf16>, tensor<32x16xf16>) -> tensor<8x16xf16>
  %t = graph.sum %s {axes = array<i64: 1>, keepdims = true} : (tensor<8x16xf16>) -> tensor<8x1xf16>
  %p = graph.divide %s, %t : (tensor<8x16xf16>, tensor<8x1xf16>) -> tensor<8x16xf16>
  %o = graph.matmul %p, %v : (tensor<8x16xf16>, tensor<16x24xf16>) -> tensor<8x24xf16>
  func.return %o : tensor<8x24xf16>
}
func.func @columns(%q: tensor<8x32xf32>, %k: tensor<32x16xf32>, %v: tensor<16x24xf32>) -> tensor<8x24xf32> {
  %s = graph.matmul %q, %k : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %t = graph.sum %s {axes = array<i64: 0>, keepdims = true} : (tensor<8x16xf32>) -> tensor<1x16xf32>
  %p = graph.divide %s, %t : (tensor<8x16xf32>, tensor<1x16xf32>) -> tensor<8x16xf32>
  %o = graph.matmul %p, %v : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  func.return %o : tensor<8x24xf32>
}
func.func @directed(%q: tensor<8x32xf32>, %k: tensor<32x16xf32>, %v: tensor<16x24xf32>) -> tensor<8x24xf32> {
  %s = graph.matmul %q, %k : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %t = graph.sum %s {axes = array<i64: 1>, keepdims = true, no_fuse} : (tensor<8x16xf32>) -> tensor<8x1xf32>
  %p = graph.divide %s, %t : (tensor<8x16xf32>, tensor<8x1xf32>) -> tensor<8x16xf32>
  %o = graph.matmul %p, %v : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
  func.return %o : tensor<8x24xf32>
}
