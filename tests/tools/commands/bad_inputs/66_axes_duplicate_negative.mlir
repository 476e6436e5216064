// axis 1 twice, once counted from the end
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = graph.sum %x {axes = array<i64: 1, -1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
