// 32 elements reshaped to 35
func.func @main(%x: tensor<4x8xf32>) -> tensor<5x7xf32> {
  %0 = graph.reshape %x {shape = array<i64: 5, 7>} : (tensor<4x8xf32>) -> tensor<5x7xf32>
  func.return %0 : tensor<5x7xf32>
}
