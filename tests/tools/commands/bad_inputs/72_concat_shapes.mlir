// 4x8 and 5x8 joined along axis 1
func.func @main(%x: tensor<4x8xf32>, %y: tensor<5x8xf32>) -> tensor<4x16xf32> {
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<4x8xf32>, tensor<5x8xf32>) -> tensor<4x16xf32>
  func.return %0 : tensor<4x16xf32>
}
