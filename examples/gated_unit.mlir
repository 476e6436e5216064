// The pointwise part of a gated linear unit with SiLU (SwiGLU, Shazeer 2020) behind one matmul for both halves: 1024
// tokens, width 4096, f32. The first half of a row, through SiLU, gates the second one; biases as some models have them.
func.func @main(%h: tensor<1024x8192xf32>, %bias: tensor<8192xf32>) -> tensor<1024x4096xf32> {
  %b = graph.add %h, %bias : (tensor<1024x8192xf32>, tensor<8192xf32>) -> tensor<1024x8192xf32>
  %gate = graph.slice %b {starts = array<i64: 0, 0>, stops = array<i64: 1024, 4096>} : (tensor<1024x8192xf32>) -> tensor<1024x4096xf32>
  %up = graph.slice %b {starts = array<i64: 0, 4096>, stops = array<i64: 1024, 8192>} : (tensor<1024x8192xf32>) -> tensor<1024x4096xf32>
  %open = graph.silu %gate : (tensor<1024x4096xf32>) -> tensor<1024x4096xf32>
  %y = graph.multiply %open, %up : (tensor<1024x4096xf32>, tensor<1024x4096xf32>) -> tensor<1024x4096xf32>
  func.return %y : tensor<1024x4096xf32>
}
