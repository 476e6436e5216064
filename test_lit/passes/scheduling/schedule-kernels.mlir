// RUN: fuse-opt %s --split-input-file --schedule-kernels | filecheck %s
// RUN: fuse-opt %s --split-input-file --schedule-kernels --schedule-kernels | filecheck %s

// CHECK-LABEL: func.func @kinds
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "row"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "matmul"}} {
// CHECK:         attributes {schedule = {kind = "reference"}} {
func.func @kinds(%x: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<2x4xf32>) {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.exp %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4xf32>
    fused.yield %1 : tensor<4xf32>
  }
  %c = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %d:2 = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<2x4xf32>) {
    %1 = graph.exp %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = graph.slice %1 {starts = array<i64: 0, 0>, stops = array<i64: 2, 4>} : (tensor<4x4xf32>) -> tensor<2x4xf32>
    fused.yield %1, %2 : tensor<4x4xf32>, tensor<2x4xf32>
  }
  func.return %b, %c, %d#0, %d#1 : tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<2x4xf32>
}

// -----

// Parts that share no more than operands run side by side; those of one size that read the same run as one pass.
// CHECK-LABEL: func.func @parts
// CHECK:         attributes {schedule = {kind = "pack"}} {
// CHECK:         attributes {schedule = {kind = "pack"}} {
// CHECK:         attributes {schedule = {kind = "row"}} {
func.func @parts(%x: tensor<8x4xf32>, %y: tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>, tensor<8x4xf32>, tensor<8xf32>) {
  %a:2 = fused.kernel(%0 = %x : tensor<8x4xf32>, %1 = %y : tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>) {
    %c = graph.constant dense<2.0> : tensor<f32>
    %2 = graph.sum %0 {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
    %3 = graph.multiply %2, %c : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
    %4 = graph.multiply %1, %c : (tensor<5xf32>, tensor<f32>) -> tensor<5xf32>
    fused.yield %3, %4 : tensor<8xf32>, tensor<5xf32>
  }
  %b:2 = fused.kernel(%0 = %a#0 : tensor<8xf32>, %1 = %a#1 : tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>)
      attributes {schedule = {kind = "pack"}} {
    %2 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    %3 = graph.exp %1 : (tensor<5xf32>) -> tensor<5xf32>
    fused.yield %2, %3 : tensor<8xf32>, tensor<5xf32>
  }
  %d:2 = fused.kernel(%0 = %x : tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
    %1 = graph.exp %0 : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = graph.sum %0 {axes = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
    fused.yield %1, %2 : tensor<8x4xf32>, tensor<8xf32>
  }
  func.return %b#0, %b#1, %d#0, %d#1 : tensor<8xf32>, tensor<5xf32>, tensor<8x4xf32>, tensor<8xf32>
}

// -----

// A schedule written by hand is kept with all of its entries; bare ops have none.
// CHECK-LABEL: func.func @kept
// CHECK:         attributes {schedule = {kind = "pointwise", width = 4 : i64}} {
// CHECK:         %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
func.func @kept(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise", width = 4 : i64}} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
  func.return %b : tensor<8xf32>
}

// -----

// The order in memory decides: reductions over leading axes, few long rows, transposes, short rows side by side.
// CHECK-LABEL: func.func @orders
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "column"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "column", splits = 10 : i64}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "split", splits = 32 : i64}} {
// CHECK:         %d = fused.kernel({{.*}} attributes {schedule = {kind = "tile"}} {
// CHECK:         %e = fused.kernel({{.*}} attributes {schedule = {kind = "column"}} {
func.func @orders(%x: tensor<64x8192xf32>, %y: tensor<8192x64xf32>, %z: tensor<16777216xf32>)
    -> (tensor<8192xf32>, tensor<64xf32>, tensor<f32>, tensor<8192x64xf32>, tensor<8192x16xf32>) {
  %a = fused.kernel(%0 = %x : tensor<64x8192xf32>) -> (tensor<8192xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 0>} : (tensor<64x8192xf32>) -> tensor<8192xf32>
    fused.yield %1 : tensor<8192xf32>
  }
  %b = fused.kernel(%0 = %y : tensor<8192x64xf32>) -> (tensor<64xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 0>} : (tensor<8192x64xf32>) -> tensor<64xf32>
    fused.yield %1 : tensor<64xf32>
  }
  %c = fused.kernel(%0 = %z : tensor<16777216xf32>) -> (tensor<f32>) {
    %1 = graph.sum %0 {axes = array<i64: 0>} : (tensor<16777216xf32>) -> tensor<f32>
    fused.yield %1 : tensor<f32>
  }
  %d = fused.kernel(%0 = %x : tensor<64x8192xf32>) -> (tensor<8192x64xf32>) {
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<64x8192xf32>) -> tensor<8192x64xf32>
    fused.yield %1 : tensor<8192x64xf32>
  }
  %e = fused.kernel(%0 = %y : tensor<8192x64xf32>) -> (tensor<8192x16xf32>) {
    %1 = graph.reshape %0 {shape = array<i64: 8192, 16, 4>} : (tensor<8192x64xf32>) -> tensor<8192x16x4xf32>
    %2 = graph.max %1 {axes = array<i64: 2>} : (tensor<8192x16x4xf32>) -> tensor<8192x16xf32>
    fused.yield %2 : tensor<8192x16xf32>
  }
  func.return %a, %b, %c, %d, %e : tensor<8192xf32>, tensor<64xf32>, tensor<f32>, tensor<8192x64xf32>, tensor<8192x16xf32>
}

