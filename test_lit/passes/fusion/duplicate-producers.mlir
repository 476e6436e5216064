// RUN: fuse-opt %s --split-input-file --fuse-elementwise --fuse-row --duplicate-producers | filecheck %s

// Sums over different axes cannot be one pass over rows: with a copy in each kernel, %a is never stored.
func.func @two_sums(%x: tensor<64x32x128xf32>) -> (tensor<32x128xf32>, tensor<64x128xf32>) {
  %a = graph.negative %x : (tensor<64x32x128xf32>) -> tensor<64x32x128xf32>
  %s = graph.sum %a {axes = array<i64: 0>} : (tensor<64x32x128xf32>) -> tensor<32x128xf32>
  %t = graph.sum %a {axes = array<i64: 1>} : (tensor<64x32x128xf32>) -> tensor<64x128xf32>
  func.return %s, %t : tensor<32x128xf32>, tensor<64x128xf32>
}
// CHECK-LABEL: func.func @two_sums
// CHECK-NEXT:    %s = fused.kernel(%x_1 = %x
// CHECK-NEXT:      %a = graph.negative %x_1
// CHECK-NEXT:      %s_1 = graph.sum %a {{.*}}
// CHECK-NEXT:      fused.yield
// CHECK-NEXT:    }
// CHECK-NEXT:        %t = fused.kernel(%x_1 = %x
// CHECK-NEXT:      %a = graph.negative %x_1
// CHECK-NEXT:      %t_1 = graph.sum %a 
// CHECK:         func.return %s, %t

// -----

// Not: readers that can be one kernel; a costly value; a reader that a library runs; a directive; operands larger than the value.
func.func @apart(%x: tensor<64x64xf32>, %y: tensor<512x1024xf32>, %b: tensor<512x1024xf32>)
    -> (tensor<64x64xf32>, tensor<64xf32>, tensor<1024xf32>, tensor<512xf32>, tensor<64x64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %a = graph.negative %x : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %e = graph.exp %a : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %r = graph.sum %a {axes = array<i64: 1>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %c = graph.pow %y, %b : (tensor<512x1024xf32>, tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %s = graph.sum %c {axes = array<i64: 0>} : (tensor<512x1024xf32>) -> tensor<1024xf32>
  %t = graph.sum %c {axes = array<i64: 1>} : (tensor<512x1024xf32>) -> tensor<512xf32>
  %d = graph.abs %x : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = graph.matmul %d, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %q = graph.sum %d {axes = array<i64: 0>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %k = graph.relu %x {stop_fusion} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %m = graph.sum %k {axes = array<i64: 0>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %n = graph.sum %k {axes = array<i64: 1>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %o = graph.add %m, %n : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  func.return %e, %r, %s, %t, %p, %q, %o : tensor<64x64xf32>, tensor<64xf32>, tensor<1024xf32>, tensor<512xf32>, tensor<64x64xf32>, tensor<64xf32>, tensor<64xf32>
}
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-1: graph.negative
// CHECK-COUNT-1: graph.pow
// CHECK-COUNT-1: graph.abs
// CHECK-COUNT-1: graph.relu
// CHECK-NOT: graph.{{negative|pow|abs|relu}}
