// two arguments of one name
func.func @main(%x: tensor<4x8xf32>, %x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  func.return %x : tensor<4x8xf32>
}
