// RUN: fuse-opt %s --split-input-file --order-for-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --order-for-memory --order-for-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --order-for-memory --infer-inplace --plan-memory | filecheck %s --check-prefix=PLAN

// Two large values need not be alive at once. The constant and the view come with their readers; what was decided for the
// old order is gone.
// CHECK-LABEL: func.func @towers
// CHECK-NEXT:    %a = fused.kernel({{.*}}) -> (tensor<64x64xf32>) {
// CHECK:         %v = graph.reshape %a
// CHECK-NEXT:    %c = fused.kernel({{.*}}) -> (tensor<1x64xf32>) {
// CHECK:         %k = graph.constant
// CHECK-NEXT:    %b = fused.kernel({{.*}}) -> (tensor<64x64xf32>) {
// CHECK:         %d = fused.kernel({{.*}}) -> (tensor<64xf32>) {
// CHECK-NOT:     segment
// PLAN-LABEL:  func.func @towers
// PLAN-SAME:     size = 16384
func.func @towers(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %k = graph.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %a = fused.kernel(%0 = %x : tensor<64xf32>) -> (tensor<64x64xf32>) {
    %1 = graph.broadcast_to %0 {shape = array<i64: 64, 64>} : (tensor<64xf32>) -> tensor<64x64xf32>
    fused.yield %1 : tensor<64x64xf32>
  }
  %v = graph.reshape %a {shape = array<i64: 1, 64, 64>} : (tensor<64x64xf32>) -> tensor<1x64x64xf32>
  %b = fused.kernel(%0 = %x : tensor<64xf32>, %1 = %k : tensor<2xf32>) -> (tensor<64x64xf32>) {
    %2 = graph.max %1 {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
    %3 = graph.broadcast_to %0 {shape = array<i64: 64, 64>} : (tensor<64xf32>) -> tensor<64x64xf32>
    %4 = graph.add %3, %2 : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
    fused.yield %4 : tensor<64x64xf32>
  }
  %c = fused.kernel(%0 = %v : tensor<1x64x64xf32>) -> (tensor<1x64xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 2>} : (tensor<1x64x64xf32>) -> tensor<1x64xf32>
    fused.yield %1 : tensor<1x64xf32>
  }
  %d = fused.kernel(%0 = %b : tensor<64x64xf32>) -> (tensor<64xf32>) attributes {segment = 1 : i64} {
    %1 = graph.sum %0 {axes = array<i64: 1>} : (tensor<64x64xf32>) -> tensor<64xf32>
    fused.yield %1 : tensor<64xf32>
  }
  %e = fused.kernel(%0 = %c : tensor<1x64xf32>) -> (tensor<64xf32>) {
    %1 = graph.max %0 {axes = array<i64: 0>} : (tensor<1x64xf32>) -> tensor<64xf32>
    %2 = graph.exp %1 : (tensor<64xf32>) -> tensor<64xf32>
    fused.yield %2 : tensor<64xf32>
  }
  func.return %d, %e : tensor<64xf32>, tensor<64xf32>
}

// -----

// Nothing moves where no order needs less: decisions stay, too. The dead view stays where it is.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT:    %k = graph.constant
// CHECK-NEXT:    %a = fused.kernel({{.*}} attributes {slots = array<i64: 0>} {
// CHECK:         %b = fused.kernel({{.*}} attributes {inplace = array<i64: 0, 0>, slots = array<i64: 0>} {
// CHECK:         %v = graph.reshape %b
func.func @chain(%x: tensor<8xf32>) -> tensor<8xf32> attributes {
    fused.arena = {alignment = 64 : i64, lower_bound = 64 : i64, method = "hand", size = 64 : i64}} {
  %k = graph.constant dense<1.0> : tensor<8xf32>
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {slots = array<i64: 0>} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<8xf32>) -> (tensor<8xf32>) attributes {inplace = array<i64: 0, 0>, slots = array<i64: 0>} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  %v = graph.reshape %b {shape = array<i64: 2, 4>} : (tensor<8xf32>) -> tensor<2x4xf32>
  %c = fused.kernel(%0 = %b : tensor<8xf32>, %1 = %k : tensor<8xf32>) -> (tensor<8xf32>) attributes {slots = array<i64: -1>} {
    %2 = graph.add %0, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    fused.yield %2 : tensor<8xf32>
  }
  func.return %c : tensor<8xf32>
}
