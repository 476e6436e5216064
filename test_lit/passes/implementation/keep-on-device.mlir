// RUN: fuse-opt %s --split-input-file --gpu-attach-device --keep-on-device=device=h100 | filecheck %s
// RUN: fuse-opt %s --split-input-file --keep-on-device | filecheck %s --check-prefix CPU

// No library has windows with more zeros on one side: what is more is put there before.
// CHECK-LABEL: @uneven
// CHECK: [[X:%[0-9a-z_]+]] = graph.pad %x {pads = array<i64: 0, 0, 0, 0, 0, 0, 1, 1>}
// CHECK-NEXT: graph.conv [[X]], %w {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>}
// CPU-LABEL: @uneven
// CPU-NEXT: graph.conv %x, %w
func.func @uneven(%x: tensor<8x3x224x224xf16>, %w: tensor<32x3x3x3xf16>) -> tensor<8x32x112x112xf16> {
  %r = graph.conv %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 1, 1>} : (tensor<8x3x224x224xf16>, tensor<32x3x3x3xf16>) -> tensor<8x32x112x112xf16>
  func.return %r : tensor<8x32x112x112xf16>
}

// -----

// What reads them gives a larger result, of which the rest is left out.
// CHECK-LABEL: @transposed
// CHECK: [[R:%[0-9a-z_]+]] = graph.conv_transpose %x, %w {strides = array<i64: 2>, pads = array<i64: 0, 0>}
// CHECK-NEXT: graph.slice [[R]] {starts = array<i64: 0, 0, 0>, stops = array<i64: 1, 4, 16>}
func.func @transposed(%x: tensor<1x6x8xf32>, %w: tensor<6x4x3xf32>) -> tensor<1x4x16xf32> {
  %r = graph.conv_transpose %x, %w {strides = array<i64: 2>, pads = array<i64: 0, 1>} : (tensor<1x6x8xf32>, tensor<6x4x3xf32>) -> tensor<1x4x16xf32>
  func.return %r : tensor<1x4x16xf32>
}

// -----

// Products of integers are sums that a kernel computes.
// CHECK-LABEL: @bytes
// CHECK: fused.kernel
// CHECK: graph.multiply
// CHECK-NEXT: graph.sum
// CPU-LABEL: @bytes
// CPU-NEXT: graph.matmul
func.func @bytes(%x: tensor<64x768xui8>, %w: tensor<768x96xi8>) -> tensor<64x96xi32> {
  %r = graph.matmul %x, %w {dtype = i32} : (tensor<64x768xui8>, tensor<768x96xi8>) -> tensor<64x96xi32>
  func.return %r : tensor<64x96xi32>
}

// -----

// A stack of each is what a call takes; what a promise names is left to it.
// CHECK-LABEL: @stacks
// CHECK: [[A:%[0-9a-z_]+]] = graph.broadcast_to %a {shape = array<i64: 3, 4, 5, 7>}
// CHECK: [[B:%[0-9a-z_]+]] = graph.broadcast_to %b {shape = array<i64: 3, 4, 7, 6>}
// CHECK-NEXT: graph.matmul [[A]], [[B]]
// CHECK: graph.matmul {{.*}}use_implementation
func.func @stacks(%a: tensor<3x1x5x7xf32>, %b: tensor<4x7x6xf32>, %c: tensor<5x5xi32>) -> (tensor<3x4x5x6xf32>, tensor<5x5xi32>) {
  %r = graph.matmul %a, %b : (tensor<3x1x5x7xf32>, tensor<4x7x6xf32>) -> tensor<3x4x5x6xf32>
  %s = graph.matmul %c, %c {use_implementation = "numpy.matmul"} : (tensor<5x5xi32>, tensor<5x5xi32>) -> tensor<5x5xi32>
  func.return %r, %s : tensor<3x4x5x6xf32>, tensor<5x5xi32>
}
