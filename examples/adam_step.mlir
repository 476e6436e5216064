// One step of Adam (Kingma & Ba 2015) over 2048x2048 parameters, f32: elementwise throughout, bound by memory.
// Step 10 with learning rate 0.001, beta1 0.9, beta2 0.999, epsilon 1e-8, so the bias corrections are constants:
// 1 - 0.9^10 and 1 - 0.999^10. %p, %m and %v give up their storage and can be updated in place.
// The second moment must be positive: graph.range has a runner draw it from [0.5, 1.5].
func.func @main(
    %p: tensor<2048x2048xf32> {graph.donated},
    %g: tensor<2048x2048xf32>,
    %m: tensor<2048x2048xf32> {graph.donated},
    %v: tensor<2048x2048xf32> {graph.donated, graph.range = [0.5 : f64, 1.5 : f64]}) -> (tensor<2048x2048xf32>, tensor<2048x2048xf32>, tensor<2048x2048xf32>) {
  %beta1 = graph.constant dense<0.9> : tensor<f32>
  %one_minus_beta1 = graph.constant dense<0.1> : tensor<f32>
  %beta2 = graph.constant dense<0.999> : tensor<f32>
  %one_minus_beta2 = graph.constant dense<0.001> : tensor<f32>
  %correction1 = graph.constant dense<0.6513215599> : tensor<f32>
  %correction2 = graph.constant dense<0.009955119790251765> : tensor<f32>
  %lr = graph.constant dense<0.001> : tensor<f32>
  %eps = graph.constant dense<1.0e-08> : tensor<f32>
  %m_kept = graph.multiply %m, %beta1 : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %m_grad = graph.multiply %g, %one_minus_beta1 : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %m_new = graph.add %m_kept, %m_grad : (tensor<2048x2048xf32>, tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %v_kept = graph.multiply %v, %beta2 : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %g_squared = graph.square %g : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %v_grad = graph.multiply %g_squared, %one_minus_beta2 : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %v_new = graph.add %v_kept, %v_grad : (tensor<2048x2048xf32>, tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %m_hat = graph.divide %m_new, %correction1 : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %v_hat = graph.divide %v_new, %correction2 : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %v_root = graph.sqrt %v_hat : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %denominator = graph.add %v_root, %eps : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %direction = graph.divide %m_hat, %denominator : (tensor<2048x2048xf32>, tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %update = graph.multiply %direction, %lr : (tensor<2048x2048xf32>, tensor<f32>) -> tensor<2048x2048xf32>
  %p_new = graph.subtract %p, %update : (tensor<2048x2048xf32>, tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  func.return %p_new, %m_new, %v_new : tensor<2048x2048xf32>, tensor<2048x2048xf32>, tensor<2048x2048xf32>
}
