// i4294967296: 2 to the power of its width does not fit memory
func.func @main(%x: tensor<4xi4294967296>) {
  func.return
}
