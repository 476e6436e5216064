// A basic residual block at inference, NCHW 8x64x56x56, f32:
// conv 3x3 - batch norm - relu - conv 3x3 - batch norm - add the input - relu.
// Variances must be positive: graph.range has a runner draw them from [0.5, 1.5] and not from the standard normal.
// The same attribute keeps the weights at about 1/sqrt(fan-in).
func.func @main(
    %x: tensor<8x64x56x56xf32>,
    %w1: tensor<64x64x3x3xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %scale1: tensor<64xf32>,
    %bias1: tensor<64xf32>,
    %mean1: tensor<64xf32>,
    %var1: tensor<64xf32> {graph.range = [0.5 : f64, 1.5 : f64]},
    %w2: tensor<64x64x3x3xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %scale2: tensor<64xf32>,
    %bias2: tensor<64xf32>,
    %mean2: tensor<64xf32>,
    %var2: tensor<64xf32> {graph.range = [0.5 : f64, 1.5 : f64]}) -> tensor<8x64x56x56xf32> {
  %conv1 = graph.conv %x, %w1 {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x56x56xf32>
  %bn1 = graph.batch_norm %conv1, %scale1, %bias1, %mean1, %var1 {axis = 1 : i64, epsilon = 1.0e-05 : f64} : (tensor<8x64x56x56xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<8x64x56x56xf32>
  %relu1 = graph.relu %bn1 : (tensor<8x64x56x56xf32>) -> tensor<8x64x56x56xf32>
  %conv2 = graph.conv %relu1, %w2 {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<8x64x56x56xf32>
  %bn2 = graph.batch_norm %conv2, %scale2, %bias2, %mean2, %var2 {axis = 1 : i64, epsilon = 1.0e-05 : f64} : (tensor<8x64x56x56xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<8x64x56x56xf32>
  %sum = graph.add %bn2, %x : (tensor<8x64x56x56xf32>, tensor<8x64x56x56xf32>) -> tensor<8x64x56x56xf32>
  %y = graph.relu %sum : (tensor<8x64x56x56xf32>) -> tensor<8x64x56x56xf32>
  func.return %y : tensor<8x64x56x56xf32>
}