// -----

// Dimensions that are one loop, in what is read and in what is stored, count as one; a short one alone stays as it is.
// CHECK-LABEL: func.func @merged
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "tile"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "tile"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise"}} {
func.func @merged(%x: tensor<2x96x14x7xui8>) -> (tensor<2x14x7x96xui8>, tensor<2x96x14x7xui8>, tensor<2x96x7x14xui8>) {
  %a = fused.kernel(%0 = %x : tensor<2x96x14x7xui8>) -> (tensor<2x14x7x96xui8>) {
    %1 = graph.permute_dims %0 {axes = array<i64: 0, 2, 3, 1>} : (tensor<2x96x14x7xui8>) -> tensor<2x14x7x96xui8>
    fused.yield %1 : tensor<2x14x7x96xui8>
  }
  %b = fused.kernel(%0 = %a : tensor<2x14x7x96xui8>) -> (tensor<2x96x14x7xui8>) {
    %1 = graph.permute_dims %0 {axes = array<i64: 0, 3, 1, 2>} : (tensor<2x14x7x96xui8>) -> tensor<2x96x14x7xui8>
    fused.yield %1 : tensor<2x96x14x7xui8>
  }
  %c = fused.kernel(%0 = %x : tensor<2x96x14x7xui8>) -> (tensor<2x96x7x14xui8>) {
    %1 = graph.permute_dims %0 {axes = array<i64: 0, 1, 3, 2>} : (tensor<2x96x14x7xui8>) -> tensor<2x96x7x14xui8>
    fused.yield %1 : tensor<2x96x7x14xui8>
  }
  func.return %a, %b, %c : tensor<2x14x7x96xui8>, tensor<2x96x14x7xui8>, tensor<2x96x7x14xui8>
}

// -----

