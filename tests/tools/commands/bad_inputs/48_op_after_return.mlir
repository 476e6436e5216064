// an op after func.return; the error may stand at either
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  func.return %x : tensor<4x8xf32>
  %0 = graph.abs %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
}
