// RUN: fuse-opt %s --split-input-file | filecheck %s
// RUN: fuse-opt %s --split-input-file | fuse-opt --split-input-file | filecheck %s

// CHECK-LABEL: func.func @orders
func.func @orders(%x: tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>, %b: tensor<8x1x1xf32>) -> tensor<2x8x5x6xf32> {
  // CHECK: graph.add %x, %b : (tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>, tensor<8x1x1xf32>) -> tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>
  %0 = graph.add %x, %b : (tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>, tensor<8x1x1xf32>) -> tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>
  // CHECK: graph.sum %0 {axes = array<i64: 2, 3>} : (tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>) -> tensor<2x8xf32>
  %s = graph.sum %0 {axes = array<i64: 2, 3>} : (tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>) -> tensor<2x8xf32>
  // CHECK: graph.to_layout %0 : (tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>) -> tensor<2x8x5x6xf32>
  %1 = graph.to_layout %0 : (tensor<2x8x5x6xf32, #graph.order<0, 2, 3, 1>>) -> tensor<2x8x5x6xf32>
  func.return %1 : tensor<2x8x5x6xf32>
}

// -----

// CHECK-LABEL: func.func @panels
func.func @panels(%w: tensor<32x48xf32>) {
  // CHECK: -> tensor<32x48xf32, #graph.panel<axis = 1, width = 16>>
  %0 = graph.to_layout %w : (tensor<32x48xf32>) -> tensor<32x48xf32, #graph.panel<axis = 1, width = 16>>
  // CHECK: -> tensor<32x48xf32, #graph.encoding<#graph.order<1, 0>, #graph.panel<axis = 1, width = 16>>>
  %1 = graph.to_layout %0 : (tensor<32x48xf32, #graph.panel<axis = 1, width = 16>>) -> tensor<32x48xf32, #graph.encoding<#graph.order<1, 0>, #graph.panel<axis = 1, width = 16>>>
  // CHECK: -> tensor<32x48xf32, #graph.panel<axis = 1, width = 16, group = 4>>
  %2 = graph.to_layout %w : (tensor<32x48xf32>) -> tensor<32x48xf32, #graph.panel<axis = 1, width = 16, group = 4>>
  func.return
}
