// RUN: fuse-opt %s --split-input-file --separate-attention=smallest-bytes=0 | filecheck %s
// RUN: fuse-opt %s --split-input-file --separate-attention=smallest-bytes=0 --separate-attention=smallest-bytes=0 | filecheck %s
// RUN: fuse-opt %s --split-input-file --separate-attention=smallest-bytes=0 --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK
// RUN: fuse-opt %s --split-input-file --separate-attention=smallest-bytes=0 --fuse-attention-gradient --fuse-attention | filecheck %s --check-prefix=FUSED

// The backward pass has scores of its own; numbers of rows stay common, and so does %g.
// CHECK-LABEL: func.func @step(
// CHECK-NEXT:    [[S:%.*]] = graph.matmul %q, %k
// CHECK-NEXT:    [[AGAIN:%.*]] = graph.matmul %q, %k
// CHECK-NEXT:    %m = graph.max [[S]]
// CHECK:         %o = graph.matmul %p, %v
// CHECK:         graph.subtract [[AGAIN]], %l
// CHECK-NOT:     [[S]]
// CHECK:         func.return
// REMARK: separated: 'graph.matmul' is computed once more for the backward pass of attention, so that neither keeps scores in memory ops=1
// FUSED-LABEL: func.func @step(
// FUSED-COUNT-2: fused.kernel(
// FUSED-NOT:     fused.kernel(
// FUSED:         func.return
func.func @step(%q: tensor<2x8x32xf32>, %k: tensor<2x16x32xf32>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>, %d: tensor<2x8x1xf32>) -> (tensor<2x8x32xf32>, tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>) {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %m = graph.max %s {axes = array<i64: 2>, keepdims = true} : (tensor<2x8x16xf32>) -> tensor<2x8x1xf32>
  %x = graph.subtract %s, %m : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %e = graph.exp %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %t = graph.sum %e {axes = array<i64: 2>, keepdims = true} : (tensor<2x8x16xf32>) -> tensor<2x8x1xf32>
  %p = graph.divide %e, %t : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %o = graph.matmul %p, %v : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  %n = graph.log %t : (tensor<2x8x1xf32>) -> tensor<2x8x1xf32>
  %l = graph.add %n, %m : (tensor<2x8x1xf32>, tensor<2x8x1xf32>) -> tensor<2x8x1xf32>
  %y = graph.subtract %s, %l : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %w = graph.exp %y : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dp = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %c = graph.subtract %dp, %d : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %ds = graph.multiply %w, %c : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dv = graph.matmul %w, %g {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dk = graph.matmul %ds, %q {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dq = graph.matmul %ds, %k : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  func.return %o, %dq, %dk, %dv : tensor<2x8x32xf32>, tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>
}

// -----

// Scores that are a result, too, are in memory anyway: nothing is computed twice.
// CHECK-LABEL: func.func @returned(
// CHECK-COUNT-1: graph.matmul %q, %k
// CHECK-NOT:     graph.matmul %q, %k
// CHECK:         func.return
// REMARK: scores-read: 'graph.matmul' is kept for the backward pass of attention: 'func.return' reads
func.func @returned(%q: tensor<2x8x32xf32>, %k: tensor<2x16x32xf32>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>, %d: tensor<2x8x1xf32>) -> (tensor<2x8x32xf32>, tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>, tensor<2x8x16xf32>) {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %m = graph.max %s {axes = array<i64: 2>, keepdims = true} : (tensor<2x8x16xf32>) -> tensor<2x8x1xf32>
  %x = graph.subtract %s, %m : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %e = graph.exp %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %o = graph.matmul %e, %v : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  %dp = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %c = graph.subtract %dp, %d : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %ds = graph.multiply %e, %c : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dv = graph.matmul %e, %g {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dk = graph.matmul %ds, %q {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dq = graph.matmul %ds, %k : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  func.return %o, %dq, %dk, %dv, %e : tensor<2x8x32xf32>, tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>, tensor<2x8x16xf32>
}

// -----

// A mask of positions that two layers read is computed in each of them.
// CHECK-LABEL: func.func @layers(
// CHECK-COUNT-2: graph.greater_equal
// CHECK-NOT:     graph.greater_equal
// CHECK:         func.return
// REMARK: positions: 'graph.greater_equal' is computed once more for
// FUSED-LABEL: func.func @layers(
// FUSED-NEXT:    fused.kernel(%q_1 = %q : tensor<2x8x32xf32>, %k_1 = %k : tensor<2x16x32xf32>, %v_1 = %v : tensor<2x16x32xf32>) -> (tensor<2x8x32xf32>)
func.func @layers(%q: tensor<2x8x32xf32>, %k: tensor<2x16x32xf32>, %v: tensor<2x16x32xf32>) -> tensor<2x8x32xf32> {
  %i = graph.iota {shape = array<i64: 8, 1>, axis = 0 : i64, dtype = i64} : () -> tensor<8x1xi64>
  %j = graph.iota {shape = array<i64: 1, 16>, axis = 1 : i64, dtype = i64} : () -> tensor<1x16xi64>
  %c = graph.greater_equal %i, %j : (tensor<8x1xi64>, tensor<1x16xi64>) -> tensor<8x16xi1>
  %0 = graph.constant dense<0xFF800000> : tensor<f32>
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %h = graph.where %c, %s, %0 : (tensor<8x16xi1>, tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8x16xf32>
  %m = graph.max %h {axes = array<i64: 2>, keepdims = true} : (tensor<2x8x16xf32>) -> tensor<2x8x1xf32>
  %x = graph.subtract %h, %m : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %e = graph.exp %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %o = graph.matmul %e, %v : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  %s2 = graph.matmul %o, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %h2 = graph.where %c, %s2, %0 : (tensor<8x16xi1>, tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8x16xf32>
  %m2 = graph.max %h2 {axes = array<i64: 2>, keepdims = true} : (tensor<2x8x16xf32>) -> tensor<2x8x1xf32>
  %x2 = graph.subtract %h2, %m2 : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %e2 = graph.exp %x2 : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %o2 = graph.matmul %e2, %v : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  func.return %o2 : tensor<2x8x32xf32>
}
