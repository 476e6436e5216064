// 3 groups divide neither 4 nor 16 channels
func.func @main(%x: tensor<1x4x8x8xf32>, %w: tensor<16x2x3x3xf32>) -> tensor<1x16x8x8xf32> {
  %0 = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>, groups = 3 : i64} : (tensor<1x4x8x8xf32>, tensor<16x2x3x3xf32>) -> tensor<1x16x8x8xf32>
  func.return %0 : tensor<1x16x8x8xf32>
}
