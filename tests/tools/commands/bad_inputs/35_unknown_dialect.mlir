// an op of an unknown dialect
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nosuch.abs %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
