// RUN: fuse-opt %s --split-input-file --verify-diagnostics --infer-inplace | filecheck %s

// CHECK: infer-inplace-invalid.mlir:6:{{[0-9]+}}: error: 'fused.kernel' must_inplace cannot be kept for %a: %x is the caller's
// CHECK-SAME: graph.donated
func.func @callers(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {must_inplace} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}

// -----

// CHECK: error: 'graph.exp' carries must_inplace but is in no kernel; run wrap-kernels before
func.func @bare(%x: tensor<8xf32> {graph.donated}) -> tensor<8xf32> {
  %a = graph.exp %x {must_inplace} : (tensor<8xf32>) -> tensor<8xf32>
  func.return %a : tensor<8xf32>
}
