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

// CHECK: error: 'fused.kernel' schedule kind "spiral": expected one of pointwise, row, tile, column, split, pack, matmul, attention, attention_gradient, conv, conv_winograd, library, reference
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

// CHECK: error: 'fused.kernel' schedule kind "pointwise" cannot run the kernel: entry 'stores': expected "temporal" or "requested" or "nontemporal" or "deferred", got "streamed"; remove the schedule, or write "pointwise"
func.func @stores(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise", stores = "streamed"}} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "matmul" cannot run the kernel: 'graph.matmul' is of i32, i32 to i32; code is generated for floats, and for 8-bit integers to i32; remove the schedule, or write "library"
func.func @integers(%x: tensor<16x16xi32>) -> tensor<16x16xi32> {
  %a = fused.kernel(%0 = %x : tensor<16x16xi32>) -> (tensor<16x16xi32>) attributes {schedule = {kind = "matmul"}} {
    %1 = graph.matmul %0, %0 : (tensor<16x16xi32>, tensor<16x16xi32>) -> tensor<16x16xi32>
    fused.yield %1 : tensor<16x16xi32>
  }
  func.return %a : tensor<16x16xi32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "matmul" cannot run the kernel: neighbours of a row of the product are not stored beside each other; remove the schedule, or write "library"
func.func @transposed(%x: tensor<16x32xf32>, %w: tensor<32x64xf32>) -> tensor<64x16xf32> {
  %a = fused.kernel(%0 = %x : tensor<16x32xf32>, %1 = %w : tensor<32x64xf32>) -> (tensor<64x16xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
    %3 = graph.permute_dims %2 {axes = array<i64: 1, 0>} : (tensor<16x64xf32>) -> tensor<64x16xf32>
    fused.yield %3 : tensor<64x16xf32>
  }
  func.return %a : tensor<64x16xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "attention" cannot run the kernel: it does not hold two products; remove the schedule, or write "matmul"
func.func @one_product(%x: tensor<16x32xf32>, %w: tensor<32x64xf32>) -> tensor<16x64xf32> {
  %a = fused.kernel(%0 = %x : tensor<16x32xf32>, %1 = %w : tensor<32x64xf32>) -> (tensor<16x64xf32>) attributes {schedule = {kind = "attention"}} {
    %2 = graph.matmul %0, %1 : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
    fused.yield %2 : tensor<16x64xf32>
  }
  func.return %a : tensor<16x64xf32>
}

// -----

// CHECK: error: 'fused.kernel' schedule kind "conv" cannot run the kernel: 'graph.conv' has windows of 529 elements; remove the schedule, or write "library"
func.func @large_windows(%x: tensor<1x1x32x32xf32>, %w: tensor<2x1x23x23xf32>) -> tensor<1x2x10x10xf32> {
  %a = fused.kernel(%0 = %x : tensor<1x1x32x32xf32>, %1 = %w : tensor<2x1x23x23xf32>) -> (tensor<1x2x10x10xf32>) attributes {schedule = {kind = "conv"}} {
    %2 = graph.conv %0, %1 : (tensor<1x1x32x32xf32>, tensor<2x1x23x23xf32>) -> tensor<1x2x10x10xf32>
    fused.yield %2 : tensor<1x2x10x10xf32>
  }
  func.return %a : tensor<1x2x10x10xf32>
}
