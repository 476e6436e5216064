// RUN: fuse-opt %s --split-input-file --decompose --fuse-injective --fuse-elementwise --fuse-epilogue | filecheck %s
// RUN: fuse-opt %s --split-input-file --decompose --fuse-injective --fuse-elementwise --fuse-epilogue --fuse-epilogue | filecheck %s
// RUN: fuse-opt %s --split-input-file --decompose --fuse-injective --fuse-elementwise --fuse-epilogue --unfuse | filecheck %s --check-prefix=APART
// RUN: fuse-opt %s --split-input-file --decompose --fuse-injective --fuse-elementwise --fuse-epilogue --remarks=%t -t mlir > /dev/null && filecheck %s --check-prefix=WHY --input-file=%t
// RUN: fuse-opt %s --split-input-file --decompose --fuse-injective --fuse-elementwise --fuse-epilogue --wrap-kernels --schedule-kernels | filecheck %s --check-prefix=KIND

// Bytes are dequantised where the product copies its operand, by a scale for each column.
// CHECK-LABEL: func.func @dequantised(
// CHECK-NEXT:      %p = fused.kernel(
// CHECK-NEXT:        %q = graph.astype
// CHECK-NEXT:        %d = graph.multiply %q
// CHECK-NEXT:        %p_1 = graph.matmul %x_1, %d
// CHECK-NEXT:        fused.yield %p_1
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %p
// APART-LABEL: func.func @dequantised(
// APART-NEXT:      graph.astype
// APART-NEXT:      graph.multiply
// APART-NEXT:      graph.matmul
// KIND-LABEL: func.func @dequantised(
// KIND-NEXT:    schedule = {kind = "matmul"}
func.func @dequantised(%x: tensor<4x768xf32>, %w: tensor<768x2304xi8>, %s: tensor<2304xf32>) -> tensor<4x2304xf32> {
  %q = graph.astype %w {dtype = f32} : (tensor<768x2304xi8>) -> tensor<768x2304xf32>
  %d = graph.multiply %q, %s : (tensor<768x2304xf32>, tensor<2304xf32>) -> tensor<768x2304xf32>
  %p = graph.matmul %x, %d : (tensor<4x768xf32>, tensor<768x2304xf32>) -> tensor<4x2304xf32>
  func.return %p : tensor<4x2304xf32>
}

// -----

// The scale and shift of a norm, and what follows the product.
// CHECK-LABEL: func.func @scaled(
// CHECK-NEXT:      %y = fused.kernel(
// CHECK-NEXT:        graph.multiply
// CHECK-NEXT:        graph.add
// CHECK-NEXT:        graph.matmul
// CHECK-NEXT:        graph.relu
func.func @scaled(%x: tensor<16384x768xf32>, %r: tensor<16384x1xf32>, %b: tensor<768xf32>, %w: tensor<768x16xf32>) -> tensor<16384x16xf32> {
  %m = graph.multiply %x, %r : (tensor<16384x768xf32>, tensor<16384x1xf32>) -> tensor<16384x768xf32>
  %a = graph.add %m, %b : (tensor<16384x768xf32>, tensor<768xf32>) -> tensor<16384x768xf32>
  %p = graph.matmul %a, %w : (tensor<16384x768xf32>, tensor<768x16xf32>) -> tensor<16384x16xf32>
  %y = graph.relu %p : (tensor<16384x16xf32>) -> tensor<16384x16xf32>
  func.return %y : tensor<16384x16xf32>
}

// -----

// Not: each of several blocks of columns would compute it again.
// CHECK-LABEL: func.func @again(
// CHECK-NEXT:      %q = graph.gelu
// CHECK-NEXT:      %p = graph.matmul
// WHY: recompute: 'graph.matmul' not fused with 'graph.gelu'{{.*}}the operand would be computed 2 times, with 24 operations for an element
func.func @again(%x: tensor<512x768xf32>, %w: tensor<768x768xf32>) -> tensor<512x768xf32> {
  %q = graph.gelu %x : (tensor<512x768xf32>) -> tensor<512x768xf32>
  %p = graph.matmul %q, %w : (tensor<512x768xf32>, tensor<768x768xf32>) -> tensor<512x768xf32>
  func.return %p : tensor<512x768xf32>
}

// -----

// Not: it is read elsewhere, too; and a pass over rows is no copy.
// CHECK-LABEL: func.func @read_elsewhere(
// CHECK-NEXT:      %d = graph.astype
// CHECK-NEXT:      %p = graph.matmul
// CHECK-NEXT:      func.return %p, %d
// WHY: multi-use: 'graph.matmul' not fused with 'graph.astype'
func.func @read_elsewhere(%x: tensor<4x768xf32>, %w: tensor<768x2304xi8>) -> (tensor<4x2304xf32>, tensor<768x2304xf32>) {
  %d = graph.astype %w {dtype = f32} : (tensor<768x2304xi8>) -> tensor<768x2304xf32>
  %p = graph.matmul %x, %d : (tensor<4x768xf32>, tensor<768x2304xf32>) -> tensor<4x2304xf32>
  func.return %p, %d : tensor<4x2304xf32>, tensor<768x2304xf32>
}

// -----

// Not: its rows lie at no constant distance.
// CHECK-LABEL: func.func @no_distance(
// CHECK:             graph.abs
// CHECK:             fused.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      %p = graph.matmul
// WHY: strides: 'graph.matmul' not fused with {{.*}}no constant distance
func.func @no_distance(%x: tensor<4x768xf32>, %w: tensor<48x2304x16xf32>) -> tensor<4x2304xf32> {
  %a = graph.abs %w : (tensor<48x2304x16xf32>) -> tensor<48x2304x16xf32>
  %t = graph.permute_dims %a {axes = array<i64: 0, 2, 1>} : (tensor<48x2304x16xf32>) -> tensor<48x16x2304xf32>
  %d = graph.reshape %t {shape = array<i64: 768, 2304>} : (tensor<48x16x2304xf32>) -> tensor<768x2304xf32>
  %p = graph.matmul %x, %d : (tensor<4x768xf32>, tensor<768x2304xf32>) -> tensor<4x2304xf32>
  func.return %p : tensor<4x2304xf32>
}
