// a constant of a float type that nothing here can pack
func.func @main() -> tensor<2xf128> {
  %0 = graph.constant dense<1.0> : tensor<2xf128>
  func.return %0 : tensor<2xf128>
}
