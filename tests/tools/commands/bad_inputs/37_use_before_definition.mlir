// a value used one op before its definition
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.abs %1 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
