// f32 plus f16 without an astype
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf16>) -> tensor<4x8xf32> {
  %0 = graph.add %x, %y : (tensor<4x8xf32>, tensor<4x8xf16>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
