// a string literal without its closing quote; a backtracking pattern takes exponential time here
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.gelu %x {approximate = "tanh} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
