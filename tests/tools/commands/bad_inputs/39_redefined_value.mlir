// a value defined twice
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.abs %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