// Must stay as they are: rows along memory, blocks that keep their lines, few and short ones; a kind given by hand.
// CHECK-LABEL: func.func @plain
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "row"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "row"}} {
// CHECK:         %d = fused.kernel({{.*}} attributes {schedule = {kind = "column", splits = 3 : i64}} {
func.func @plain(%x: tensor<64x32x48xf32>) -> (tensor<64x32xf32>, tensor<32x64x48xf32>, tensor<64xf32>, tensor<64x32xf32>) {
  %a = fused.kernel(%0 = %x : tensor<64x32x48xf32>) -> (tensor<64x32xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 2>} : (tensor<64x32x48xf32>) -> tensor<64x32xf32>
    fused.yield %1 : tensor<64x32xf32>
  }
  %b = fused.kernel(%0 = %x : tensor<64x32x48xf32>) -> (tensor<32x64x48xf32>) {
    %1 = graph.permute_dims %0 {axes = array<i64: 1, 0, 2>} : (tensor<64x32x48xf32>) -> tensor<32x64x48xf32>
    fused.yield %1 : tensor<32x64x48xf32>
  }
  %c = fused.kernel(%0 = %a : tensor<64x32xf32>) -> (tensor<64xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 1>} : (tensor<64x32xf32>) -> tensor<64xf32>
    fused.yield %1 : tensor<64xf32>
  }
  %d = fused.kernel(%0 = %x : tensor<64x32x48xf32>) -> (tensor<64x32xf32>) attributes {schedule = {kind = "column", splits = 3 : i64}} {
    %1 = graph.sum %0 {axes = array<i64: 2>} : (tensor<64x32x48xf32>) -> tensor<64x32xf32>
    fused.yield %1 : tensor<64x32xf32>
  }
  func.return %a, %b, %c, %d : tensor<64x32xf32>, tensor<32x64x48xf32>, tensor<64xf32>, tensor<64x32xf32>
}

// -----

