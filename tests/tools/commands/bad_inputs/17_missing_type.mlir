// an op without its function type; noticed at the next token
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.abs %x
  func.return %0 : tensor<4x8xf32>
}
