// a float literal in an integer constant
func.func @main() -> tensor<4xi32> {
  %0 = graph.constant dense<1.5> : tensor<4xi32>
  func.return %0 : tensor<4xi32>
}
