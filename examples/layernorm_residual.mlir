// Dropout, residual add and layer norm over rows of [8192, 1024], f32. %keep is the dropout mask, true where a value
// is kept; kept values are scaled by 1/0.9 (dropout rate 0.1). Returns the sum (the next residual) and its norm.
func.func @main(
    %x: tensor<8192x1024xf32>,
    %residual: tensor<8192x1024xf32>,
    %keep: tensor<8192x1024xi1>,
    %scale: tensor<1024xf32>,
    %bias: tensor<1024xf32>) -> (tensor<8192x1024xf32>, tensor<8192x1024xf32>) {
  %keep_scale = graph.constant dense<1.1111111> : tensor<f32>
  %zero = graph.constant dense<0.0> : tensor<f32>
  %scaled = graph.multiply %x, %keep_scale : (tensor<8192x1024xf32>, tensor<f32>) -> tensor<8192x1024xf32>
  %dropped = graph.where %keep, %scaled, %zero : (tensor<8192x1024xi1>, tensor<8192x1024xf32>, tensor<f32>) -> tensor<8192x1024xf32>
  %sum = graph.add %dropped, %residual : (tensor<8192x1024xf32>, tensor<8192x1024xf32>) -> tensor<8192x1024xf32>
  %norm = graph.layer_norm %sum, %scale, %bias {axis = -1 : i64, epsilon = 1.0e-05 : f64} : (tensor<8192x1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> tensor<8192x1024xf32>
  func.return %sum, %norm : tensor<8192x1024xf32>, tensor<8192x1024xf32>
}
