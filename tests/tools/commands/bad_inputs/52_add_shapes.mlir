// shapes 4x8 and 4x7 do not broadcast
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x7xf32>) -> tensor<4x8xf32> {
  %0 = graph.add %x, %y : (tensor<4x8xf32>, tensor<4x7xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
