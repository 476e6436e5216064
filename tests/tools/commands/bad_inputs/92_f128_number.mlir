// a number of a float type that nothing here can print
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = graph.sum %x {axes = 3 : f128} : (tensor<4x8xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
