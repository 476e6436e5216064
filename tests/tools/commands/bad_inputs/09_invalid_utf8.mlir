func.func @main(%café: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.abs %café : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
