// a negative dimension
func.func @main(%x: tensor<-4x8xf32>) -> tensor<-4x8xf32> {
  func.return %x : tensor<-4x8xf32>
}
