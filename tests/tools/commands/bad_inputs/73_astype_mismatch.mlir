// astype to f16 with an f64 result
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf64> {
  %0 = graph.astype %x {dtype = f16} : (tensor<4x8xf32>) -> tensor<4x8xf64>
  func.return %0 : tensor<4x8xf64>
}
