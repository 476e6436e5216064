// RUN: fuse-opt %s --split-input-file --fuse-attention-gradient | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-attention-gradient --fuse-attention-gradient | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-attention-gradient --unfuse | filecheck %s --check-prefix=UNFUSED
// RUN: fuse-opt %s --split-input-file --fuse-attention-gradient --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK

// UNFUSED-NOT: fused.kernel

// Five products, what is between them, and the view behind one: three results of one kernel.
// CHECK-LABEL: func.func @gradients(
// CHECK-NEXT:    fused.kernel(%q_1 = %q : tensor<2x8x32xf32>, %k_1 = %k : tensor<2x16x32xf32>, %l_1 = %l : tensor<2x8x1xf32>, %g_1 = %g : tensor<2x8x32xf32>, %v_1 = %v : tensor<2x16x32xf32>, %d_1 = %d : tensor<2x8x1xf32>)
// CHECK:           graph.exp
// CHECK-COUNT-3:   graph.matmul
// CHECK:           fused.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
func.func @gradients(%q: tensor<2x8x32xf32>, %k: tensor<2x16x32xf32>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>, %l: tensor<2x8x1xf32>, %d: tensor<2x8x1xf32>) -> (tensor<512xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>) {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %x = graph.subtract %s, %l : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %p = graph.exp %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dp = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %c = graph.subtract %dp, %d : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %ds = graph.multiply %p, %c : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dv = graph.matmul %p, %g {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dk = graph.matmul %ds, %q {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dq = graph.matmul %ds, %k : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  %y = graph.reshape %dq {shape = array<i64: 512>} : (tensor<2x8x32xf32>) -> tensor<512xf32>
  func.return %y, %dk, %dv : tensor<512xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>
}

// -----

// Scores' gradients that are a result, too, would be in memory: the products stay apart.
// CHECK-LABEL: func.func @stored(
// CHECK-NOT:     fused.kernel
// CHECK:         func.return
// REMARK: scores-read: 'graph.matmul' not fused with {{.*}}: 'func.return' reads scores
func.func @stored(%q: tensor<2x8x32xf32>, %k: tensor<2x16x32xf32>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>, %l: tensor<2x8x1xf32>, %d: tensor<2x8x1xf32>) -> (tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>, tensor<2x8x16xf32>) {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %x = graph.subtract %s, %l : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %p = graph.exp %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dp = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %c = graph.subtract %dp, %d : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %ds = graph.multiply %p, %c : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dv = graph.matmul %p, %g {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dk = graph.matmul %ds, %q {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dq = graph.matmul %ds, %k : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  func.return %dq, %dk, %dv, %ds : tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>, tensor<2x8x16xf32>
}

// -----

// A row that is reduced between the products needs all of its scores at once.
// CHECK-LABEL: func.func @reduced(
// CHECK-NOT:     fused.kernel
// CHECK:         func.return
func.func @reduced(%q: tensor<2x8x32xf32>, %k: tensor<2x16x32xf32>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>, %l: tensor<2x8x1xf32>, %d: tensor<2x8x1xf32>) -> (tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>) {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %x = graph.subtract %s, %l : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %p = graph.exp %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dp = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %t = graph.sum %dp {axes = array<i64: 2>, keepdims = true} : (tensor<2x8x16xf32>) -> tensor<2x8x1xf32>
  %c = graph.subtract %dp, %t : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %ds = graph.multiply %p, %c : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %dv = graph.matmul %p, %g {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dk = graph.matmul %ds, %q {transpose_lhs = true} : (tensor<2x8x16xf32>, tensor<2x8x32xf32>) -> tensor<2x16x32xf32>
  %dq = graph.matmul %ds, %k : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  func.return %dq, %dk, %dv : tensor<2x8x32xf32>, tensor<2x16x32xf32>, tensor<2x16x32xf32>
}
