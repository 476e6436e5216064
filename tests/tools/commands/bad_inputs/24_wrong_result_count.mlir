// two names for one result
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0, %1 = graph.abs %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
