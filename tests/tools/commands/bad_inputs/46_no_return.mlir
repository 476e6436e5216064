// a body without a func.return; the error may stand at the function or at its last op
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.abs %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
}
