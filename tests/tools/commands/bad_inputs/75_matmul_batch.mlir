// batch dimensions 2 and 3 do not broadcast
func.func @main(%x: tensor<2x4x8xf32>, %y: tensor<3x8x16xf32>) -> tensor<2x4x16xf32> {
  %0 = graph.matmul %x, %y : (tensor<2x4x8xf32>, tensor<3x8x16xf32>) -> tensor<2x4x16xf32>
  func.return %0 : tensor<2x4x16xf32>
}
