// result 8x4 where 4x8 follows
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<8x4xf32> {
  %0 = graph.add %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<8x4xf32>
  func.return %0 : tensor<8x4xf32>
}
