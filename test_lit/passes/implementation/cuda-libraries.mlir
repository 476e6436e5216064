// RUN: fuse-opt %s --split-input-file --gpu-attach-device --default | filecheck %s
// RUN: fuse-opt %s --split-input-file --gpu-attach-device --default --default | filecheck %s
// RUN: fuse-opt %s --split-input-file --gpu-attach-device=device=a100 --default | filecheck %s
// RUN: fuse-opt %s --split-input-file --default --gpu-attach-device --default | filecheck %s --check-prefix=AGAIN
// RUN: fuse-opt %s --split-input-file --default | filecheck %s --check-prefix=CPU
// RUN: fuse-opt %s --split-input-file --backend=-cublaslt,-cudnn --gpu-attach-device --default | filecheck %s --check-prefix=LESS
// RUN: fuse-opt %s --split-input-file --default -t cuda | filecheck %s --check-prefix=TEXT
// RUN: fuse-opt %s --split-input-file --gpu-attach-device --default --remarks 2>&1 | filecheck %s --check-prefix=REMARK

// A bias of f32 is added by the library, in one call; what was chosen for a CPU is chosen anew.
// CHECK-LABEL: func.func @bias(
// CHECK:         attributes {implementation = "cublaslt.matmul", workspace = {{[0-9]+}} : i64, {{.*}}workspace_slot = 0 : i64} {
// CHECK-NEXT:      graph.matmul
// CHECK-NEXT:      graph.add
// AGAIN-LABEL: func.func @bias(
// AGAIN:         attributes {implementation = "cublas{{(lt)?}}.matmul"
// CPU-LABEL: func.func @bias(
// CPU:         attributes {implementation = "fuse.matmul"
// LESS-LABEL: func.func @bias(
// LESS:         attributes {implementation = "cublas.matmul"
// LESS-NEXT:      graph.matmul
// LESS-NEXT:      fused.yield
// TEXT: // library cublaslt.matmul(x, w, b) to ({{.*}}) within arena: graph.matmul
func.func @bias(%x: tensor<64x32xf32>, %w: tensor<32x48xf32>, %b: tensor<48xf32>) -> tensor<64x48xf32> {
  %0 = graph.matmul %x, %w : (tensor<64x32xf32>, tensor<32x48xf32>) -> tensor<64x48xf32>
  %1 = graph.add %0, %b : (tensor<64x48xf32>, tensor<48xf32>) -> tensor<64x48xf32>
  func.return %1 : tensor<64x48xf32>
}

// -----

// Not: a bias of bf16, which would be added before the product is rounded, and functions that have no bound there.
// CHECK-LABEL: func.func @rounded(
// CHECK:         attributes {implementation = "cublas.matmul"
// CHECK-NEXT:      graph.matmul
// CHECK-NEXT:      fused.yield
func.func @rounded(%x: tensor<64x32xbf16>, %w: tensor<32x48xbf16>, %b: tensor<48xbf16>) -> tensor<64x48xbf16> {
  %0 = graph.matmul %x, %w : (tensor<64x32xbf16>, tensor<32x48xbf16>) -> tensor<64x48xbf16>
  %1 = graph.add %0, %b : (tensor<64x48xbf16>, tensor<48xbf16>) -> tensor<64x48xbf16>
  func.return %1 : tensor<64x48xbf16>
}

// -----

// Not: a vector along rows, and one that is as long as the result.
// CHECK-LABEL: func.func @column(
// CHECK:         attributes {implementation = "cublas.matmul"
// CHECK-NEXT:      graph.matmul
// CHECK-NEXT:      fused.yield
func.func @column(%x: tensor<64x32xf32>, %w: tensor<32x48xf32>, %b: tensor<64x1xf32>) -> tensor<64x48xf32> {
  %0 = graph.matmul %x, %w : (tensor<64x32xf32>, tensor<32x48xf32>) -> tensor<64x48xf32>
  %1 = graph.add %0, %b : (tensor<64x48xf32>, tensor<64x1xf32>) -> tensor<64x48xf32>
  func.return %1 : tensor<64x48xf32>
}

// -----

// Without cuDNN the host runs it.
// CHECK-LABEL: func.func @convolution(
// CHECK:         attributes {implementation = "cudnn.conv", workspace =
// LESS-LABEL: func.func @convolution(
// LESS:         -> (tensor<1x4x6x6xf32>) attributes {schedule = {kind = "library"}
// CPU-LABEL: func.func @convolution(
// CPU:         attributes {implementation = "fuse.conv"
func.func @convolution(%x: tensor<1x2x8x8xf32>, %w: tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32> {
  %0 = graph.conv %x, %w : (tensor<1x2x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x6x6xf32>
  func.return %0 : tensor<1x4x6x6xf32>
}

// -----

// Pads that differ on both sides, which cuDNN does not have: zeros are put on one side before.
// CHECK-LABEL: func.func @pads(
// CHECK:         graph.pad {{.*}} {pads = array<i64: 0, 0, 1, 1, 0, 0, 0, 0>}
// CHECK:         attributes {implementation = "cudnn.conv", workspace =
func.func @pads(%x: tensor<1x2x8x8xf32>, %w: tensor<4x2x3x3xf32>) -> tensor<1x4x7x7xf32> {
  %0 = graph.conv %x, %w {pads = array<i64: 1, 1, 0, 0>} : (tensor<1x2x8x8xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x7x7xf32>
  func.return %0 : tensor<1x4x7x7xf32>
}

// -----

// Not: nothing to add up, which the host does, as the text says.
// CHECK-LABEL: func.func @nothing(
// CHECK:         -> (tensor<4x2x3x3xf32>) attributes {schedule = {kind = "library"}
// TEXT: // library numpy.conv_backward_weight(
// REMARK: host: 'fused.kernel' 'graph.conv_backward_weight' runs on the host{{.*}}refused=cudnn.conv_backward_weight:empty
func.func @nothing(%g: tensor<0x4x6x6xf32>, %x: tensor<0x2x8x8xf32>) -> tensor<4x2x3x3xf32> {
  %0 = graph.conv_backward_weight %g, %x {kernel_shape = array<i64: 3, 3>} : (tensor<0x4x6x6xf32>, tensor<0x2x8x8xf32>) -> tensor<4x2x3x3xf32>
  func.return %0 : tensor<4x2x3x3xf32>
}

// -----

// Attention is a kernel of its own there, too: what was chosen for a CPU falls apart, and is fused anew.
// CHECK-LABEL: func.func @attention(
// CHECK:         attributes {implementation = "gpu.attention"
// CHECK-SAME:      schedule = {kind = "attention"}
// CPU-LABEL: func.func @attention(
// CPU:         attributes {implementation = "fuse.attention"
// AGAIN-LABEL: func.func @attention(
// AGAIN-NOT:     implementation = "fuse.attention"
func.func @attention(%q: tensor<8x64x32xf32>, %k: tensor<8x64x32xf32>, %v: tensor<8x64x32xf32>) -> tensor<8x64x32xf32> {
  %s = graph.matmul %q, %k {transpose_rhs = true} : (tensor<8x64x32xf32>, tensor<8x64x32xf32>) -> tensor<8x64x64xf32>
  %p = graph.softmax %s {axis = -1 : i64} : (tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  %o = graph.matmul %p, %v : (tensor<8x64x64xf32>, tensor<8x64x32xf32>) -> tensor<8x64x32xf32>
  func.return %o : tensor<8x64x32xf32>
}
