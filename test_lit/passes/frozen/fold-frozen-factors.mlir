// RUN: fuse-opt %s --split-input-file --fold-frozen-factors --canonicalize | filecheck %s
// RUN: fuse-opt %s --split-input-file --fold-frozen-factors --fold-frozen-factors --canonicalize | filecheck %s
// RUN: fuse-opt %s --split-input-file --fold-frozen-factors --remarks=- 2>&1 | filecheck %s --check-prefix=WHY

// Batch normalisation: its factors are in the weight, what is left of it is one term.
// WHY: folded: 'graph.conv' gives what factors and terms behind it would make of its result: they are in its weight ops=4
// CHECK-LABEL: func.func @batch_norm
// CHECK:           %[[V:.*]] = graph.multiply %w, %{{.*}} : (tensor<16x3x3x3xf32>, tensor<16x1x1x1xf32>) -> tensor<16x3x3x3xf32>
// CHECK:           %{{.*}} = graph.multiply %mean, %scale
// CHECK:           %{{.*}} = graph.subtract %{{.*}}, %bias
// CHECK:           %[[W:.*]] = graph.multiply %[[V]], %half
// CHECK:           %{{.*}} = graph.conv %x, %[[W]] :
// CHECK:           %r = graph.subtract %{{.*}}, %{{.*}} : (tensor<1x16x6x6xf32>, tensor<1x16x1x1xf32>) -> tensor<1x16x6x6xf32>
// CHECK-NEXT:      func.return %r
func.func @batch_norm(%x: tensor<1x3x8x8xf32>, %w: tensor<16x3x3x3xf32> {graph.frozen}, %mean: tensor<16xf32> {graph.frozen},
                      %scale: tensor<16xf32> {graph.frozen}, %bias: tensor<16xf32> {graph.frozen}) -> tensor<1x16x6x6xf32> {
  %y = graph.conv %x, %w : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x6x6xf32>
  %0 = graph.reshape %mean {shape = array<i64: 16, 1, 1>} : (tensor<16xf32>) -> tensor<16x1x1xf32>
  %1 = graph.subtract %y, %0 : (tensor<1x16x6x6xf32>, tensor<16x1x1xf32>) -> tensor<1x16x6x6xf32>
  %2 = graph.reshape %scale {shape = array<i64: 16, 1, 1>} : (tensor<16xf32>) -> tensor<16x1x1xf32>
  %3 = graph.multiply %2, %1 : (tensor<16x1x1xf32>, tensor<1x16x6x6xf32>) -> tensor<1x16x6x6xf32>
  %4 = graph.reshape %bias {shape = array<i64: 16, 1, 1>} : (tensor<16xf32>) -> tensor<16x1x1xf32>
  %5 = graph.add %3, %4 : (tensor<1x16x6x6xf32>, tensor<16x1x1xf32>) -> tensor<1x16x6x6xf32>
  %half = graph.constant dense<0.5> : tensor<f32>
  %r = graph.multiply %5, %half : (tensor<1x16x6x6xf32>, tensor<f32>) -> tensor<1x16x6x6xf32>
  func.return %r : tensor<1x16x6x6xf32>
}

// -----

// Columns of a product, by the axis of the weight that they are.
// CHECK-LABEL: func.func @transposed
// CHECK:           %[[W:.*]] = graph.divide %w, %{{.*}} : (tensor<16x8xf32>, tensor<16x1xf32>) -> tensor<16x8xf32>
// CHECK-NEXT:      %y = graph.matmul %x, %[[W]] {transpose_rhs = true}
// CHECK-NEXT:      func.return %y
func.func @transposed(%x: tensor<4x8xf32>, %w: tensor<16x8xf32> {graph.frozen}, %s: tensor<16xf32> {graph.frozen}) -> tensor<4x16xf32> {
  %0 = graph.matmul %x, %w {transpose_rhs = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %y = graph.divide %0, %s : (tensor<4x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  func.return %y : tensor<4x16xf32>
}

// -----

// Not folded: a factor that is no parameter, that of rows, one of a result that is read twice, of 16 bits, or a constant alone,
// and what the result divides.
// CHECK-LABEL: func.func @kept
// CHECK-COUNT-6:   graph.matmul %{{.*}}, %{{[wh]}} :
func.func @kept(%x: tensor<8x8xf32>, %h: tensor<8x8xf16> {graph.frozen}, %w: tensor<8x8xf32> {graph.frozen},
                %s: tensor<8xf32> {graph.frozen}, %t: tensor<8xf32>, %half: tensor<8xf16> {graph.frozen})
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf16>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = graph.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %open = graph.multiply %0, %t : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %1 = graph.matmul %open, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = graph.reshape %s {shape = array<i64: 8, 1>} : (tensor<8xf32>) -> tensor<8x1xf32>
  %rows = graph.multiply %1, %2 : (tensor<8x8xf32>, tensor<8x1xf32>) -> tensor<8x8xf32>
  %3 = graph.matmul %rows, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %twice = graph.multiply %3, %s : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %4 = graph.astype %twice {dtype = f16} : (tensor<8x8xf32>) -> tensor<8x8xf16>
  %5 = graph.matmul %4, %h : (tensor<8x8xf16>, tensor<8x8xf16>) -> tensor<8x8xf16>
  %narrow = graph.multiply %5, %half : (tensor<8x8xf16>, tensor<8xf16>) -> tensor<8x8xf16>
  %c = graph.constant dense<0.5> : tensor<f32>
  %6 = graph.matmul %twice, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %alone = graph.multiply %6, %c : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
  %7 = graph.matmul %alone, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %divides = graph.divide %s, %7 : (tensor<8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %open, %rows, %3, %twice, %narrow, %alone, %divides : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf16>, tensor<8x8xf32>, tensor<8x8xf32>
}
