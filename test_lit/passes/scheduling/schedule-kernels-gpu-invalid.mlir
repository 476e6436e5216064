// RUN: fuse-opt %s --split-input-file --verify-diagnostics --schedule-kernels | filecheck %s

// What a schedule says of the GPU is checked where it is written, not when CUDA C is made of it.

// CHECK: 'fused.kernel' property 'schedule', gpu: expected a dictionary such as {variant = "warp"}, got 4 : i64; write one, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>) attributes {schedule = {kind = "pointwise", gpu = 4 : i64}} {
    %e = graph.exp %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %e : tensor<8x64xf32>
  }
  func.return %r : tensor<8x64xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'variant': expected one of threads, vector, unroll, cache in a schedule of kind "pointwise", got 'variant'; remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>) attributes {schedule = {kind = "pointwise", gpu = {variant = "warp"}}} {
    %e = graph.exp %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %e : tensor<8x64xf32>
  }
  func.return %r : tensor<8x64xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'unroll': expected a power of two from 1 to 16, got 3; write one, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>) attributes {schedule = {kind = "pointwise", gpu = {unroll = 3 : i64}}} {
    %e = graph.exp %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %e : tensor<8x64xf32>
  }
  func.return %r : tensor<8x64xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'vector': expected a power of two from 1 to 16, got "wide"; write one, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>) attributes {schedule = {kind = "pointwise", gpu = {vector = "wide"}}} {
    %e = graph.exp %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %e : tensor<8x64xf32>
  }
  func.return %r : tensor<8x64xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'threads': expected none in a schedule of kind "reference", got 'threads'; remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>) attributes {schedule = {kind = "reference", gpu = {threads = 64 : i64}}} {
    %e = graph.exp %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %e : tensor<8x64xf32>
  }
  func.return %r : tensor<8x64xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'tile': expected a power of two from 32 to 64, got 16; write one, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8x64xf32>) attributes {schedule = {kind = "tile", gpu = {tile = 16 : i64}}} {
    %e = graph.exp %a : (tensor<8x64xf32>) -> tensor<8x64xf32>
    fused.yield %e : tensor<8x64xf32>
  }
  func.return %r : tensor<8x64xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'variant': expected one of thread, warp, block, shared, stream, got "fast"; write one of them, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "row", gpu = {variant = "fast"}}} {
    %s = graph.sum %a {axes = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
    fused.yield %s : tensor<8xf32>
  }
  func.return %r : tensor<8xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'threads': expected a power of two from 32 to 1024, got 2048; write one, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "row", gpu = {threads = 2048 : i64}}} {
    %s = graph.sum %a {axes = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
    fused.yield %s : tensor<8xf32>
  }
  func.return %r : tensor<8xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'splits': expected an integer from 1 to 1024, got 0; write one, or remove it
func.func @f(%x: tensor<8x64xf32>) -> tensor<8xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "column", gpu = {splits = 0 : i64}}} {
    %s = graph.sum %a {axes = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
    fused.yield %s : tensor<8xf32>
  }
  func.return %r : tensor<8xf32>
}

// -----

// CHECK: 'fused.kernel' property 'schedule', gpu: entry 'splits': expected 1 beside variant = "warp", which has one block for a row, got 3; remove one of the two
func.func @f(%x: tensor<8x64xf32>) -> tensor<8xf32> {
  %r = fused.kernel(%a = %x : tensor<8x64xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "row", gpu = {splits = 3 : i64, variant = "warp"}}} {
    %s = graph.sum %a {axes = array<i64: 1>} : (tensor<8x64xf32>) -> tensor<8xf32>
    fused.yield %s : tensor<8xf32>
  }
  func.return %r : tensor<8xf32>
}
