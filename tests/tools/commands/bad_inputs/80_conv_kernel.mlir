// a 5x5 kernel over a 2x2 image
func.func @main(%x: tensor<1x3x2x2xf32>, %w: tensor<16x3x5x5xf32>) -> tensor<1x16x1x1xf32> {
  %0 = graph.conv %x, %w {strides = array<i64: 1, 1>} : (tensor<1x3x2x2xf32>, tensor<16x3x5x5xf32>) -> tensor<1x16x1x1xf32>
  func.return %0 : tensor<1x16x1x1xf32>
}
