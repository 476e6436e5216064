// a dense constant with rows of different lengths
func.func @main() -> tensor<2x2xf32> {
  %0 = graph.constant dense<[[1.0, 2.0], [3.0]]> : tensor<2x2xf32>
  func.return %0 : tensor<2x2xf32>
}
