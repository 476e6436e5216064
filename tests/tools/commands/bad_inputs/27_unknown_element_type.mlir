// an element type that does not exist
func.func @main(%x: tensor<4x8xfloat>) -> tensor<4x8xfloat> {
  func.return %x : tensor<4x8xfloat>
}
