// a dimension that does not fit 64 bits
func.func @main(%x: tensor<99999999999999999999xf32>) -> tensor<99999999999999999999xf32> {
  func.return %x : tensor<99999999999999999999xf32>
}
