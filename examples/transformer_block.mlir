// A pre-norm transformer block: batch 4, sequence 256, width 512, 8 heads of 64, feed-forward 2048, f32.
// Causal attention is written out, with q, k and v from one matmul; %mask is true where a query may see a key.
// Masked scores become -1.0e9 and not -inf, so that a row with no visible key stays finite (uniform weights).
// graph.range bounds the values a runner draws for an argument: weights here are about 1/sqrt(fan-in).
func.func @main(
    %x: tensor<4x256x512xf32>,
    %mask: tensor<256x256xi1>,
    %ln1_scale: tensor<512xf32>,
    %ln1_bias: tensor<512xf32>,
    %w_qkv: tensor<512x1536xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %b_qkv: tensor<1536xf32>,
    %w_proj: tensor<512x512xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %b_proj: tensor<512xf32>,
    %ln2_scale: tensor<512xf32>,
    %ln2_bias: tensor<512xf32>,
    %w_up: tensor<512x2048xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %b_up: tensor<2048xf32>,
    %w_down: tensor<2048x512xf32> {graph.range = [-0.025 : f64, 0.025 : f64]},
    %b_down: tensor<512xf32>) -> tensor<4x256x512xf32> {
  // Attention.
  %ln1 = graph.layer_norm %x, %ln1_scale, %ln1_bias {axis = -1 : i64, epsilon = 1.0e-05 : f64} : (tensor<4x256x512xf32>, tensor<512xf32>, tensor<512xf32>) -> tensor<4x256x512xf32>
  %qkv_mm = graph.matmul %ln1, %w_qkv : (tensor<4x256x512xf32>, tensor<512x1536xf32>) -> tensor<4x256x1536xf32>
  %qkv = graph.add %qkv_mm, %b_qkv : (tensor<4x256x1536xf32>, tensor<1536xf32>) -> tensor<4x256x1536xf32>
  %q_flat = graph.slice %qkv {starts = array<i64: 0, 0, 0>, stops = array<i64: 4, 256, 512>} : (tensor<4x256x1536xf32>) -> tensor<4x256x512xf32>
  %k_flat = graph.slice %qkv {starts = array<i64: 0, 0, 512>, stops = array<i64: 4, 256, 1024>} : (tensor<4x256x1536xf32>) -> tensor<4x256x512xf32>
  %v_flat = graph.slice %qkv {starts = array<i64: 0, 0, 1024>, stops = array<i64: 4, 256, 1536>} : (tensor<4x256x1536xf32>) -> tensor<4x256x512xf32>
  %q_split = graph.reshape %q_flat {shape = array<i64: 4, 256, 8, 64>} : (tensor<4x256x512xf32>) -> tensor<4x256x8x64xf32>
  %k_split = graph.reshape %k_flat {shape = array<i64: 4, 256, 8, 64>} : (tensor<4x256x512xf32>) -> tensor<4x256x8x64xf32>
  %v_split = graph.reshape %v_flat {shape = array<i64: 4, 256, 8, 64>} : (tensor<4x256x512xf32>) -> tensor<4x256x8x64xf32>
  %q = graph.permute_dims %q_split {axes = array<i64: 0, 2, 1, 3>} : (tensor<4x256x8x64xf32>) -> tensor<4x8x256x64xf32>
  %kt = graph.permute_dims %k_split {axes = array<i64: 0, 2, 3, 1>} : (tensor<4x256x8x64xf32>) -> tensor<4x8x64x256xf32>
  %v = graph.permute_dims %v_split {axes = array<i64: 0, 2, 1, 3>} : (tensor<4x256x8x64xf32>) -> tensor<4x8x256x64xf32>
  %scores = graph.matmul %q, %kt : (tensor<4x8x256x64xf32>, tensor<4x8x64x256xf32>) -> tensor<4x8x256x256xf32>
  %scale = graph.constant dense<0.125> : tensor<f32>
  %scaled = graph.multiply %scores, %scale : (tensor<4x8x256x256xf32>, tensor<f32>) -> tensor<4x8x256x256xf32>
  %fill = graph.constant dense<-1.0e+09> : tensor<f32>
  %masked = graph.where %mask, %scaled, %fill : (tensor<256x256xi1>, tensor<4x8x256x256xf32>, tensor<f32>) -> tensor<4x8x256x256xf32>
  %probs = graph.softmax %masked {axis = -1 : i64} : (tensor<4x8x256x256xf32>) -> tensor<4x8x256x256xf32>
  %heads = graph.matmul %probs, %v : (tensor<4x8x256x256xf32>, tensor<4x8x256x64xf32>) -> tensor<4x8x256x64xf32>
  %heads_last = graph.permute_dims %heads {axes = array<i64: 0, 2, 1, 3>} : (tensor<4x8x256x64xf32>) -> tensor<4x256x8x64xf32>
  %context = graph.reshape %heads_last {shape = array<i64: 4, 256, 512>} : (tensor<4x256x8x64xf32>) -> tensor<4x256x512xf32>
  %proj_mm = graph.matmul %context, %w_proj : (tensor<4x256x512xf32>, tensor<512x512xf32>) -> tensor<4x256x512xf32>
  %proj = graph.add %proj_mm, %b_proj : (tensor<4x256x512xf32>, tensor<512xf32>) -> tensor<4x256x512xf32>
  %x1 = graph.add %x, %proj : (tensor<4x256x512xf32>, tensor<4x256x512xf32>) -> tensor<4x256x512xf32>
  // Feed-forward.
  %ln2 = graph.layer_norm %x1, %ln2_scale, %ln2_bias {axis = -1 : i64, epsilon = 1.0e-05 : f64} : (tensor<4x256x512xf32>, tensor<512xf32>, tensor<512xf32>) -> tensor<4x256x512xf32>
  %up_mm = graph.matmul %ln2, %w_up : (tensor<4x256x512xf32>, tensor<512x2048xf32>) -> tensor<4x256x2048xf32>
  %up = graph.add %up_mm, %b_up : (tensor<4x256x2048xf32>, tensor<2048xf32>) -> tensor<4x256x2048xf32>
  %act = graph.gelu %up : (tensor<4x256x2048xf32>) -> tensor<4x256x2048xf32>
  %down_mm = graph.matmul %act, %w_down : (tensor<4x256x2048xf32>, tensor<2048x512xf32>) -> tensor<4x256x512xf32>
  %down = graph.add %down_mm, %b_down : (tensor<4x256x512xf32>, tensor<512xf32>) -> tensor<4x256x512xf32>
  %y = graph.add %x1, %down : (tensor<4x256x512xf32>, tensor<4x256x512xf32>) -> tensor<4x256x512xf32>
  func.return %y : tensor<4x256x512xf32>
}
