// One step of an LSTM cell: batch 64, hidden 512, f32. Two matmuls make all four gates, in the order
// input, forget, cell, output; returns the new hidden and cell states.
// graph.range bounds the values a runner draws for an argument: weights here are about 1/sqrt(fan-in).
func.func @main(
    %x: tensor<64x512xf32>,
    %h: tensor<64x512xf32>,
    %c: tensor<64x512xf32>,
    %w_x: tensor<512x2048xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %w_h: tensor<512x2048xf32> {graph.range = [-0.05 : f64, 0.05 : f64]},
    %b_x: tensor<2048xf32>,
    %b_h: tensor<2048xf32>) -> (tensor<64x512xf32>, tensor<64x512xf32>) {
  %x_mm = graph.matmul %x, %w_x : (tensor<64x512xf32>, tensor<512x2048xf32>) -> tensor<64x2048xf32>
  %x_gates = graph.add %x_mm, %b_x : (tensor<64x2048xf32>, tensor<2048xf32>) -> tensor<64x2048xf32>
  %h_mm = graph.matmul %h, %w_h : (tensor<64x512xf32>, tensor<512x2048xf32>) -> tensor<64x2048xf32>
  %h_gates = graph.add %h_mm, %b_h : (tensor<64x2048xf32>, tensor<2048xf32>) -> tensor<64x2048xf32>
  %gates = graph.add %x_gates, %h_gates : (tensor<64x2048xf32>, tensor<64x2048xf32>) -> tensor<64x2048xf32>
  %i_raw = graph.slice %gates {starts = array<i64: 0, 0>, stops = array<i64: 64, 512>} : (tensor<64x2048xf32>) -> tensor<64x512xf32>
  %f_raw = graph.slice %gates {starts = array<i64: 0, 512>, stops = array<i64: 64, 1024>} : (tensor<64x2048xf32>) -> tensor<64x512xf32>
  %g_raw = graph.slice %gates {starts = array<i64: 0, 1024>, stops = array<i64: 64, 1536>} : (tensor<64x2048xf32>) -> tensor<64x512xf32>
  %o_raw = graph.slice %gates {starts = array<i64: 0, 1536>, stops = array<i64: 64, 2048>} : (tensor<64x2048xf32>) -> tensor<64x512xf32>
  %i = graph.sigmoid %i_raw : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %f = graph.sigmoid %f_raw : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %g = graph.tanh %g_raw : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %o = graph.sigmoid %o_raw : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %kept = graph.multiply %f, %c : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  %written = graph.multiply %i, %g : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  %c_new = graph.add %kept, %written : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  %c_tanh = graph.tanh %c_new : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %h_new = graph.multiply %o, %c_tanh : (tensor<64x512xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
  func.return %h_new, %c_new : tensor<64x512xf32>, tensor<64x512xf32>
}
