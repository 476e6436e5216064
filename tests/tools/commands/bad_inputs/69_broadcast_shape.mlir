// a dimension of 8 broadcast to 16
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %0 = graph.broadcast_to %x {shape = array<i64: 4, 16>} : (tensor<4x8xf32>) -> tensor<4x16xf32>
  func.return %0 : tensor<4x16xf32>
}
