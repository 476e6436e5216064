// 300 does not fit i8
func.func @main() -> tensor<4xi8> {
  %0 = graph.constant dense<300> : tensor<4xi8>
  func.return %0 : tensor<4xi8>
}
