// A small feed-forward layer: the worked example of the README.
func.func @ffn(%x: tensor<8x256xf32>, %w: tensor<256x1024xf32>, %b: tensor<1024xf32>) -> tensor<8x1024xf32> {
  %h = graph.matmul %x, %w : (tensor<8x256xf32>, tensor<256x1024xf32>) -> tensor<8x1024xf32>
  %s = graph.add %h, %b : (tensor<8x1024xf32>, tensor<1024xf32>) -> tensor<8x1024xf32>
  %g = graph.gelu %s : (tensor<8x1024xf32>) -> tensor<8x1024xf32>
  %m = graph.mean %g {axes = array<i64: 1>, keepdims = true} : (tensor<8x1024xf32>) -> tensor<8x1xf32>
  %r = graph.subtract %g, %m : (tensor<8x1024xf32>, tensor<8x1xf32>) -> tensor<8x1024xf32>
  func.return %r : tensor<8x1024xf32>
}
