// an f32 argument used as f16
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf16> {
  %0 = graph.abs %x : (tensor<4x8xf16>) -> tensor<4x8xf16>
  func.return %0 : tensor<4x8xf16>
}
