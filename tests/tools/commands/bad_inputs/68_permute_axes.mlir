// axes 0, 1, 1 are no permutation
func.func @main(%x: tensor<2x4x8xf32>) -> tensor<2x4x4xf32> {
  %0 = graph.permute_dims %x {axes = array<i64: 0, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  func.return %0 : tensor<2x4x4xf32>
}
