// RUN: fuse-opt %s --split-input-file --verify-diagnostics --schedule-kernels | filecheck %s

// CHECK: schedule-kernels-invalid.mlir:5:{{[0-9]+}}: error: 'fused.kernel' schedule kind "pointwise" cannot run the kernel: it holds a reduction
func.func @reduction(%x: tensor<4x4xf32>) -> tensor<4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4xf32>) attributes {schedule = {kind = "pointwise"}} {
    %1 = graph.sum %0 {axes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32>
    fused.yield %1 : tensor<4xf32>
  }
  func.return %a : tensor<4xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "spiral": expected one of pointwise, row, tile, column, split, pack, library, reference
func.func @unknown(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "spiral"}} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "pack" cannot run the kernel: it is one part: there are none to run side by side; remove the schedule, or write "pointwise"
func.func @one_part(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pack"}} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "pointwise" cannot run the kernel: entry 'stores': expected "temporal" or "nontemporal", got "streamed"; remove the schedule, or write "pointwise"
func.func @stores(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise", stores = "streamed"}} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}