// Results that no cache holds go past them, where a kernel waits for memory.
// CHECK-LABEL: func.func @large
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise", stores = "nontemporal"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "row", stores = "nontemporal"}} {
func.func @large(%x: tensor<8192x1024xf32>, %y: tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>, tensor<8192x1024xf32>) {
  %a = fused.kernel(%0 = %x : tensor<8192x1024xf32>, %1 = %y : tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>) {
    %2 = graph.add %0, %1 : (tensor<8192x1024xf32>, tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
    fused.yield %2 : tensor<8192x1024xf32>
  }
  %b = fused.kernel(%0 = %x : tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>) {
    %1 = graph.sum %0 {axes = array<i64: 1>, keepdims = true} : (tensor<8192x1024xf32>) -> tensor<8192x1xf32>
    %2 = graph.subtract %0, %1 : (tensor<8192x1024xf32>, tensor<8192x1xf32>) -> tensor<8192x1024xf32>
    fused.yield %2 : tensor<8192x1024xf32>
  }
  func.return %a, %b : tensor<8192x1024xf32>, tensor<8192x1024xf32>
}

// -----

// Must stay ordinary stores: in the memory of a donated operand, after much arithmetic, of small results, and as written by hand.
// CHECK-LABEL: func.func @through_caches
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "row"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise", stores = "temporal"}} {
// CHECK:         %d = fused.kernel({{.*}} attributes {schedule = {kind = "pointwise"}} {
func.func @through_caches(%x: tensor<8192x1024xf32> {graph.donated}, %y: tensor<8192x1024xf32>)
    -> (tensor<8192x1024xf32>, tensor<8192x1xf32>, tensor<8192x1024xf32>, tensor<8192x1024xf32>) {
  %a = fused.kernel(%0 = %y : tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>) {
    %1 = graph.sin %0 : (tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
    fused.yield %1 : tensor<8192x1024xf32>
  }
  %b = fused.kernel(%0 = %y : tensor<8192x1024xf32>, %1 = %a : tensor<8192x1024xf32>) -> (tensor<8192x1xf32>) {
    %2 = graph.multiply %0, %1 : (tensor<8192x1024xf32>, tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
    %3 = graph.sum %2 {axes = array<i64: 1>, keepdims = true} : (tensor<8192x1024xf32>) -> tensor<8192x1xf32>
    fused.yield %3 : tensor<8192x1xf32>
  }
  %c = fused.kernel(%0 = %x : tensor<8192x1024xf32>, %1 = %y : tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>)
      attributes {schedule = {kind = "pointwise", stores = "temporal"}} {
    %2 = graph.add %0, %1 : (tensor<8192x1024xf32>, tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
    fused.yield %2 : tensor<8192x1024xf32>
  }
  %d = fused.kernel(%0 = %x : tensor<8192x1024xf32>, %1 = %y : tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>) {
    %2 = graph.add %0, %1 : (tensor<8192x1024xf32>, tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
    fused.yield %2 : tensor<8192x1024xf32>
  }
  func.return %a, %b, %c, %d : tensor<8192x1024xf32>, tensor<8192x1xf32>, tensor<8192x1024xf32>, tensor<8192x1024xf32>
}

// -----

// A product is generated where it can be, with what follows it; a library runs wide integers, and what says so.
// CHECK-LABEL: func.func @products
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "matmul"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "library"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "matmul"}} {
// CHECK:         %d = fused.kernel({{.*}} attributes {implementation = "numpy.matmul", schedule = {kind = "library"}} {
func.func @products(%x: tensor<40x8xf32>, %w: tensor<8x32xf32>, %i: tensor<40x40xi32>, %v: tensor<8x3xf32>)
    -> (tensor<40x32xf32>, tensor<40x40xi32>, tensor<40x3xf32>, tensor<40x32xf32>) {
  %a = fused.kernel(%0 = %x : tensor<40x8xf32>, %1 = %w : tensor<8x32xf32>) -> (tensor<40x32xf32>) {
    %2 = graph.matmul %0, %1 : (tensor<40x8xf32>, tensor<8x32xf32>) -> tensor<40x32xf32>
    %3 = graph.relu %2 : (tensor<40x32xf32>) -> tensor<40x32xf32>
    fused.yield %3 : tensor<40x32xf32>
  }
  %b = fused.kernel(%0 = %i : tensor<40x40xi32>) -> (tensor<40x40xi32>) {
    %2 = graph.matmul %0, %0 : (tensor<40x40xi32>, tensor<40x40xi32>) -> tensor<40x40xi32>
    fused.yield %2 : tensor<40x40xi32>
  }
  %c = fused.kernel(%0 = %x : tensor<40x8xf32>, %1 = %v : tensor<8x3xf32>) -> (tensor<40x3xf32>) {
    %2 = graph.matmul %0, %1 : (tensor<40x8xf32>, tensor<8x3xf32>) -> tensor<40x3xf32>
    fused.yield %2 : tensor<40x3xf32>
  }
  %d = fused.kernel(%0 = %x : tensor<40x8xf32>, %1 = %w : tensor<8x32xf32>) -> (tensor<40x32xf32>) attributes {implementation = "numpy.matmul"} {
    %2 = graph.matmul %0, %1 : (tensor<40x8xf32>, tensor<8x32xf32>) -> tensor<40x32xf32>
    fused.yield %2 : tensor<40x32xf32>
  }
  func.return %a, %b, %c, %d : tensor<40x32xf32>, tensor<40x40xi32>, tensor<40x3xf32>, tensor<40x32xf32>
}

// -----

// A convolution is generated with what follows it, and so are its gradients by the input and the weight; a library runs what
// says so.
// CHECK-LABEL: func.func @convolutions
// CHECK:         %a = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
// CHECK:         %b = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
// CHECK:         %c = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
// CHECK:         %d = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
// CHECK:         %e = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
// CHECK:         %f = fused.kernel({{.*}} attributes {implementation = "numpy.conv", schedule = {kind = "library"}} {
// CHECK:         %g = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
// CHECK:         %i = fused.kernel({{.*}} attributes {schedule = {kind = "conv"}} {
func.func @convolutions(%x: tensor<1x4x9x9xf32>, %w: tensor<8x4x3x3xf32>, %h: tensor<1x4x9x9xf16>, %v: tensor<8x4x3x3xf16>,
    %s: tensor<1x4x5x5xf32>) -> (tensor<1x8x7x7xf32>, tensor<1x4x9x9xf32>, tensor<1x8x7x7xf16>, tensor<1x8x3x3xf32>,
    tensor<1x4x9x9xf32>, tensor<1x8x7x7xf32>, tensor<8x4x3x3xf32>, tensor<8x1x3x3xf32>) {
  %a = fused.kernel(%0 = %x : tensor<1x4x9x9xf32>, %1 = %w : tensor<8x4x3x3xf32>) -> (tensor<1x8x7x7xf32>) {
    %2 = graph.conv %0, %1 : (tensor<1x4x9x9xf32>, tensor<8x4x3x3xf32>) -> tensor<1x8x7x7xf32>
    %3 = graph.relu %2 : (tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
    fused.yield %3 : tensor<1x8x7x7xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<1x8x7x7xf32>, %1 = %w : tensor<8x4x3x3xf32>) -> (tensor<1x4x9x9xf32>) {
    %2 = graph.conv_backward_data %0, %1 {shape = array<i64: 9, 9>} : (tensor<1x8x7x7xf32>, tensor<8x4x3x3xf32>) -> tensor<1x4x9x9xf32>
    fused.yield %2 : tensor<1x4x9x9xf32>
  }
  %c = fused.kernel(%0 = %h : tensor<1x4x9x9xf16>, %1 = %v : tensor<8x4x3x3xf16>) -> (tensor<1x8x7x7xf16>) {
    %2 = graph.conv %0, %1 : (tensor<1x4x9x9xf16>, tensor<8x4x3x3xf16>) -> tensor<1x8x7x7xf16>
    fused.yield %2 : tensor<1x8x7x7xf16>
  }
  %d = fused.kernel(%0 = %s : tensor<1x4x5x5xf32>, %1 = %w : tensor<8x4x3x3xf32>) -> (tensor<1x8x3x3xf32>) {
    %2 = graph.conv %0, %1 : (tensor<1x4x5x5xf32>, tensor<8x4x3x3xf32>) -> tensor<1x8x3x3xf32>
    fused.yield %2 : tensor<1x8x3x3xf32>
  }
  %e = fused.kernel(%0 = %w : tensor<8x4x3x3xf32>, %1 = %d : tensor<1x8x3x3xf32>) -> (tensor<1x4x9x9xf32>) {
    %2 = graph.conv_backward_data %1, %0 {shape = array<i64: 9, 9>, strides = array<i64: 3, 3>} : (tensor<1x8x3x3xf32>, tensor<8x4x3x3xf32>) -> tensor<1x4x9x9xf32>
    fused.yield %2 : tensor<1x4x9x9xf32>
  }
  %f = fused.kernel(%0 = %x : tensor<1x4x9x9xf32>, %1 = %w : tensor<8x4x3x3xf32>) -> (tensor<1x8x7x7xf32>) attributes {implementation = "numpy.conv"} {
    %2 = graph.conv %0, %1 : (tensor<1x4x9x9xf32>, tensor<8x4x3x3xf32>) -> tensor<1x8x7x7xf32>
    fused.yield %2 : tensor<1x8x7x7xf32>
  }
  %g = fused.kernel(%0 = %a : tensor<1x8x7x7xf32>, %1 = %x : tensor<1x4x9x9xf32>) -> (tensor<8x4x3x3xf32>) {
    %2 = graph.conv_backward_weight %0, %1 {kernel_shape = array<i64: 3, 3>} : (tensor<1x8x7x7xf32>, tensor<1x4x9x9xf32>) -> tensor<8x4x3x3xf32>
    fused.yield %2 : tensor<8x4x3x3xf32>
  }
  %i = fused.kernel(%0 = %f : tensor<1x8x7x7xf32>) -> (tensor<8x1x3x3xf32>) {
    %2 = graph.conv_backward_weight %0, %0 {kernel_shape = array<i64: 3, 3>, groups = 8 : i64, pads = array<i64: 1, 1, 1, 1>} : (tensor<1x8x7x7xf32>, tensor<1x8x7x7xf32>) -> tensor<8x1x3x3xf32>
    fused.yield %2 : tensor<8x1x3x3xf32>
  }
  func.return %a, %b, %c, %d, %e, %f, %g, %i : tensor<1x8x7x7xf32>, tensor<1x4x9x9xf32>, tensor<1x8x7x7xf16>, tensor<1x8x3x3xf32>,
      tensor<1x4x9x9xf32>, tensor<1x8x7x7xf32>, tensor<8x4x3x3xf32>, tensor<8x1x3x3xf32>
}
