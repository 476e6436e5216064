// RUN: fuse-opt %s --fuse-to-fixpoint --remarks 2>&1 >/dev/null | filecheck %s --check-prefix REMARK
// RUN: fuse-opt %s --fuse-to-fixpoint | filecheck %s
// RUN: fuse-opt %s --fuse-to-fixpoint=rules=fuse-elementwise,max-rounds=1 | filecheck %s --check-prefix ONE

// The rows wait for the elementwise ops between them; the second round finds nothing to do.
func.func @softmax(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %m = graph.max %x {axes = array<i64: 1>, keepdims = true} : (tensor<64x128xf32>) -> tensor<64x1xf32>
  %s = graph.subtract %x, %m : (tensor<64x128xf32>, tensor<64x1xf32>) -> tensor<64x128xf32>
  %e = graph.exp %s : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %t = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<64x128xf32>) -> tensor<64x1xf32>
  %r = graph.divide %e, %t : (tensor<64x128xf32>, tensor<64x1xf32>) -> tensor<64x128xf32>
  func.return %r : tensor<64x128xf32>
}
// REMARK:      remark: [fuse-to-fixpoint] round: 'builtin.module' round 1: kernels: 0 before, 1 after; ops in none: 8, 3 round=1 kernels=1 bare_ops=3
// REMARK:      remark: [fuse-to-fixpoint] round: 'builtin.module' round 2: kernels: 1 before, 1 after; ops in none: 3, 3 round=2
// CHECK-LABEL: func.func @softmax
// CHECK-NEXT:   %r = fused.kernel
// CHECK-NOT:    fused.kernel

// ONE-LABEL: func.func @softmax
// ONE:         graph.max %x
// ONE-NEXT:    fused.kernel
// ONE-NOT:     fused.kernel
