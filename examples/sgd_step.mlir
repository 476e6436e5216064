// One step of SGD with Nesterov momentum and weight decay (Sutskever et al. 2013) for a matrix of weights: the state is
// updated in place, in one kernel.
func.func @main(%w: tensor<1024x1024xf32> {graph.donated}, %g: tensor<1024x1024xf32>,
                %v: tensor<1024x1024xf32> {graph.donated}) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
  %decay = graph.constant dense<1.0e-04> : tensor<f32>
  %momentum = graph.constant dense<0.9> : tensor<f32>
  %rate = graph.constant dense<0.05> : tensor<f32>
  %penalty = graph.multiply %w, %decay : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024x1024xf32>
  %gradient = graph.add %g, %penalty : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %kept = graph.multiply %v, %momentum : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024x1024xf32>
  %velocity = graph.add %kept, %gradient : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %ahead = graph.multiply %velocity, %momentum : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024x1024xf32>
  %direction = graph.add %gradient, %ahead : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %step = graph.multiply %direction, %rate : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024x1024xf32>
  %weights = graph.subtract %w, %step : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  func.return %weights, %velocity : tensor<1024x1024xf32>, tensor<1024x1024xf32>
}
