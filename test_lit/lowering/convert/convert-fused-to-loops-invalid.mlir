// RUN: fuse-opt %s --convert-fused-to-loops --split-input-file --verify-diagnostics | filecheck %s

// CHECK: convert-fused-to-loops-invalid.mlir:5:{{[0-9]+}}: error: 'graph.exp' is not in a kernel; run wrap-kernels first
func.func @bare(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// -----

// CHECK: error: 'graph.softmax' is composite; run decompose and wrap-kernels first
func.func @composite(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = graph.softmax %x {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %r : tensor<4xf32>
}

// -----

// CHECK: error: {{.*}}%x has the dynamic type tensor<?xf32>; give static shapes and run infer-shapes
func.func @dynamic(%x: tensor<?xf32>) -> tensor<?xf32> {
  func.return %x : tensor<?xf32>
}

// -----

// CHECK: error: 'fused.kernel' inplace: %x is memory of an argument that is not given up; write graph.donated
func.func @callers(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {inplace = array<i64: 0, 0>} {
    %t = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %t : tensor<4xf32>
  }
  func.return %r : tensor<4xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule "row" cannot be kept: {{.*}}; remove the property or run schedule-kernels
func.func @stale(%x: tensor<4x5xf32>) -> (tensor<4xf32>, tensor<5xf32>) {
  %a, %b = fused.kernel(%p = %x : tensor<4x5xf32>) -> (tensor<4xf32>, tensor<5xf32>) attributes {schedule = {kind = "row"}} {
    %r = graph.sum %p {axes = array<i64: 1>} : (tensor<4x5xf32>) -> tensor<4xf32>
    %s = graph.sum %p {axes = array<i64: 0>} : (tensor<4x5xf32>) -> tensor<5xf32>
    fused.yield %r, %s : tensor<4xf32>, tensor<5xf32>
  }
  func.return %a, %b : tensor<4xf32>, tensor<5xf32>
}
