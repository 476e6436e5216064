// RUN: fuse-opt %s --bulk-launches | filecheck %s

// Generated products and convolutions share a segment with other kernels; those that a library runs do not.
// CHECK-LABEL: func.func @products
// CHECK:         fused.kernel({{.*}} attributes {schedule = {kind = "conv"}, segment = 0 : i64} {
// CHECK:         fused.kernel({{.*}} attributes {schedule = {kind = "matmul"}, segment = 0 : i64} {
// CHECK:         fused.kernel({{.*}} attributes {schedule = {kind = "library"}} {
func.func @products(%x: tensor<1x2x20x20xf32>, %w: tensor<2x2x1x1xf32>, %m: tensor<20x20xf32>) -> tensor<1x2x20x20xf32> {
  %a = fused.kernel(%0 = %x : tensor<1x2x20x20xf32>, %1 = %w : tensor<2x2x1x1xf32>) -> (tensor<1x2x20x20xf32>) attributes {schedule = {kind = "conv"}} {
    %2 = graph.conv %0, %1 : (tensor<1x2x20x20xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x20x20xf32>
    fused.yield %2 : tensor<1x2x20x20xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<1x2x20x20xf32>, %1 = %m : tensor<20x20xf32>) -> (tensor<1x2x20x20xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 : (tensor<1x2x20x20xf32>, tensor<20x20xf32>) -> tensor<1x2x20x20xf32>
    fused.yield %2 : tensor<1x2x20x20xf32>
  }
  %c = fused.kernel(%0 = %b : tensor<1x2x20x20xf32>, %1 = %w : tensor<2x2x1x1xf32>) -> (tensor<1x2x20x20xf32>) attributes {schedule = {kind = "library"}} {
    %2 = graph.conv %0, %1 : (tensor<1x2x20x20xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x20x20xf32>
    fused.yield %2 : tensor<1x2x20x20xf32>
  }
  func.return %c : tensor<1x2x20x20xf32>
}
