// RUN: fuse-opt %s --wrap-kernels --bulk-launches | filecheck %s
// RUN: fuse-opt %s --wrap-kernels --bulk-launches --bulk-launches | filecheck %s
// RUN: fuse-opt %s --wrap-kernels --bulk-launches=max-launches=1 | filecheck %s --check-prefix=ONE
// RUN: fuse-opt %s --wrap-kernels --bulk-launches=max-bytes=128 | filecheck %s --check-prefix=ONE
// RUN: fuse-opt %s --bulk-launches | filecheck %s --check-prefix=BARE

// A view between launches ends no segment, a library call does and is in none.
// CHECK-LABEL: func.func @main
// CHECK:         %a = fused.kernel({{.*}} attributes {segment = 0 : i64} {
// CHECK:         %b = fused.kernel({{.*}} attributes {segment = 0 : i64} {
// CHECK:         %c = fused.kernel({{.*}}) -> (tensor<4x4xf32>) {
// CHECK-NEXT:      graph.matmul
// CHECK:         %d = fused.kernel({{.*}} attributes {segment = 1 : i64} {
// CHECK:         %e = fused.kernel({{.*}} attributes {segment = 1 : i64} {

// ONE:           %a = fused.kernel({{.*}} attributes {segment = 0 : i64} {
// ONE:           %b = fused.kernel({{.*}} attributes {segment = 1 : i64} {
// ONE:           %c = fused.kernel({{.*}}) -> (tensor<4x4xf32>) {
// ONE:           %d = fused.kernel({{.*}} attributes {segment = 2 : i64} {
// ONE:           %e = fused.kernel({{.*}} attributes {segment = 3 : i64} {

// BARE-NOT:      segment
func.func @main(%x: tensor<4x4xf32>) -> (tensor<16xf32>, tensor<4x1xf32>) {
  %a = graph.exp %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %v = graph.reshape %a {shape = array<i64: 16>} : (tensor<4x4xf32>) -> tensor<16xf32>
  %b = graph.sin %v : (tensor<16xf32>) -> tensor<16xf32>
  %c = graph.matmul %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = graph.exp %c : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = graph.sum %d {axes = array<i64: 1>, keepdims = true} : (tensor<4x4xf32>) -> tensor<4x1xf32>
  func.return %b, %e : tensor<16xf32>, tensor<4x1xf32>
}
