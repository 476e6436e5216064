// a matmul operand with no dimension
func.func @main(%x: tensor<f32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.matmul %x, %y : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
