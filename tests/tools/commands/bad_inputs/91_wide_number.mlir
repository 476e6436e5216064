// an attribute of a type of more than 64 bits
func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = graph.sum %x {axes = 1 : i4294967296} : (tensor<4xf32>) -> tensor<f32>
  func.return %0 : tensor<f32>
}
