// 4 scales for a normalised axis of 8
func.func @main(%x: tensor<4x8xf32>, %s: tensor<4xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = graph.layer_norm %x, %s, %b {axis = -1 : i64} : (tensor<4x8xf32>, tensor<4xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
