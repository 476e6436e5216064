// a kept dimension in the result without keepdims
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x1xf32> {
  %0 = graph.sum %x {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  func.return %0 : tensor<4x1xf32>
}
