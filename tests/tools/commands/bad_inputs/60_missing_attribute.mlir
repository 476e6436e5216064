// reshape without its shape
func.func @main(%x: tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = graph.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>
  func.return %0 : tensor<32xf32>
}
