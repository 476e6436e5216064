// exp of f32 cannot give f16
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf16> {
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf16>
  func.return %0 : tensor<4x8xf16>
}
