// batch_norm without mean and variance
func.func @main(%x: tensor<1x3x8x8xf32>, %s: tensor<3xf32>) -> tensor<1x3x8x8xf32> {
  %0 = graph.batch_norm %x, %s, %s {axis = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<1x3x8x8xf32>
  func.return %0 : tensor<1x3x8x8xf32>
}
