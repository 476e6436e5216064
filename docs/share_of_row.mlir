// What each element is of its row, after a bias and a rectifier: the example of c.md and cuda.md.
func.func @main(%x: tensor<4096x256xf32>, %bias: tensor<256xf32>) -> tensor<4096x256xf32> {
  %sum = graph.add %x, %bias : (tensor<4096x256xf32>, tensor<256xf32>) -> tensor<4096x256xf32>
  %y = graph.relu %sum : (tensor<4096x256xf32>) -> tensor<4096x256xf32>
  %total = graph.sum %y {axes = array<i64: 1>, keepdims = true} : (tensor<4096x256xf32>) -> tensor<4096x1xf32>
  %share = graph.divide %y, %total : (tensor<4096x256xf32>, tensor<4096x1xf32>) -> tensor<4096x256xf32>
  func.return %share : tensor<4096x256xf32>
}
