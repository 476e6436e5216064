// a string where axes are wanted
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = graph.sum %x {axes = "one"} : (tensor<4x8xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
