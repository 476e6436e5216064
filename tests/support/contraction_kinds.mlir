// Contractions that no example has: narrow types, bytes, both operands transposed, attention's gradients, a convolution's by its weight.
func.func @main(%a: tensor<70x130xf16>, %b: tensor<130x90xf16>, %i: tensor<70x130xi8>, %j: tensor<90x130xi8>,
    %x: tensor<130x70xf64>, %w: tensor<90x130xf64>, %q: tensor<2x70x40xf32>, %k: tensor<2x70x40xf32>, %v: tensor<2x70x40xf32>,
    %l: tensor<2x70xf32>,
    %c: tensor<1x20x15x17xf32>, %d: tensor<1x18x8x9xf32>)
    -> (tensor<70x90xf16>, tensor<70x90xi32>, tensor<70x90xf64>, tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<2x70x40xf32>,
        tensor<18x20x3x3xf32>) {
  %0 = graph.matmul %a, %b : (tensor<70x130xf16>, tensor<130x90xf16>) -> tensor<70x90xf16>
  %1 = graph.matmul %i, %j {transpose_rhs = true, dtype = i32} : (tensor<70x130xi8>, tensor<90x130xi8>) -> tensor<70x90xi32>
  %2 = graph.matmul %x, %w {transpose_lhs = true, transpose_rhs = true}
      : (tensor<130x70xf64>, tensor<90x130xf64>) -> tensor<70x90xf64>
  %3, %4, %5 = graph.scaled_dot_product_attention_backward %q, %q, %k, %v, %v, %l {is_causal = true}
      : (tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<2x70xf32>)
      -> (tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<2x70x40xf32>)
  %6 = graph.conv_backward_weight %d, %c {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, kernel_shape = array<i64: 3, 3>}
      : (tensor<1x18x8x9xf32>, tensor<1x20x15x17xf32>) -> tensor<18x20x3x3xf32>
  func.return %0, %1, %2, %3, %4, %5, %6 : tensor<70x90xf16>, tensor<70x90xi32>, tensor<70x90xf64>, tensor<2x70x40xf32>,
      tensor<2x70x40xf32>, tensor<2x70x40xf32>, tensor<18x20x3x3xf32>
}
