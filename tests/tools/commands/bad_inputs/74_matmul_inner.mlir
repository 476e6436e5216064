// inner dimensions 8 and 7
func.func @main(%x: tensor<4x8xf32>, %y: tensor<7x16xf32>) -> tensor<4x16xf32> {
  %0 = graph.matmul %x, %y : (tensor<4x8xf32>, tensor<7x16xf32>) -> tensor<4x16xf32>
  func.return %0 : tensor<4x16xf32>
}
